// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/cm"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// dissected is a message and tshark's expected reading of it: names of fields without infiniband.cm., and
// values.
type dissected struct {
	m    cm.Message
	want string
}

// private returns private data for the whole room of a message.
func private(a cm.Attribute, first byte) []byte {
	b := make([]byte, a.PrivateMax())
	for i := range b {
		b[i] = first + byte(i)
	}
	return b
}

func dissectedMessages(h [2]*host) []dissected {
	own, far := h[0].nic.Addr(h[0].nic.IP()), h[1].nic.Addr(h[1].nic.IP())
	head := cm.IPHeader{Version: 4, Port: 33333, Src: own, Dst: far}.AppendTo(nil)
	user := private(cm.REQ, 7)[len(head):]
	all := []dissected{
		{
			cm.Message{
				Attribute: cm.REQ, TID: 0x1122334455667788, LocalID: 0xa1a2a3a4, ServiceID: cm.SpaceTCP.ServiceID(7174), GUID: 0x0123456789abcdef, QPN: 0x123456, QKey: 0x01020304,
				PSN: 0xabcdef, PKey: 0x8001, ResponderResources: 3, InitiatorDepth: 5, Transport: 1, FlowControl: true, SRQ: true, RetryCount: 6, RNRRetryCount: 3, MTU: 5,
				RemoteTimeout: 16, LocalTimeout: 17, MaxCMRetries: 14,
				Path: cm.Path{
					Local: own.As16(), Remote: far.As16(), FlowLabel: 0xfedcb, Rate: 0x2a, TrafficClass: 0x68, HopLimit: 64, SL: 9, SubnetLocal: true, AckTimeout: 18,
				},
				Private: append(head, user...),
			},
			"req=0xa1a2a3a4 req.serviceid.protocol=6 req.serviceid.dport=7174 req.localcaguid=0x0123456789abcdef req.localqpn=0x123456 req.localqkey=0x01020304 " +
				"req.startpsn=0xabcdef req.pkey=0x8001 req.responderres=3 req.initdepth=5 req.transpsvctype=1 req.e2eflowctrl=1 req.srq=1 req.retrcount=6 req.rnrretrcount=3 " +
				"req.pppmtu=5 req.remoteresptout=16 req.localresptout=17 req.maxcmretr=14 req.prim_locallid=0xffff req.prim_remotelid=0xffff " +
				"req.prim_localgid_ipv4=10.0.0.1 req.prim_remotegid_ipv4=10.0.0.2 req.prim_tfcclass=0x68 req.prim_hoplim=64 " +
				"req.prim_sl=9 req.prim_subnetlocal=1 req.prim_localacktout=18 req.ip_cm.majv=0 req.ip_cm.minv=0 req.ip_cm.ipv=4 req.ip_cm.sport=33333 " +
				"req.ip_cm.sip4=10.0.0.1 req.ip_cm.dip4=10.0.0.2 req.ip_cm.private=" + hex.EncodeToString(user),
		},
		{
			cm.Message{
				Attribute: cm.REP, LocalID: 2, RemoteID: 3, GUID: 4, QPN: 0x123456, QKey: 5, PSN: 0xabcdef, ResponderResources: 6, InitiatorDepth: 7, FlowControl: true, SRQ: true,
				RNRRetryCount: 5, AckDelay: 15, Private: private(cm.REP, 1),
			},
			"rep=2 rep.remotecommid=3 rep.localcaguid=4 rep.localqpn=0x123456 rep.localqkey=5 rep.startpsn=0xabcdef rep.respres=6 rep.initdepth=7 rep.e2eflowctrl=1 rep.srq=1 " +
				"rep.rnrretrcount=5 rep.tgtackdelay=15 rep.failoveracc=0 rep.private=" + hex.EncodeToString(private(cm.REP, 1)),
		},
		{
			cm.Message{Attribute: cm.RTU, LocalID: 4, RemoteID: 5, Private: private(cm.RTU, 2)},
			"rtu.localcommid=4 rtu.remotecommid=5 rtu.private=" + hex.EncodeToString(private(cm.RTU, 2)),
		},
		{
			cm.Message{Attribute: cm.DREQ, LocalID: 6, RemoteID: 7, QPN: 0x654321, Private: private(cm.DREQ, 3)},
			"dreq.localcommid=6 dreq.remotecommid=7 req.remoteqpneecn=0x654321 dreq.private=" + hex.EncodeToString(private(cm.DREQ, 3)),
		},
		{
			cm.Message{Attribute: cm.DREP, LocalID: 8, RemoteID: 9, Private: private(cm.DREP, 4)},
			"drsp.localcommid=8 drsp.remotecommid=9 drsp.private=" + hex.EncodeToString(private(cm.DREP, 4)),
		},
	}
	for _, why := range []cm.Reason{
		cm.ReasonNoResources, cm.ReasonTimeout, cm.ReasonInvalidCommID, cm.ReasonInvalidService, cm.ReasonInvalidTransport, cm.ReasonStale, cm.ReasonInvalidMTU, cm.ReasonConsumer,
	} {
		all = append(all, dissected{
			cm.Message{Attribute: cm.REJ, LocalID: 10, RemoteID: 11, Kind: 1, Reason: why, Private: private(cm.REJ, byte(why))},
			fmt.Sprintf("rej.localcommid=10 rej.remotecommid=11 rej.msgrej=1 rej.rejinfolen=0 rej.reason=%d rej.private=%x", why, private(cm.REJ, byte(why))),
		})
	}
	return all
}

