// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

var (
	fromSeed  = flag.Uint64("from", 0, "first seed of a sweep")
	seedCount = flag.Uint64("seeds", 400, "number of seeds of a sweep")
)

// TestRandomFaults runs two NICs back to back over a wire that loses, doubles, reorders and damages
// frames, with random requests in both directions. After every event the requester's counters are in
// order and the receiver has all acknowledged packets; at the end every request has completed, once, in
// order, and the bytes are right.
func TestRandomFaults(t *testing.T) {
	for seed := *fromSeed; seed < *fromSeed+*seedCount; seed++ {
		if err := randomFaults(t, seed); err != nil {
			t.Fatalf("seed %d: %v\nreplay: go test ./virtrnic -run RandomFaults -from %d -seeds 1", seed, err, seed)
		}
	}
}

func randomFaults(t *testing.T, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 9))
	psn := wire.PSN(r.Uint32()) & wire.PSNMask
	if r.IntN(2) == 0 {
		psn = wire.PSN(0).Add(-r.IntN(40))
	}
	p := newPair(t, pairOptions{
		mtu: 256 << r.IntN(5), ackEvery: 1 + r.IntN(6), psn: psn, timeout: 5, retry: 7, rnr: 7,
		delay: vtime.Duration(r.IntN(3000)) * vtime.Nanosecond, irn: drawIRN(r),
	})
	bad := 0.03 * r.Float64()
	p.net.Fate = func(_ vtime.Time, _ int, f *wire.Frame) (fate faults.Verdict) {
		fate.Drop = r.Float64() < bad
		fate.Twice = !fate.Drop && r.Float64() < bad
		if r.Float64() < bad {
			fate.Delay = vtime.Duration(r.IntN(5000)) * vtime.Nanosecond
			fate.Delay2 = fate.Delay
		}
		if !fate.Drop && r.Float64() < bad {
			p.net.Pool.Damage(f, r.Uint64())
		}
		return fate
	}
	var broken error
	p.net.After = func() {
		for i := range 2 {
			if err := p.invariant(i); err != nil && broken == nil {
				broken = fmt.Errorf("at %v: %w", p.net.Now, err)
			}
		}
	}
	var posted [2]int
	for k := range 1 + r.IntN(10) {
		from := r.IntN(2)
		n := r.IntN(9000)
		_, sm := p.region(from, n, uint64(k+1))
		_, dm := p.region(1-from, n, 0)
		w := SendWR{WRID: uint64(k), Opcode: WROpcode(r.IntN(4)), SGE: whole(sm, n), RemoteAddr: dm.Addr(), RKey: dm.RKey(), Imm: uint32(k)}
		v := RecvWR{WRID: uint64(k), SGE: whole(dm, n)}
		if w.Opcode == WRRDMAWriteWithImm {
			v.SGE = SGE{}
		}
		p.net.At(vtime.Time(r.IntN(40000))*1000, func(vtime.Time) { p.post(from, w) })
		if w.Opcode != WRRDMAWrite {
			// Receives must be posted in the order of the sends they are for: before all.
			p.recv(1-from, v)
		}
		posted[from]++
	}
	// The order of posting is random, so receives may meet other messages: only the
	// bytes of writes and the completions of sends are compared below.
	if err := p.net.Run(1 << 20); err != nil {
		return err
	}
	if broken != nil {
		return broken
	}
	for i := range 2 {
		done := 0
		for _, w := range p.completions(i) {
			if w.Opcode < WCRecv && w.Status == WCSuccess {
				done++
			}
		}
		if p.qp[i].State() == StateRTS && (done != posted[i] || p.qp[i].Outstanding() != 0) {
			return fmt.Errorf("side %d: %d of %d requests completed, %d outstanding", i, done, posted[i], p.qp[i].Outstanding())
		}
	}
	if live := p.net.Pool.Live; live != 0 {
		return fmt.Errorf("%d frames left", live)
	}
	return nil
}

// drawIRN makes both sides repeat selectively, one of them, or none.
func drawIRN(r *rand.Rand) (irn [2]*IRN) {
	for i := range irn {
		if r.IntN(3) > 0 {
			irn[i] = &IRN{Cap: 1 + r.IntN(60_000), RTOLow: vtime.Duration(10+r.IntN(50)) * vtime.Microsecond, RTOHigh: 100 * vtime.Microsecond}
		}
	}
	return irn
}

