// SPDX-License-Identifier: Apache-2.0

package rcpeer

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/mcastlab/mcastlab/core/cm"
	"github.com/mcastlab/mcastlab/core/wire"
)

// same compares the readings of both implementations of a datagram, field by field.
func same(b []byte) error {
	x, ok := readMAD(b)
	y, err := cm.Parse(b)
	if !ok || err != nil {
		return fmt.Errorf("one reads it: %v, %v", ok, err)
	}
	bit := func(b bool) uint64 {
		if b {
			return 1
		}
		return 0
	}
	others := map[string]uint64{
		"local id": uint64(y.LocalID), "remote id": uint64(y.RemoteID), "service": y.ServiceID, "guid": y.GUID, "qkey": uint64(y.QKey), "qpn": uint64(y.QPN),
		"psn": uint64(y.PSN), "pkey": uint64(y.PKey), "responder resources": uint64(y.ResponderResources), "initiator depth": uint64(y.InitiatorDepth),
		"transport": uint64(y.Transport), "flow control": bit(y.FlowControl), "srq": bit(y.SRQ), "retries": uint64(y.RetryCount), "rnr retries": uint64(y.RNRRetryCount),
		"mtu": uint64(y.MTU), "remote timeout": uint64(y.RemoteTimeout), "local timeout": uint64(y.LocalTimeout), "cm retries": uint64(y.MaxCMRetries),
		"ack delay": uint64(y.AckDelay), "kind": uint64(y.Kind), "timeout": uint64(y.Timeout), "reason": uint64(y.Reason), "status": uint64(y.Status),
		"local gid": get(y.Path.Local[:], 0, 64), "local gid, rest": get(y.Path.Local[:], 64, 64),
		"remote gid": get(y.Path.Remote[:], 0, 64), "remote gid, rest": get(y.Path.Remote[:], 64, 64), "flow label": uint64(y.Path.FlowLabel), "rate": uint64(y.Path.Rate),
		"traffic class": uint64(y.Path.TrafficClass), "hop limit": uint64(y.Path.HopLimit), "sl": uint64(y.Path.SL), "subnet local": bit(y.Path.SubnetLocal),
		"ack timeout": uint64(y.Path.AckTimeout),
	}
	if x.tid != y.TID || x.attribute != uint16(y.Attribute) || string(x.private) != string(y.Private) {
		return fmt.Errorf("header or private data: %+v\n%+v", x, y)
	}
	for _, s := range layouts[x.attribute] {
		other, known := others[s.name]
		if s.name == "local lid" || s.name == "remote lid" {
			other, known = x.fields[s.name], true // RoCE has none, and package cm writes the permissive one
		}
		if !known || x.fields[s.name] != other {
			return fmt.Errorf("%#x: %s is %#x, and package cm says %#x", x.attribute, s.name, x.fields[s.name], other)
		}
	}
	return nil
}

// TestSameMessages: two implementations of the layouts read the same in any datagram, and write the same.
func TestSameMessages(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for a := range layouts {
		for range 200 {
			x := message{attribute: a, tid: rng.Uint64(), fields: map[string]uint64{}, private: make([]byte, madLen-madHead-privateAt[a])}
			for i := range x.private {
				x.private[i] = byte(rng.Uint32())
			}
			for _, s := range layouts[a] {
				x.fields[s.name] = rng.Uint64() >> (64 - s.bits)
			}
			for _, lid := range []string{"local lid", "remote lid"} {
				if _, has := x.fields[lid]; has {
					x.fields[lid] = 0xffff
				}
			}
			b := x.mad()
			if err := same(b); err != nil {
				t.Fatal(err)
			}
			y, _ := cm.Parse(b)
			if z := y.AppendTo(nil); string(z) != string(b) {
				t.Fatalf("%#x: written as\n%x and by package cm as\n%x", a, b, z)
			}
		}
	}
}

// captured returns the frames of a capture between Linux's rdma_rxe, at 10.0.0.3, and an emulated NIC.
func captured(t *testing.T, name string) (frames [][]byte) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	for b = b[24:]; len(b) > 16; {
		n := int(binary.LittleEndian.Uint32(b[8:]))
		frames, b = append(frames, b[16:][:n]), b[16+n:]
	}
	return frames
}

// TestLinuxCM: both implementations read the same values in datagrams of Linux, in both roles, and they are the right ones.
func TestLinuxCM(t *testing.T) {
	for _, c := range []struct {
		name  string
		kinds []uint16 // of Linux's messages
		want  map[string]uint64
		of    uint16
	}{
		{"linux-rping-client.pcap", []uint16{cmREQ, cmRTU, cmDREP}, map[string]uint64{
			"qpn": 0x1a, "psn": 0xadcd7c, "service": serviceTCP | 7174, "responder resources": 1, "initiator depth": 1, "retries": 7, "rnr retries": 7, "mtu": 5, "pkey": 0xffff,
			"ack timeout": 19, "remote timeout": 20, "local timeout": 20, "cm retries": 15, "hop limit": 64,
		}, cmREQ},
		{"linux-rping-server.pcap", []uint16{cmREP, cmDREP}, map[string]uint64{
			"qpn": 0x1b, "psn": 0x453d06, "responder resources": 1, "initiator depth": 1, "ack delay": 15, "rnr retries": 7,
		}, cmREP},
	} {
		var kinds []uint16
		for _, f := range captured(t, c.name) {
			if !addressed(f, [6]byte(f), addrB) {
				if !addressed(f, [6]byte(f), linuxIP) {
					continue
				}
			}
			from := addrB
			if f[29] == 3 {
				from = linuxIP
			}
			mad, reason := madOf(f, from)
			if reason != "" {
				t.Errorf("%s: %s in %x", c.name, reason, f)
			}
			if mad == nil {
				continue
			}
			if err := same(mad); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			x, _ := readMAD(mad)
			if from == linuxIP {
				kinds = append(kinds, x.attribute)
			}
			for name, want := range c.want { // each is looked at
				if x.attribute == c.of && x.fields[name] != want {
					t.Errorf("%s: %s is %#x and not %#x", c.name, name, x.fields[name], want)
				}
			}
			if a := x.asked(); x.attribute == cmREQ && (a.Source != from || a.MTU != 4096 || len(a.Private) != 56) {
				t.Errorf("%s: the request is %+v", c.name, a)
			}
		}
		if fmt.Sprint(kinds) != fmt.Sprint(c.kinds) {
			t.Errorf("%s: Linux sends %#x", c.name, kinds)
		}
	}
}

var linuxIP = wire.AddrOf(0x0a000003)

// FuzzMAD: both implementations take the same datagrams, and read the same in them.
func FuzzMAD(f *testing.F) {
	for a := range layouts {
		x := message{attribute: a, fields: map[string]uint64{}}
		f.Add(x.mad())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, ok := readMAD(b)
		if _, err := cm.Parse(b); ok != (err == nil) {
			t.Fatalf("it is taken by one alone: %v, %v", ok, err)
		}
		if ok {
			if err := same(b); err != nil {
				t.Fatal(err)
			}
		}
	})
}