// TestDissected: tshark reads the intended value in every field of the messages that it knows. Two are left out: flow
// label and packet rate of a REQ's path, whose word it reads in little-endian order. TestGolden of package cm has them.
func TestDissected(t *testing.T) {
	tools(t, "tshark")
	h, sent := hosts(t)
	all := dissectedMessages(h)
	for _, d := range all {
		h[0].loop.Call(vtime.Never, func(now vtime.Time) { h[0].nic.SendMAD(now, h[1].nic.IP(), d.m.AppendTo(nil)) })
	}
	h[1].waitFor(t, "they have come", func() bool { return h[1].nic.Stats().RcvdPkts >= uint64(len(all)) })
	file := filepath.Join(t.TempDir(), "link.pcap")
	sent.mu.Lock()
	err := os.WriteFile(file, sent.b.Bytes(), 0o600)
	sent.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	common := "ip.src=10.0.0.1 infiniband.bth.destqp=1 infiniband.deth.q_key=0x80010000 infiniband.deth.srcqp=1 " +
		"infiniband.mad.baseversion=1 infiniband.mad.mgmtclass=7 infiniband.mad.classversion=2 infiniband.mad.method=3 infiniband.mad.status=0 "
	args := []string{"-r", file, "-Y", "ip.src == 10.0.0.1", "-T", "fields"}
	column := map[string]int{}
	wants := make([][]string, len(all))
	for i, d := range all {
		want := common + fmt.Sprintf("infiniband.mad.attributeid=%d infiniband.mad.transactionid=%d ", d.m.Attribute, d.m.TID)
		for _, f := range strings.Fields(d.want) {
			want += "infiniband.cm." + f + " "
		}
		wants[i] = strings.Fields(want)
		for _, f := range wants[i] {
			name, _, _ := strings.Cut(f, "=")
			if _, known := column[name]; !known {
				column[name] = len(column)
				args = append(args, "-e", name)
			}
		}
	}
	out, err := exec.Command("tshark", args...).Output()
	lines := bytes.Split(bytes.TrimSuffix(out, []byte("\n")), []byte("\n"))
	if err != nil || len(lines) != len(all) {
		t.Fatalf("%v: %d messages\n%s", err, len(lines), out)
	}
	for i, d := range all {
		got := strings.Split(string(lines[i]), "\t")
		for _, f := range wants[i] {
			name, value, _ := strings.Cut(f, "=")
			if g := got[column[name]]; g != value && !alike(g, value) {
				t.Errorf("%v %d: %s is %q and not %q", d.m.Attribute, i, name, g, value)
			}
		}
	}
	if bad, err := exec.Command("tshark", "-r", file, "-Y", "_ws.malformed", "-V").Output(); err != nil || len(bad) > 0 {
		t.Errorf("malformed frames: %v\n%s", err, bad)
	}
}

// alike reports whether two values are the same number, or tshark's true and 1.
func alike(a, b string) bool {
	if a == "True" {
		a = "1"
	}
	x, err := strconv.ParseUint(a, 0, 64)
	y, err2 := strconv.ParseUint(b, 0, 64)
	return err == nil && err2 == nil && x == y
}
