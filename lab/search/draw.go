// SPDX-License-Identifier: Apache-2.0

package search

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
)

// Bounds of the searched values, so that a seed takes milliseconds.
const (
	sizeMax      = lab.Size(64 << 10)
	iterationMax = 2
	faultsMax    = 4
)

// Small returns the lab as it is searched: without faults and expectations of its own,
// with messages of 64 KiB at the most, each measured twice at the most.
func Small(l *lab.Lab) (*lab.Lab, error) {
	s, err := copyOf(l)
	if err != nil {
		return nil, err
	}
	s.Faults, s.Expect = nil, nil
	for i := range s.Workloads {
		if b := s.Workloads[i].Bcast; b != nil {
			b.Sizes, b.WarmUp, b.Iterations = capSizes(b.Sizes), 0, capIterations(b.Iterations)
		}
		if a := s.Workloads[i].Allgather; a != nil {
			a.Sizes, a.WarmUp, a.Iterations = capSizes(a.Sizes), 0, capIterations(a.Iterations)
		}
	}
	return copyOf(s)
}

func capSizes(all []lab.Size) (capped []lab.Size) {
	for _, s := range all {
		if s = min(s, sizeMax); len(capped) == 0 || capped[len(capped)-1] != s {
			capped = append(capped, s)
		}
	}
	return capped
}

func capIterations(n lab.Iterations) lab.Iterations {
	if n == 0 {
		return iterationMax
	}
	return min(n, iterationMax)
}

// copyOf returns a copy that shares nothing.
func copyOf(l *lab.Lab) (*lab.Lab, error) {
	c, err := lab.Parse("copy", l.Compact())
	if err != nil {
		return nil, fmt.Errorf("copy the lab: %w", err)
	}
	return c, nil
}

// drawing is a timeline that is being drawn.
type drawing struct {
	r    prng.Stream
	g    *topo.Graph
	span vtime.Duration
}

// Draw returns the lab with the timeline of a seed, within the given span of lab time. In half
// of the seeds at least two kinds of fault overlap; overlap is true for these.
func Draw(l *lab.Lab, seed uint64, span vtime.Duration) (faulty *lab.Lab, overlap bool, err error) {
	g, err := labspec.Graph(l)
	if err != nil {
		return nil, false, err
	}
	root := prng.New(seed)
	d := drawing{root.Derive("timeline"), g, span}
	c, err := copyOf(l)
	if err != nil {
		return nil, false, err
	}
	overlap = seed%2 == 1
	kinds := slices.DeleteFunc(faults.Kinds(), faults.Kind.OfControl) // a simulation has no controllers
	first := kinds[d.r.IntN(len(kinds))]
	at, long := d.window()
	var entries []string
	entries = append(entries, d.entry(first, at, long))
	if overlap {
		second := kinds[d.r.IntN(len(kinds))]
		for second == first {
			second = kinds[d.r.IntN(len(kinds))]
		}
		entries = append(entries, d.entry(second, at+vtime.Duration(d.r.Float64()*0.9*float64(long)), long/2+1000))
	}
	for len(entries) < faultsMax && d.r.Chance(0.4) {
		at, long := d.window()
		entries = append(entries, d.entry(kinds[d.r.IntN(len(kinds))], at, long))
	}
	for _, e := range entries {
		f, err := l.ParseFault(e)
		if err != nil {
			return nil, false, fmt.Errorf("seed %d draws %s: %w", seed, e, err)
		}
		f.In = lab.FaultInRun // the search takes all faults away at once
		c.Faults = append(c.Faults, *f)
	}
	return c, overlap, nil
}

// window returns when a fault begins, and for how long it is on.
func (d *drawing) window() (at, long vtime.Duration) {
	at = vtime.Duration(d.r.Float64() * float64(d.span))
	long = vtime.Duration(math.Pow(10, -2*d.r.Float64()) * float64(d.span))
	return at, max(long, 1000)
}

// entry returns a fault as a lab file has it.
func (d *drawing) entry(k faults.Kind, at, long vtime.Duration) string {
	e := fmt.Sprintf("{at: %v, %s: {%s}", at, k, strings.Join(d.settings(k), ", "))
	if k.Lasts() {
		e += fmt.Sprintf(", for: %v", long)
	}
	// Storms that come again before the last pause has run out keep frames in queues for ever.
	if d.r.Chance(0.2) && k != faults.KindPauseStorm {
		e += fmt.Sprintf(", every: %v", long*vtime.Duration(2+d.r.IntN(3)))
	}
	if d.r.Chance(0.1) {
		e += fmt.Sprintf(", probability: %.2f", 0.2+0.7*d.r.Float64())
	}
	return e + "}"
}

// settings returns the keys of a kind.
func (d *drawing) settings(k faults.Kind) (in []string) {
	switch {
	case k == faults.KindDelay:
		return append(in, d.links(), fmt.Sprintf("delay: %v", d.some(20*vtime.Microsecond)), fmt.Sprintf("jitter: %v", d.some(5*vtime.Microsecond)))
	case k.OfFrames():
		in = append(in, d.links())
		if d.r.Chance(0.3) {
			in = append(in, "frames: {kind: "+faults.Classes()[d.r.IntN(6)]+"}")
		}
		switch n := d.r.IntN(4); {
		case n == 0:
			return append(in, fmt.Sprintf("nth: [%d, %d]", 1+d.r.IntN(5), 1+d.r.IntN(50)))
		case n == 1 && k == faults.KindLoss:
			return append(in, fmt.Sprintf("gilbert-elliott: {to-bad: %.3f, to-good: %.3f}", 0.05*d.r.Float64(), 0.1+0.8*d.r.Float64()))
		}
		return append(in, fmt.Sprintf("rate: %.5f", math.Pow(10, -0.5-3*d.r.Float64())))
	case k == faults.KindRateCut:
		return append(in, d.links(), fmt.Sprintf("rate: %dGbps", 1+d.r.IntN(40)))
	case k == faults.KindLinkDown:
		return append(in, "links: "+d.g.LinkName(d.r.IntN(len(d.g.Links))))
	case k == faults.KindPause:
		return append(in, "node: "+d.host())
	case k == faults.KindPauseStorm:
		return append(in, "node: "+d.host(), fmt.Sprintf("gap: %v", d.some(20*vtime.Microsecond)))
	case k.Kills(), k == faults.KindRestart:
		if d.r.Chance(0.3) {
			return append(in, "nodes: "+d.host())
		}
		return append(in, "nodes: "+d.sw())
	case k == faults.KindWipe:
		return append(in, "nodes: "+d.sw())
	case k == faults.KindRoom:
		return append(in, "nodes: "+d.sw(), fmt.Sprintf("room: %d", d.r.IntN(2)))
	case k == faults.KindStall:
		return append(in, "nodes: "+d.host())
	}
	return append(in, "nodes: "+d.host(), fmt.Sprintf("rate: %dGbps", 1+d.r.IntN(20)))
}

func (d *drawing) some(most vtime.Duration) vtime.Duration {
	return vtime.Nanosecond + vtime.Duration(d.r.Float64()*float64(most))
}

func (d *drawing) links() string {
	if d.r.Chance(0.3) {
		return `links: "*"`
	}
	return "links: " + d.g.LinkName(d.r.IntN(len(d.g.Links)))
}

func (d *drawing) host() string { return d.g.Nodes[d.r.IntN(d.g.Hosts)].Name }

func (d *drawing) sw() string { return d.g.Nodes[d.g.Hosts+d.r.IntN(d.g.Switches())].Name }
