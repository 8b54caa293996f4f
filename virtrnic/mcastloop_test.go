// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/wire"
)

// TestMulticastLoopback: a queue pair's datagrams to a group return to the members at its own NIC that want it: to all, to all but
// itself, or to none. It leaves the NIC, too, once.
func TestMulticastLoopback(t *testing.T) {
	const group = 0xef010203
	o := datagrams
	o.self = true
	p := newPair(t, o)
	_, dm := p.region(1, 1000, 0)
	ah, err := p.nic[0].CreateAH(p.pd[1], AH{DGID: group})
	if err != nil {
		t.Fatal(err)
	}
	type end struct {
		q  *QP
		cq *CQ
	}
	var ends []end
	for _, l := range []Loopback{LoopbackAll, LoopbackOthers, LoopbackNone} {
		for range 2 {
			cq, err := p.nic[0].CreateCQ(64)
			if err != nil {
				t.Fatal(err)
			}
			q, err := p.nic[0].CreateQP(QPInit{Type: TypeUD, PD: p.pd[1], SendCQ: cq, RecvCQ: cq, MaxSendWR: 8, MaxRecvWR: 32, Loopback: l})
			if err != nil {
				t.Fatal(err)
			}
			x := &pair{t: t, net: p.net, nic: p.nic, pd: p.pd, cq: p.cq, qp: [2]*QP{p.qp[0], q}}
			x.ready(1, o)
			for range 32 {
				if err := p.nic[0].PostRecv(p.net.Now, q, RecvWR{SGE: whole(dm, 100)}); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.nic[0].AttachMcast(q, group); err != nil {
				t.Fatal(err)
			}
			ends = append(ends, end{q, cq})
		}
	}
	for i, from := range ends {
		wr := SendWR{Opcode: WRSend, Flags: SendInline, Inline: []byte("to all"), UD: UDDest{ah, wire.QPNMulticast, testQKey}}
		from.q.sq.inline = 64
		if err := p.nic[0].PostSend(p.net.Now, from.q, wr); err != nil {
			t.Fatal(err)
		}
		p.run()
		for k, to := range ends {
			got := 0
			for w, ok := p.nic[0].PollCQ(to.cq); ok; w, ok = p.nic[0].PollCQ(to.cq) {
				if w.Opcode == WCRecv {
					got++
				}
			}
			want := 1
			if k >= 4 || k >= 2 && k == i {
				want = 0
			}
			if got != want {
				t.Errorf("queue pair %d got what %d sent %d times, want %d", k, i, got, want)
			}
		}
	}
	s := p.nic[0].Stats()
	if n := uint64(len(ends)); s.SentPkts != n || s.Loopback != n || s.Dropped() != 0 {
		t.Errorf("%d datagrams: %d sent, %d came back, drops %v", n, s.SentPkts, s.Loopback, s.Drops)
	}
	for _, e := range ends[:4] {
		if err := p.nic[0].DetachMcast(e.q, group); err != nil {
			t.Fatal(err)
		}
	}
	wr := SendWR{Opcode: WRSend, Flags: SendInline, Inline: []byte("to all"), UD: UDDest{ah, wire.QPNMulticast, testQKey}}
	if err := p.nic[0].PostSend(p.net.Now, ends[0].q, wr); err != nil {
		t.Fatal(err)
	}
	p.run()
	if got := p.nic[0].Stats().Loopback; got != uint64(len(ends)) {
		t.Errorf("%d datagrams came back though nobody wants them", got-uint64(len(ends)))
	}
}
