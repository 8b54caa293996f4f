// SPDX-License-Identifier: Apache-2.0

package cm

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

// full is a message of each kind with a value in each field that it has.
func full() []Message {
	private := func(a Attribute) []byte {
		b := make([]byte, a.PrivateMax())
		for i := range b {
			b[i] = byte(i + 1)
		}
		return b
	}
	all := []Message{
		{
			Attribute: REQ, TID: 0x1122334455667788, LocalID: 0xa1a2a3a4, ServiceID: SpaceTCP.ServiceID(7174), GUID: 0x0200_0aff_fe0a_0001, QPN: 0x123456, QKey: 0x01020304, PSN: 0xabcdef,
			PKey: 0xffff, ResponderResources: 3, InitiatorDepth: 5, Transport: 1, FlowControl: true, SRQ: true, RetryCount: 6, RNRRetryCount: 7, MTU: 5, RemoteTimeout: 16,
			LocalTimeout: 17, MaxCMRetries: 15,
			Path: Path{
				Local: [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 1}, Remote: [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 2}, FlowLabel: 0xfedcb, Rate: 0x2a, TrafficClass: 0x68, HopLimit: 64,
				SL: 9, SubnetLocal: true, AckTimeout: 17,
			},
		},
		{Attribute: MRA, TID: 1, LocalID: 2, RemoteID: 3, Kind: 1, Timeout: 24},
		{Attribute: REJ, TID: 1, LocalID: 2, RemoteID: 3, Kind: 2, Reason: ReasonConsumer},
		{
			Attribute: REP, TID: 1, LocalID: 2, RemoteID: 3, GUID: 4, QPN: 0x123456, QKey: 5, PSN: 0xabcdef, ResponderResources: 6, InitiatorDepth: 7, FlowControl: true, SRQ: true,
			RNRRetryCount: 5, AckDelay: 15,
		},
		{Attribute: RTU, TID: 1, LocalID: 2, RemoteID: 3},
		{Attribute: DREQ, TID: 1, LocalID: 2, RemoteID: 3, QPN: 0x123456},
		{Attribute: DREP, TID: 1, LocalID: 2, RemoteID: 3},
		{Attribute: SIDRReq, TID: 1, LocalID: 2, PKey: 0xffff, ServiceID: SpaceUDP.ServiceID(7174)},
		{Attribute: SIDRRep, TID: 1, LocalID: 2, Status: StatusRejected, QPN: 0x123456, ServiceID: SpaceUDP.ServiceID(7174), QKey: 0x01234567},
	}
	for i := range all {
		all[i].Private = private(all[i].Attribute)
	}
	return all
}

// TestRoundTrip: appended messages are read again, and no shorter datagram is taken.
func TestRoundTrip(t *testing.T) {
	for _, m := range full() {
		b := m.AppendTo(nil)
		got, err := Parse(b)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%v: %v\n%+v\n%+v", m.Attribute, err, got, m)
		}
		for n := range b {
			if _, err := Parse(b[:n]); !errors.Is(err, ErrLength) {
				t.Fatalf("%v: of %d bytes: %v", m.Attribute, n, err)
			}
		}
		for _, i := range []int{0, 1, 2, 3, 16} {
			bad := bytes.Clone(b)
			bad[i] ^= 0x40
			if _, err := Parse(bad); err == nil {
				t.Errorf("%v: taken with a wrong byte %d", m.Attribute, i)
			}
		}
	}
}

