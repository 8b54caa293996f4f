// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// TestReportBits: each bit of a SACK marks the one packet it stands for, in either word.
func TestReportBits(t *testing.T) {
	for _, bit := range []int{0, 1, 63, 64, 65, 127} {
		p := newPair(t, pairOptions{psn: 0xffffc0, irn: [2]*IRN{testIRN(), testIRN()}})
		r := &p.qp[0].sq
		r.maxSeq = r.una + 200
		s := wire.SACK{PSN: r.psn(r.una)}
		if bit < 64 {
			s.Lo = 1 << bit
		} else {
			s.Hi = 1 << (bit - 64)
		}
		r.sel.report = s
		r.sel.merge(r)
		for seq := r.una; seq < r.maxSeq; seq++ {
			if want := seq == r.una+1+uint64(bit); r.sel.sacked.has(seq) != want {
				t.Errorf("bit %d: packet %d marked %v", bit, seq-r.una, !want)
			}
		}
	}
}

// TestHopLimit: no hop limit means 64, one that is given is kept.
func TestHopLimit(t *testing.T) {
	for given, want := range map[uint8]uint8{0: 64, 1: 1, 64: 64, 255: 255} { // independent of each other
		p := newPair(t, pairOptions{})
		p.qp[0].attr.AV.HopLimit = given
		e := p.nic[0].envelope(p.qp[0])
		f := p.net.Pool.Get()
		f.Start(&e, wire.BTH{OpCode: wire.OpSendOnly, PKey: wire.PKeyDefault})
		if f.TTL() != want {
			t.Errorf("hop limit %d gives packets a time to live of %d, want %d", given, f.TTL(), want)
		}
		p.net.Pool.Put(f)
	}
}

// TestMemoryGoneInError: a queue pair that has failed, and still answers earlier requests, ends without
// another word when the memory of an answer is taken away.
func TestMemoryGoneInError(t *testing.T) {
	p := newPair(t, readable)
	_, sm := p.region(1, 20*1024, 7)
	_, dm := p.region(0, 20*1024, 0)
	p.post(0, read(1, dm, sm, 20*1024))
	q := p.qp[1]
	for (q.rq.out.Len() == 0 || q.rq.out.At(0).at < 3) && p.net.Step() {
	}
	f := p.net.Pool.Get()
	e := p.nic[0].envelope(p.qp[0])
	f.Start(&e, wire.BTH{OpCode: wire.OpWriteFirst, PKey: wire.PKeyDefault, DestQP: q.num, PSN: q.RQPSN()})
	f.AddRETH(wire.RETH{VA: sm.Addr(), RKey: sm.RKey(), DMALen: MaxMessage + 1})
	f.SetPhantom(q.mtu)
	f.Seal(0, false)
	p.inject(f)
	if q.State() != StateErr || q.rq.out.Len() < 2 {
		t.Fatalf("after a request that may not be, the state is %v and %d answers wait", q.State(), q.rq.out.Len())
	}
	naks, events := 0, 0
	p.net.Fate = func(_ vtime.Time, port int, f *wire.Frame) faults.Verdict {
		if port == 1 && f.OpCode() == wire.OpAcknowledge {
			naks++
		}
		return faults.Verdict{}
	}
	if err := p.nic[1].DeregMR(sm); err != nil {
		t.Fatal(err)
	}
	p.run()
	for e, ok := p.nic[1].GetAsyncEvent(); ok; e, ok = p.nic[1].GetAsyncEvent() {
		if e.Type == EventQPAccessErr {
			events++
		}
	}
	if naks != 0 || events != 0 {
		t.Errorf("%d NAKs and %d events of access, want none", naks, events)
	}
}
