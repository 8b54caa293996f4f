// SPDX-License-Identifier: Apache-2.0

package fallback_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// oneCause is a run of some messages in which one fault occurs, drawn by seed.
type oneCause struct {
	*safe
	kind      faults.Kind
	from, end vtime.Duration // of the fault; from = end: it only happens
	text      string
}

// drawCause draws a fabric, messages and a fault.
func drawCause(t testing.TB, seed uint64) *oneCause {
	r := rand.New(rand.NewPCG(seed, 46))
	var g *topo.Graph
	var err error
	leaves := 2 + r.IntN(2)
	shape := topo.LeafSpineSpec{Leaves: leaves, Spines: 2, Hosts: 1 + r.IntN(3)}
	if r.IntN(3) == 0 {
		shape = topo.LeafSpineSpec{Leaves: 1, Spines: 1, Hosts: 3 + r.IntN(4)}
	}
	g, err = topo.LeafSpine(shape, safeLink)
	c := &oneCause{safe: newSafe(t, g, err, 12+r.IntN(20), 0)}
	c.seed = seed
	c.mode = []string{collective.FallbackFull, collective.FallbackPartial}[r.IntN(2)]
	c.memory = []rank.MemoryKind{rank.MemoryBytes, rank.MemoryHashed, rank.MemoryPhantom}[r.IntN(3)]
	c.params.MTU = 1024 << r.IntN(3)
	c.pause = vtime.Duration(r.IntN(2000)) * vtime.Microsecond
	size, one := 1+r.IntN(300_000), r.IntN(2) == 0
	moves := r.IntN(2) == 0
	for i := range c.sizes {
		c.sizes[i] = size
		if !one {
			c.sizes[i] = r.IntN(200_000)
		}
		root := 0
		if moves {
			root = r.IntN(g.Hosts)
		}
		c.roots = append(c.roots, root)
	}
	c.drawFault(r)
	c.text = fmt.Sprintf("seed %d: %+v, %s, %v, MTU %d, %d messages of %d, %s at %v to %v, roots %v",
		seed, shape, c.mode, c.memory, c.params.MTU, len(c.sizes), c.sizes[0], c.kind, c.from, c.end, c.roots)
	return c
}

// drawFault draws a fault.
func (c *oneCause) drawFault(r *rand.Rand) {
	g := c.graph
	c.from = vtime.Duration(r.IntN(6000)) * vtime.Microsecond
	kinds := []faults.Kind{faults.KindLoss, faults.KindRateCut, faults.KindSlowReceiver, faults.KindWipe, faults.KindStall, faults.KindLinkDown, faults.KindCrash, faults.KindRoom}
	c.kind = kinds[r.IntN(len(kinds))]
	host := g.Nodes[r.IntN(g.Hosts)].Name
	h, _ := g.Find(host)
	where := g.Nodes[g.Peer(h, 0).Node].Name + "-" + host
	f := faults.Spec{Kind: c.kind}
	lasts := vtime.Duration(1+r.IntN(25)) * vtime.Millisecond
	switch c.kind {
	case faults.KindLoss:
		f.Frames.Loss = 0.03 + 0.2*r.Float64()
	case faults.KindRateCut:
		f.Rate = int64(0.4e9 + 3e9*r.Float64())
	case faults.KindSlowReceiver:
		f.Rate, where = int64(0.4e9+3e9*r.Float64()), host
	case faults.KindWipe:
		lasts, where = 0, g.Nodes[g.Hosts+r.IntN(g.Switches())].Name
	case faults.KindStall:
		lasts, where = vtime.Duration(r.IntN(5000))*vtime.Microsecond, host
	case faults.KindLinkDown:
		lasts = vtime.Duration(1+r.IntN(5000)) * vtime.Microsecond
	case faults.KindCrash:
		lasts, where = vtime.Duration(1+r.IntN(5000))*vtime.Microsecond, g.Nodes[len(g.Nodes)-1].Name
	case faults.KindRoom:
		c.from, where = 0, g.Nodes[g.Hosts].Name
	}
	c.end = c.from + lasts
	f.Window = from(c.from, lasts)
	c.add(f, where)
}

// check runs it and returns the first violation.
func (c *oneCause) check() error {
	if err := c.run(); err != nil {
		return err
	}
	for i, n := range c.got {
		if n != len(c.sizes) {
			return fmt.Errorf("rank %d got %d of %d messages", i, n, len(c.sizes))
		}
	}
	did := c.sum()
	if did.Fallbacks > 1 || len(did.Lost) > 0 {
		return fmt.Errorf("%+v", did)
	}
	for _, e := range c.events {
		if c.end-c.from > 2*vtime.Millisecond && e.Kind == machine.EventReturn && e.Text == "" && vtime.Duration(e.at) < c.end && c.lasting() {
			return fmt.Errorf("back at %v", e.at)
		}
	}
	return nil
}

