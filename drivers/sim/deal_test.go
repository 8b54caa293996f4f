// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/wire"
)

// TestDeal: parts go to other workers where that leaves the busiest one a ninth less to do, and stay where not.
func TestDeal(t *testing.T) {
	for _, c := range []struct {
		name    string
		workers int
		loads   []uint64
		want    []int // nil: as it is
	}{
		{"even", 2, []uint64{5, 5, 5, 5}, nil},
		{"one half", 2, []uint64{8, 8, 0, 0}, []int{0, 1, 1, 1}},
		{"about even", 2, []uint64{10, 9, 8, 9}, nil},
		{"one part has it all", 2, []uint64{0, 100, 0, 0}, nil},
		{"nothing", 3, []uint64{0, 0, 0}, nil},
		{"one worker", 1, []uint64{1, 2, 3}, nil},
		{"three workers", 3, []uint64{6, 6, 6, 0, 0, 0}, []int{0, 2, 1, 1, 2, 2}},
	} {
		d := newDeal(len(c.loads), c.workers)
		var parts []*Net
		for _, l := range c.loads {
			parts = append(parts, &Net{stats: Stats{Events: l}})
		}
		if got := d.look(parts); c.want == nil && got != nil || c.want != nil && (d.most(c.loads, got) != d.most(c.loads, c.want)) {
			t.Errorf("%s: workers %v, want as good as %v", c.name, got, c.want)
		}
		if got := d.look(parts); got != nil {
			t.Errorf("%s: nothing has happened since, and workers are %v", c.name, got)
		}
	}
}

// TestDealRandom: a second deal is never worse for the busiest worker, and never above the bound of the rule.
func TestDealRandom(t *testing.T) {
	r := prng.New(7)
	for range 500 {
		count := 1 + r.IntN(20)
		d := newDeal(count, 1+r.IntN(8))
		loads, parts := make([]uint64, count), make([]*Net, count)
		sum := uint64(0)
		for i := range loads {
			loads[i] = uint64(r.IntN(1000) * r.IntN(2))
			parts[i] = &Net{stats: Stats{Events: loads[i]}}
			sum += loads[i]
		}
		before := d.most(loads, d.worker)
		worker := d.look(parts)
		if worker == nil {
			continue
		}
		after := d.most(loads, worker)
		if bound := sum/uint64(len(d.shares)) + slices.Max(loads); after >= before || after > bound {
			t.Errorf("loads %v: the busiest of %d workers had %d, and has %d; at most %d", loads, len(d.shares), before, after, bound)
		}
	}
}

// TestDealLevel: frames that wait are spread over the pools, and none is lost.
func TestDealLevel(t *testing.T) {
	d := newDeal(3, 3)
	var frames []*wire.Frame
	for range 300 {
		frames = append(frames, d.pools[1].Get())
	}
	for _, f := range frames {
		d.pools[1].Put(f)
	}
	before := d.pools[1].Free()
	d.level()
	sum := 0
	for w := range d.pools {
		n := d.pools[w].Free()
		if sum += n; n < before/3 {
			t.Errorf("pool %d has %d of %d frames", w, n, before)
		}
	}
	if sum != before {
		t.Errorf("%d frames, %d before", sum, before)
	}
}

// most returns the load of the busiest worker.
func (d *deal) most(loads []uint64, worker []int) uint64 {
	has := make([]uint64, len(d.shares))
	for i, w := range worker {
		has[w] += loads[i]
	}
	return slices.Max(has)
}