// invariant checks the counters of side i against the other side's.
func (p *pair) invariant(i int) error {
	s, peer := &p.qp[i].sq, p.qp[1-i]
	if s.una > s.nxt || s.nxt > s.maxSeq || s.maxSeq > s.end {
		return fmt.Errorf("side %d: counters out of order: %d %d %d %d", i, s.una, s.nxt, s.maxSeq, s.end)
	}
	if s.maxSeq-s.una > maxOutstanding {
		return fmt.Errorf("side %d: %d packets outstanding", i, s.maxSeq-s.una)
	}
	if have := peer.RQPSN().Sub(s.psn(s.una)); p.qp[i].State() == StateRTS && have < 0 {
		return fmt.Errorf("side %d: packets up to %d are taken as acknowledged, the peer expects %v", i, s.una, peer.RQPSN())
	}
	return p.nic[i].tx.check()
}

// check returns an error if the egress is not as is said at its fields.
func (t *transmit) check() error {
	var ready, queues uint8
	for prio := range t.made {
		if t.made[prio].Len() > 0 || t.round[prio].Len() > 0 {
			queues |= 1 << prio
		}
	}
	ready = queues
	if t.first != nil {
		ready |= 1 << t.prio
	}
	if ready != t.ready || queues != t.queues {
		return fmt.Errorf("%08b have something to send, of which %08b have queues; the egress has %08b and %08b", ready, queues, t.ready, t.queues)
	}
	return nil
}

// TestRandomWrites is the byte-exact half: writes of random sizes under the same
// faults, each compared at the end.
func TestRandomWrites(t *testing.T) {
	for seed := *fromSeed; seed < *fromSeed+*seedCount; seed++ {
		r := rand.New(rand.NewPCG(seed, 10))
		p := newPair(t, pairOptions{mtu: 256 << r.IntN(5), ackEvery: 1 + r.IntN(6), psn: wire.PSN(0).Add(-r.IntN(40)), timeout: 5, retry: 7, rnr: 7, irn: drawIRN(r)})
		p.net.Fate = func(_ vtime.Time, _ int, f *wire.Frame) (fate faults.Verdict) {
			fate.Drop, fate.Twice = r.Float64() < 0.02, r.Float64() < 0.02
			if r.Float64() < 0.02 {
				fate.Delay = vtime.Duration(r.IntN(5000)) * vtime.Nanosecond
				fate.Delay2 = fate.Delay
			}
			if !fate.Drop && r.Float64() < 0.02 {
				p.net.Pool.Damage(f, r.Uint64())
			}
			return fate
		}
		size := r.IntN(60000)
		src, sm := p.region(0, size, seed+1)
		dst, dm := p.region(1, size, 0)
		for off := 0; off < size; {
			n := min(size-off, 1+r.IntN(20000))
			p.post(0, SendWR{Opcode: WRRDMAWrite, SGE: SGE{sm.Addr() + uint64(off), uint32(n), sm.LKey()}, RemoteAddr: dm.Addr() + uint64(off), RKey: dm.RKey()})
			off += n
		}
		p.run()
		if string(src) != string(dst) {
			t.Fatalf("seed %d: other bytes arrived\nreplay: go test ./virtrnic -run RandomWrites -from %d -seeds 1", seed, seed)
		}
	}
}

// TestSizesUpTo2GiB sends the largest message there is, with a phantom payload and
// the smallest and largest MTU.
func TestSizesUpTo2GiB(t *testing.T) {
	const size = MaxMessage
	p := newPair(t, pairOptions{mtu: 4096, ackEvery: 64, timeout: 20, retry: 7, rnr: 6, trust: true})
	p.net.Pool.Poison = false
	sm, err := p.nic[0].RegMR(p.pd[0], Phantom(size), AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	dm, err := p.nic[1].RegMR(p.pd[1], Phantom(size), AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	p.recv(1, RecvWR{WRID: 2, SGE: SGE{dm.Addr(), size, dm.LKey()}})
	p.post(0, SendWR{WRID: 1, Opcode: WRSend, SGE: SGE{sm.Addr(), size, sm.LKey()}})
	if err := p.net.Run(1 << 24); err != nil {
		t.Fatal(err)
	}
	p.want(0, WC{WRID: 1, Opcode: WCSend, ByteLen: size})
	p.want(1, WC{WRID: 2, Opcode: WCRecv, ByteLen: size})
	if got := p.nic[1].Stats().BytesReceived; got != size {
		t.Errorf("%d bytes accepted, want %d", got, uint64(size))
	}
}
