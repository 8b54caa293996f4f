// SPDX-License-Identifier: Apache-2.0

package manycast_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/manycast"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// TestReplacedDraws: sources stay, of each group as many leave as join, and the first iteration is as without.
func TestReplacedDraws(t *testing.T) {
	for _, perSource := range []bool{false, true} {
		p := manycast.Params{Sources: 9, Members: 13, Seed: 5, PerSource: perSource}
		sources, was := p.Draw(0, 128)
		for _, p.Replace = range []int{1, 6, 13} {
			before := was
			for i := range 6 {
				again, now := p.Draw(i, 128)
				if !slices.Equal(again, sources) {
					t.Fatalf("iteration %d: sources %v became %v", i, sources, again)
				}
				for g := range now {
					gone := 0
					for _, h := range before[g] {
						if !slices.Contains(now[g], h) {
							gone++
						}
					}
					want := p.Replace
					if i == 0 {
						want = 0
					}
					if gone != want || len(now[g]) != 13 || !slices.IsSorted(now[g]) || len(slices.Compact(slices.Clone(now[g]))) != 13 {
						t.Fatalf("%d to be replaced, iteration %d, group %d: %v became %v", p.Replace, i, g, before[g], now[g])
					}
					if !perSource && !slices.Equal(now[g], now[0]) {
						t.Fatalf("iteration %d: a shared group is %v and %v", i, now[0], now[g])
					}
				}
				before = now
			}
		}
	}
}

// TestReplaced (CYC-14): members that join get every message once and those that have left none, by each scheme,
// with the invariants checked. The entries that change from one iteration to the next are those in which the trees
// of the groups before and after differ.
func TestReplaced(t *testing.T) {
	for _, perSource := range []bool{false, true} {
		c := sim.Config{Spec: simlab.NTree(t, 4, 3, true, &virtswitch.InputConfig{})}
		c.Check = true
		p := manycast.Params{M: 4, N: 3, Sizes: []int{5000}, Sources: 5, Members: 6, Replace: 2, PerSource: perSource, Iterations: 4, Seed: 11}
		castExactly(t, c, p)
		rows, _ := cast(t, c, p, manycast.App{})
		for _, row := range rows {
			got := apps.DetailsOf[manycast.Spread](row).Updates
			switch row.Scheme {
			case manycast.Unicast:
				if got != 0 {
					t.Errorf("unicast changes %v entries", got)
				}
			case manycast.Cyclic, manycast.CyclicClass, manycast.OpenSM:
				if want := updates(t, c.Graph, &p, row.Scheme); want == 0 || math.Abs(got-want) > 1e-9 {
					t.Errorf("%s, each its own group %v: %v entries change, want %v", row.Scheme, perSource, got, want)
				}
			}
		}
	}
}

// updates returns the mean number of entries that differ between the trees of an iteration and the next.
func updates(t *testing.T, g *topo.Graph, p *manycast.Params, scheme string) (mean float64) {
	t.Helper()
	x := g.NTree()
	var before map[string]string
	for k := range p.Iterations {
		now := map[string]string{}
		sources, groups := p.Draw(k, g.Hosts)
		for i, src := range sources {
			var tree []wire.MulticastEntry
			var err error
			name := fmt.Sprint(src)
			switch scheme {
			case manycast.Cyclic:
				tree, err = g.CyclicTree(src, groups[i])
			case manycast.CyclicClass:
				if tree, err = g.ClassTree(x.Class(src), groups[i]); !p.PerSource {
					name = fmt.Sprint("class ", x.Class(src))
				}
			default:
				senders := sources
				if p.PerSource {
					senders = []int{src}
				} else {
					name = "one"
				}
				tree, err = g.SpanningTree(groups[i], senders, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range tree {
				now[fmt.Sprintf("%s at %d", name, b.Switch)] = fmt.Sprint(b.Ports, b.From)
			}
		}
		if k > 0 {
			for at, b := range now {
				if before[at] != b {
					mean += 1 / float64(p.Iterations-1)
				}
			}
			for at := range before {
				if now[at] == "" {
					mean += 1 / float64(p.Iterations-1)
				}
			}
		}
		before = now
	}
	return mean
}
