// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
)

// sweepWorkers are the numbers of workers with which a lab of the seed sweep must be the whole.
var sweepWorkers = []int{1, 2, 3, 8}

// TestSeedSweepParts: the labs of the seed sweep, with a channel whose messages take time, have the same
// outcome whole and in parts: the same digest, hops, packets, counters and bytes, with any workers.
func TestSeedSweepParts(t *testing.T) {
	from, count := simlab.DaySeeds(t, 90)
	var packets, hops uint64
	moved := 0
	for seed := from; seed < from+count; seed++ {
		v := drawTrial(t, seed)
		r := prng.New(seed)
		cfg := v.config()
		cfg.OutOfBand = vtime.Duration(1+r.IntN(5)) * vtime.Microsecond
		n, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var seen sightings
		whole := v.runOn(n, []*Net{n}, &seen)
		packets += whole.packets
		hops += whole.hops
		of := randomParts(r, len(v.graph.Nodes))
		for _, workers := range sweepWorkers {
			p, err := NewParts(cfg, of, workers)
			if err != nil {
				t.Fatal(err)
			}
			p.Crew, p.Eager = aCrew, seed%2 == 0
			dealOften(p, seed)
			var there sightings
			parts := v.runOn(p, p.parts, &there)
			if !slices.Equal(p.deal.worker, newDeal(len(p.parts), workers).worker) {
				moved++
			}
			if a, b := fmt.Sprintf("%+v %+v %v", whole, seen, n.Leftover()), fmt.Sprintf("%+v %+v %v", parts, there, p.Leftover()); a != b || n.now != p.now {
				t.Errorf("%v\n%d workers, parts %v:\n%v %s\nand whole:\n%v %s\nreplay: go test ./drivers/sim -run 'TestSeedSweepParts$' -from %d -seeds 1",
					v, workers, of, p.now, b, n.now, a, seed)
			}
		}
	}
	t.Logf("seeds %d..%d, whole and in parts with %v workers: %d packets, %d packet-hops each", from, from+count-1, sweepWorkers, packets, hops)
	if t.Logf("in %d runs workers have got other parts", moved); count >= 20 && moved < int(count)/2 {
		t.Errorf("in %d runs of %d labs workers have got other parts", moved, count)
	}
}

// dealOften lets a lab in parts look often, or rather often, for workers that have less to do than others.
func dealOften(p *Parts, seed uint64) {
	p.deal.every = 1 << (4 + seed%8)
	p.deal.next = p.deal.every
}

// randomParts puts nodes into parts, of which there are up to as many as nodes, and none is empty.
func randomParts(r prng.Stream, nodes int) []int {
	of := make([]int, nodes)
	if count := 1 + r.IntN(nodes); count > 1 {
		for i, node := range r.Perm(nodes) {
			if of[node] = i; i >= count {
				of[node] = r.IntN(count)
			}
		}
	}
	return of
}