// lasting reports whether the fault keeps a group from being of any use all the time.
func (c *oneCause) lasting() bool {
	return c.kind == faults.KindRateCut || c.kind == faults.KindSlowReceiver
}

// TestFallbackOncePerCause: whichever single fault occurs, wherever and whenever, all messages reach
// all ranks, the group is left once at most, and not used again before it is over. MCASTLAB_SOAK makes
// it 5,000 seeds.
func TestFallbackOncePerCause(t *testing.T) {
	count := uint64(50)
	if os.Getenv("MCASTLAB_SOAK") != "" {
		count = 5000
	}
	from, count := simlab.Seeds(t, count)
	fell, back := 0, 0
	for seed := from; seed < from+count; seed++ {
		c := drawCause(t, seed)
		if err := c.check(); err != nil {
			t.Errorf("%s: %v; %v (go test ./rank/collective/fallback -run FallbackOncePerCause -from %d -seeds 1)", c.text, err, c.events, seed)
		}
		did := c.sum()
		fell += did.Fallbacks
		back += min(1, did.Returns)
	}
	t.Logf("%d seeds: %d left multicast, %d came back", count, fell, back)
	if count >= 50 && (fell < int(count)/4 || back < int(count)/8) {
		t.Errorf("only %d of %d seeds left multicast, and %d came back", fell, count, back)
	}
}

// TestFallbackPartialSweep: one member crawls, by any factor and for any reason. Once it is served apart and the others
// have a tree of their own, they have messages at most 5 % later than without the fault. MCASTLAB_SOAK makes it 1,000
// seeds.
func TestFallbackPartialSweep(t *testing.T) {
	count := uint64(10)
	if os.Getenv("MCASTLAB_SOAK") != "" {
		count = 1000
	}
	first, count := simlab.Seeds(t, count)
	apart, worst := 0, 0.0
	for seed := first; seed < first+count; seed++ {
		r := rand.New(rand.NewPCG(seed, 47))
		g, err := safeFabric()
		size, victim := 50_000+r.IntN(300_000), 1+r.IntN(5)
		healthy := newSafe(t, g, err, 3, size)
		healthy.mode = collective.FallbackPartial
		healthy.must()
		s := newSafe(t, g, err, 14, size)
		s.mode, s.seed = collective.FallbackPartial, seed
		host := g.Nodes[victim].Name
		link := g.Nodes[g.Peer(victim, 0).Node].Name + "-" + host
		rate := int64(0.2e9 + 2.5e9*r.Float64())
		f := []faults.Spec{
			{Kind: faults.KindSlowReceiver, Rate: rate}, {Kind: faults.KindRateCut, Rate: rate},
			{Kind: faults.KindLoss, Frames: faults.Impairment{Loss: 0.05 + 0.1*r.Float64()}},
		}[r.IntN(3)]
		f.Window = from(vtime.Duration(r.IntN(500))*vtime.Microsecond, 0)
		s.add(f, map[bool]string{true: link, false: host}[f.Kind.OfLinks()])
		did := s.must()
		if did.Fallbacks > 1 || len(did.Lost) > 0 {
			t.Errorf("seed %d, %s, %d: %+v %v", seed, f.Kind, rate, did, s.events)
		}
		served, from := false, vtime.Never
		for _, e := range s.events {
			if e.Kind == machine.EventReturn {
				from = min(from, e.at) // the others have a tree of their own
			}
		}
		for m := range s.sizes {
			late := s.late(healthy, m, victim)
			if !s.apart[m][victim] || s.began[m] < from {
				continue
			}
			served = true
			if late > 1.05 {
				t.Errorf("seed %d: with %s at %s message %d of %d bytes took %.3f times as long (-from %d -seeds 1)", seed, f.Kind, host, m, size, late, seed)
			}
			worst = max(worst, late)
		}
		if served {
			apart++
		}
	}
	t.Logf("%d of %d seeds served a member apart; others had messages after at most %.4f times as long", apart, count, worst)
	if count >= 10 && apart < int(count)*2/3 {
		t.Errorf("only %d of %d seeds served a member apart", apart, count)
	}
}

// late returns the largest ratio of message times to those of another run, over all ranks but one.
func (s *safe) late(healthy *safe, m, but int) (worst float64) {
	for i := range s.at[m] {
		if i != but && i > 0 {
			worst = max(worst, float64(s.at[m][i])/float64(healthy.at[2][i]))
		}
	}
	return worst
}