// TestGolden: the bytes are those of the specification's layout, written out by hand: the fields of a message at their
// offsets behind the common header.
func TestGolden(t *testing.T) {
	header := func(attribute string, tid string) string {
		return "01070203" + "00000000" + tid + attribute + "0000" + "00000000"
	}
	const one = "0000000000000001"
	for i, want := range []string{
		header("0010", "1122334455667788") + "a1a2a3a4" + "00000000" + "0000000001061c06" + "02000afffe0a0001" + "00000000" + "01020304" + "12345603" + "00000005" + "00000083" +
			"abcdef8e" + "ffff" + "57" + "f8" + "ffff" + "ffff" + "00000000000000000000ffff0a000001" + "00000000000000000000ffff0a000002" + "fedcb02a" + "68" + "40" + "98" + "88" +
			strings.Repeat("00", 44),
		header("0011", one) + "00000002" + "00000003" + "40" + "c0",
		header("0012", one) + "00000002" + "00000003" + "80" + "00" + "001c" + strings.Repeat("00", 72),
		header("0013", one) + "00000002" + "00000003" + "00000005" + "12345600" + "00000000" + "abcdef00" + "06" + "07" + "79" + "b0" + "0000000000000004",
		header("0014", one) + "00000002" + "00000003",
		header("0015", one) + "00000002" + "00000003" + "12345600",
		header("0016", one) + "00000002" + "00000003",
		header("0017", one) + "00000002" + "ffff" + "0000" + "0000000001111c06",
		header("0018", one) + "00000002" + "02" + "00" + "0000" + "12345600" + "0000000001111c06" + "01234567" + strings.Repeat("00", 72),
	} {
		m := full()[i]
		b := m.AppendTo(nil)
		if got := hex.EncodeToString(b[:len(want)/2]); got != want {
			t.Errorf("%v:\n%s and not\n%s", m.Attribute, got, want)
		}
		if !bytes.Equal(b[len(want)/2:], m.Private) {
			t.Errorf("%v: the private data does not follow byte %d", m.Attribute, len(want)/2)
		}
	}
}

// TestIPHeader: the header of rdma_cm, in both families.
func TestIPHeader(t *testing.T) {
	for _, c := range []struct {
		h    IPHeader
		want string
	}{
		{
			IPHeader{Version: 4, Port: 0x8001, Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2")},
			"00408001" + "0000000000000000000000000a000001" + "0000000000000000000000000a000002",
		},
		{
			IPHeader{Version: 6, Port: 1, Src: netip.MustParseAddr("fd00::1"), Dst: netip.MustParseAddr("fd00::2")},
			"00600001" + "fd000000000000000000000000000001" + "fd000000000000000000000000000002",
		},
	} {
		b := c.h.AppendTo(nil)
		if got := hex.EncodeToString(b); got != c.want {
			t.Errorf("%s and not %s", got, c.want)
		}
		got, rest, ok := ParseIPHeader(append(b, 7))
		if !ok || got != c.h || !bytes.Equal(rest, []byte{7}) {
			t.Errorf("%+v %v %v", got, rest, ok)
		}
		for n := range b {
			if _, _, ok := ParseIPHeader(b[:n]); ok {
				t.Errorf("%d bytes are taken", n)
			}
		}
		b[1] = 0x50
		if _, _, ok := ParseIPHeader(b); ok {
			t.Error("version 5 is taken")
		}
	}
}

// TestServiceID: a service ID names a port of a space or is another's.
func TestServiceID(t *testing.T) {
	for _, s := range []Space{SpaceTCP, SpaceUDP} {
		if got, port, ok := ServiceOf(s.ServiceID(7174)); got != s || port != 7174 || !ok {
			t.Errorf("%#x: %#x %d %v", s, got, port, ok)
		}
	}
	for _, id := range []uint64{0, 0x013f_0000, 0x1_0106_0001, 1 << 63} {
		if _, _, ok := ServiceOf(id); ok {
			t.Errorf("%#x is taken", id)
		}
	}
}

// TestNoAllocation: a message is written and read without allocation.
func TestNoAllocation(t *testing.T) {
	all := full()
	var b [MADLen]byte
	if n := testing.AllocsPerRun(100, func() {
		for i := range all {
			if _, err := Parse(all[i].AppendTo(b[:0])); err != nil {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzParse: a message that is read is written again as it was, apart from bytes that mean nothing here, and a
// machine with an endpoint in each state bears it.
func FuzzParse(f *testing.F) {
	for _, m := range full() {
		f.Add(m.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		again, err := Parse(m.AppendTo(nil))
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("%v\n%+v\n%+v", err, again, m)
		}
		p := newPair(t, 1)
		p.everyState()
		for i := range 2 {
			m.RemoteID, m.LocalID = p.ids[i], p.ids[1-i]
			p.m[i].Handle(p.now, p.ip(1-i), b)
			p.m[i].Handle(p.now, p.ip(1-i), m.AppendTo(nil))
		}
		p.run()
		p.check()
	})
}
