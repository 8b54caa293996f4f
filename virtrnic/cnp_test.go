// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// TestNotificationPoint: marked packets of a flow make CNPs no closer than the
// interval, they overtake acknowledgements, and the sender slows down; unmarked ones
// make none.
func TestNotificationPoint(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 16, retry: 7, rnr: 6, congestion: setOf(t, "dcqcn"), ackEvery: 4})
	var cnps []vtime.Time
	var sent []vtime.Time
	marked := 0
	p.net.Fate = func(now vtime.Time, port int, f *wire.Frame) faults.Verdict {
		switch {
		case f.OpCode() == wire.OpCNP:
			cnps = append(cnps, now)
			if port != 1 || f.DestQP() != p.qp[0].Num() || f.Traffic() != 0xc2 || f.Header()[42+4] != 0x40 || f.Len() != 74 || f.PSN() != 0 || !f.CheckICRC() {
				t.Errorf("CNP %v, traffic class %#x, %d bytes", f, f.Traffic(), f.Len())
			}
		case port == 0:
			sent = append(sent, now)
			if len(sent) > 100 { // from here on the wire is congested
				f.SetECN(wire.ECNCE)
				marked++
			}
		}
		return faults.Verdict{}
	}
	const size = 4 << 20
	_, sm := p.region(0, size, 3)
	_, dm := p.region(1, size, 0)
	p.post(0, SendWR{Opcode: WRRDMAWrite, SGE: whole(sm, size), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
	p.run()
	p.want(0, WC{Opcode: WCRDMAWrite, ByteLen: size})
	if len(cnps) < 3 {
		t.Fatalf("%d CNPs for %d marked packets", len(cnps), marked)
	}
	for i := 1; i < len(cnps); i++ {
		if d := cnps[i].Sub(cnps[i-1]); d < 50*vtime.Microsecond {
			t.Errorf("CNP %d comes %v after the one before, the interval is 50us", i, d)
		}
	}
	s, r := p.nic[0].Stats(), p.nic[1].Stats()
	if r.ECNMarked != uint64(marked) || r.CNPSent != uint64(len(cnps)) || s.CNPHandled != r.CNPSent || s.ECNMarked != 0 {
		t.Errorf("%d packets marked, %d CNPs; receiver counts %d and %d, sender %d", marked, len(cnps), r.ECNMarked, r.CNPSent, s.CNPHandled)
	}
	if s.Retransmitted != 0 {
		t.Errorf("%d packets repeated: pacing must not bring the timeout on", s.Retransmitted)
	}
	// Unmarked packets leave at the line's pace; after the first CNP has arrived, at half.
	gap := func(i int) vtime.Duration { return sent[i+1].Sub(sent[i]) }
	line := gap(50)
	first := 0
	for sent[first] < cnps[0].Add(5*vtime.Microsecond) {
		first++
	}
	if got := gap(first); got < line*2-2 || got > line*2+2 {
		t.Errorf("packets %v apart after the first CNP, want twice %v", got, line)
	}
}

// TestNoCongestionControl: without it marks mean nothing, and a CNP is dropped for the
// service it is of.
func TestNoCongestionControl(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 16, retry: 7, rnr: 6})
	p.net.Fate = func(_ vtime.Time, _ int, f *wire.Frame) faults.Verdict {
		f.SetECN(wire.ECNCE)
		return faults.Verdict{}
	}
	_, sm := p.region(0, 100_000, 3)
	_, dm := p.region(1, 100_000, 0)
	p.post(0, SendWR{Opcode: WRRDMAWrite, SGE: whole(sm, 100_000), RemoteAddr: dm.Addr(), RKey: dm.RKey()})
	f := p.net.Pool.Get()
	e := p.nic[1].envelope(p.qp[1])
	f.Start(&e, wire.BTH{OpCode: wire.OpCNP, PKey: wire.PKeyDefault, BECN: true, DestQP: p.qp[0].Num()})
	f.AddCNP()
	f.Seal(0, false)
	p.nic[1].SendFrame(0, f)
	p.run()
	if r := p.qp[0].Rate(p.net.Now); r != 0 {
		t.Errorf("a rate of %d is allowed, want 0 for none", r)
	}
	if p.nic[1].Stats().CNPSent != 0 || p.nic[0].Stats().Drops[DropService] != 1 {
		t.Errorf("%d CNPs sent, drops %v", p.nic[1].Stats().CNPSent, p.nic[0].Stats().Drops)
	}
}

// TestPacedNeighbours: a queue pair that is held back does not hold back another, and
// one that recovers ends at the line's rate.
func TestPacedNeighbours(t *testing.T) {
	p := newPair(t, pairOptions{timeout: 18, retry: 7, rnr: 6, congestion: setOf(t, "dcqcn-connectx"), ackEvery: 8, mtu: 4096})
	slow := p.qp[0]
	fast, _ := p.nic[0].CreateQP(QPInit{PD: p.pd[0], SendCQ: p.cq[0], RecvCQ: p.cq[0], MaxSendWR: 64, SQSigAll: true})
	peer, _ := p.nic[1].CreateQP(QPInit{PD: p.pd[1], SendCQ: p.cq[1], RecvCQ: p.cq[1], MaxRecvWR: 64})
	keep := p.qp
	p.qp = [2]*QP{fast, peer}
	for i := range 2 {
		p.connect(i, pairOptions{mtu: 4096, timeout: 18, retry: 7, rnr: 6})
	}
	p.qp = keep
	var bytes [2]int
	p.net.Fate = func(_ vtime.Time, port int, f *wire.Frame) faults.Verdict {
		if port == 0 {
			k := 0
			if f.DestQP() == peer.Num() {
				k = 1
			}
			bytes[k] += f.WireLen()
			if k == 0 && p.net.Now < vtime.Time(2*vtime.Millisecond) {
				f.SetECN(wire.ECNCE)
			}
		}
		return faults.Verdict{}
	}
	const size = 32 << 20
	for i, q := range []*QP{slow, fast} {
		sm, err := p.nic[0].RegMR(p.pd[0], Phantom(size), AccessLocalWrite)
		if err != nil {
			t.Fatal(err)
		}
		dm, err := p.nic[1].RegMR(p.pd[1], Phantom(size), AccessLocalWrite|AccessRemoteWrite)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.nic[0].PostSend(0, q, SendWR{WRID: uint64(i), Opcode: WRRDMAWrite, SGE: whole(sm, size), RemoteAddr: dm.Addr(), RKey: dm.RKey()}); err != nil {
			t.Fatal(err)
		}
	}
	for p.net.Now < vtime.Time(2*vtime.Millisecond) && p.net.Step() {
	}
	if share := float64(bytes[1]) / 25e6; share < 0.9 || bytes[0] == 0 {
		t.Errorf("in 2ms the unmarked flow sent %d bytes of 25 MB, the marked one %d", bytes[1], bytes[0])
	}
	p.run()
	if n := len(p.completions(0)); n != 2 {
		t.Errorf("%d of 2 requests completed", n)
	}
	if slow.Rate(p.net.Now) < 1e9 {
		t.Errorf("rate %d long after the last mark", slow.Rate(p.net.Now))
	}
}
