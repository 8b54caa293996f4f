// SPDX-License-Identifier: Apache-2.0

package sim

// The loop looks at a transmitter when a request completes by starting (machine: starts are deadlines).

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// checkedStar returns a net of hosts around one switch, without loss by overflow, that checks itself.
func checkedStar(t *testing.T, hosts int) *Net {
	t.Helper()
	g, err := topo.Star(hosts, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	n, err := New(Config{Check: true, Spec: fabric.Spec{Graph: g, Seed: 1, Switch: fabric.Switch{
		Settings: virtswitch.Settings{Buffer: 16 << 20, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestUnreliableCompletes: a request of UC or UD is complete when its last packet starts
// on the wire, and a host learns of it then, though nothing comes back and the event loop
// looks at a transmitter only when it must (machine: starts are deadlines).
func TestUnreliableCompletes(t *testing.T) {
	for _, typ := range []virtrnic.QPType{virtrnic.TypeUC, virtrnic.TypeUD} {
		n := checkedStar(t, 2)
		var err error
		const packets = 100
		var nic [2]*virtrnic.NIC
		var cq [2]*virtrnic.CQ
		var qp [2]*virtrnic.QP
		var mr [2]*virtrnic.MR
		var pd [2]*virtrnic.PD
		for i := range 2 {
			nic[i] = n.NIC(i)
			pd[i] = nic[i].AllocPD()
			if cq[i], err = nic[i].CreateCQ(256); err != nil {
				t.Fatal(err)
			}
			init := virtrnic.QPInit{Type: typ, PD: pd[i], SendCQ: cq[i], RecvCQ: cq[i], MaxSendWR: 128, MaxRecvWR: 128, SQSigAll: true}
			if qp[i], err = nic[i].CreateQP(init); err != nil {
				t.Fatal(err)
			}
			if mr[i], err = nic[i].RegMR(pd[i], virtrnic.Phantom(packets*2048), virtrnic.AccessLocalWrite); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 2 {
			a := virtrnic.QPAttr{Port: 1, PathMTU: 1024, AV: virtrnic.AH{DGID: nic[1-i].IP()}, DestQPN: qp[1-i].Num(), QKey: 5}
			if err := bringUp(nic[i], qp[i], typ, a); err != nil {
				t.Fatal(err)
			}
		}
		ah, err := nic[0].CreateAH(pd[0], virtrnic.AH{DGID: nic[1].IP()})
		if err != nil {
			t.Fatal(err)
		}
		sge := func(i, n int) virtrnic.SGE {
			return virtrnic.SGE{Addr: mr[i].Addr(), Length: uint32(n), LKey: mr[i].LKey()}
		}
		n.At(0, func(now vtime.Time) {
			w := virtrnic.SendWR{Opcode: virtrnic.WRSend, SGE: sge(0, packets*1024)}
			count := 1
			if typ == virtrnic.TypeUD {
				w.SGE, w.UD, count = sge(0, 1024), virtrnic.UDDest{AH: ah, QPN: qp[1].Num(), QKey: 5}, packets
			}
			for range count {
				if err := nic[1].PostRecv(now, qp[1], virtrnic.RecvWR{SGE: sge(1, packets*1024+virtrnic.GRHLen)}); err != nil {
					t.Fatal(err)
				}
				if err := nic[0].PostSend(now, qp[0], w); err != nil {
					t.Fatal(err)
				}
			}
		})
		// Ethernet, IP, UDP, BTH, (DETH), payload, ICRC, FCS, preamble and gap.
		size := 14 + 20 + 8 + 12 + 1024 + 4 + 24
		if typ == virtrnic.TypeUD {
			size += 8
		}
		starts := vtime.Time((packets - 1) * size * 80) // 80 ps a byte at 100 Gb/s
		outstanding := [2]int{-1, -1}
		n.At(starts-1, func(vtime.Time) { outstanding[0] = qp[0].Outstanding() })
		n.At(starts+1, func(vtime.Time) { outstanding[1] = qp[0].Outstanding() })
		if err := n.Drain(); err != nil {
			t.Fatal(err)
		}
		if outstanding != [2]int{1, 0} {
			t.Errorf("type %d: %v requests outstanding before and after the last packet's start, want 1 and 0", typ, outstanding)
		}
		for i := range 2 {
			for {
				w, ok := nic[i].PollCQ(cq[i])
				if !ok {
					break
				}
				if w.Status != virtrnic.WCSuccess {
					t.Errorf("type %d: %v", typ, w.Status)
				}
			}
		}
		if err := n.Leftover(); err != nil {
			t.Error(err)
		}
	}
}
