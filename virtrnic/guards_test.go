package virtrnic

import (
	"testing"

	"github.com/mcastlab/mcastlab/wire"
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
			if want := seq == r.una+1+uint64(bit); r.sel.came.has(seq) != want {
				t.Errorf("bit %d: packet %d marked %v", bit, seq-r.una, !want)
			}
		}
	}
}

// TestHopLimit: no hop limit means 64, one that is given is kept.
func TestHopLimit(t *testing.T) {
	for given, want := range map[uint8]uint8{0: 64, 1: 1, 64: 64, 255: 255} { // each is its own check
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
