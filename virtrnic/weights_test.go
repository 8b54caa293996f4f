// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// TestWeights: of priorities that always have something, each gets bytes in proportion to its weight, whatever the
// sizes of its frames; a strict one that has something goes before all of them.
func TestWeights(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var of [8]uint8
		var frame, sent [8]int
		for p := range of {
			of[p], frame[p] = uint8(r.IntN(4)*r.IntN(80)), 64+r.IntN(frameMax-64)
		}
		w := newWeights(of)
		if w == nil {
			if of != [8]uint8{} {
				t.Fatalf("seed %d: no round for %v", seed, of)
			}
			continue
		}
		sum, largest := 0, 0
		for _, x := range of {
			sum, largest = sum+int(x), max(largest, int(x))
		}
		strict := ^w.weighted
		for range 20 * sum {
			if strict != 0 && r.IntN(3) == 0 {
				may := strict&uint8(r.IntN(256)) | w.weighted&uint8(r.IntN(256))
				if high := may & strict; high != 0 {
					if p := w.choose(may); int(p) != bits.Len8(high)-1 {
						t.Fatalf("seed %d: of %08b, of which %08b are strict, %d goes first", seed, may, high, p)
					}
				}
			}
			p := w.choose(w.weighted)
			sent[p] += frame[p]
			w.spend(p, frame[p])
		}
		for p, x := range of {
			for o, y := range of {
				// In any stretch two shares differ by a turn and a frame of each at the most.
				if x > 0 && y > 0 && math.Abs(float64(sent[p])/float64(x)-float64(sent[o])/float64(y)) > 3*frameMax {
					t.Errorf("seed %d: priorities %d and %d with weights %d and %d sent %d and %d bytes", seed, p, o, x, y, sent[p], sent[o])
				}
			}
		}
	}
}

// TestWeightedQueuePairs: two queue pairs whose priorities have the shares 1 and 3 share the link so, and equally
// with equal ones, although one has the higher number; all strict, it goes first.
func TestWeightedQueuePairs(t *testing.T) {
	for _, c := range []struct {
		weights [8]uint8
		low     int // of the first 40 frames, those of the lower priority
	}{
		{[8]uint8{}, 0},
		{[8]uint8{3: 1, 4: 1}, 20},
		{[8]uint8{3: 1, 4: 3}, 10},
		{[8]uint8{3: 3, 4: 1}, 30},
		{[8]uint8{3: 1}, 0}, // 4 is strict
	} {
		o := pairOptions{mtu: 4096, timeout: 10, retry: 7, rnr: 6, weights: c.weights}
		p := newPair(t, o)
		second := &pair{t: t, net: p.net, nic: p.nic, pd: p.pd, cq: p.cq}
		for i := range 2 {
			var err error
			second.qp[i], err = p.nic[i].CreateQP(QPInit{PD: p.pd[i], SendCQ: p.cq[i], RecvCQ: p.cq[i], MaxSendWR: 4, MaxRecvWR: 4, SQSigAll: true})
			if err != nil {
				t.Fatal(err)
			}
		}
		o.traffic = 34<<2 | wire.ECNECT0
		for i := range 2 {
			second.connect(i, o)
		}
		low, frames := 0, 0
		p.net.Fate = func(_ vtime.Time, port int, f *wire.Frame) faults.Verdict {
			if port == 0 && f.OpCode() != wire.OpAcknowledge {
				if frames++; frames > 1 && frames <= 41 && f.Traffic()>>5 == 3 { // the first was alone
					low++
				}
			}
			return faults.Verdict{}
		}
		const size = 64 * 4096
		for _, x := range []*pair{p, second} {
			_, sm := p.region(0, size, 3)
			_, dm := p.region(1, size, 0)
			x.recv(1, RecvWR{SGE: whole(dm, size)})
			x.post(0, SendWR{Opcode: WRSend, SGE: whole(sm, size)})
		}
		p.run()
		if frames != 128 || low < c.low-3 || low > c.low+3 {
			t.Errorf("weights %v: %d of 40 frames of the lower priority, and %d were to be, of %d in all", c.weights, low, c.low, frames)
		}
	}
}
