// SPDX-License-Identifier: Apache-2.0

package virtswitch_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// randomFabric returns a connected graph of two to eight switches and as many hosts.
func randomFabric(r *rand.Rand) (links string) {
	const hosts, switches = "abcdefgh", "stuvwxyz"
	n := 2 + r.IntN(7)
	join := map[string]bool{}
	add := func(a, b byte) {
		if l := fmt.Sprintf("%c-%c", min(a, b), max(a, b)); a != b && !join[l] {
			join[l] = true
			links += " " + l
		}
	}
	for i := 1; i < n; i++ {
		add(switches[i], switches[r.IntN(i)])
	}
	for range r.IntN(2 * n) {
		add(switches[r.IntN(n)], switches[r.IntN(n)])
	}
	for h := range 2 + r.IntN(7) {
		add(hosts[h], switches[r.IntN(n)])
	}
	return links
}

// randomChanges returns up to six changes of links and switches, and frames that are lost,
// come twice or pass each other.
func randomChanges(r *rand.Rand, l *treeLab) (all []faults.Spec) {
	links, switches := l.between()
	for k := range r.IntN(7) {
		at := vtime.Time(r.Int64N(int64(300 * vtime.Microsecond)))
		if r.IntN(3) == 0 {
			at = vtime.Time(r.IntN(40)) * vtime.Time(vtime.Microsecond)
		}
		// What a switch forgets may leave holes, which the checker then does not look for.
		c := treeChanges[r.IntN(len(treeChanges)-3)]
		if r.IntN(20) == 0 {
			c = treeChanges[r.IntN(len(treeChanges))]
		}
		f := faults.Spec{ID: fmt.Sprint("change", k), Kind: c.of, Window: c.make(at)}
		if c.of.OfLinks() {
			f.Links = []int{links[r.IntN(len(links))]}
		} else {
			f.Nodes = []int{switches[r.IntN(len(switches))]}
		}
		all = append(all, f)
	}
	if r.IntN(2) == 0 {
		var ends []topo.End
		for _, x := range l.graph.Links {
			ends = append(ends, x.A, x.B)
		}
		all = append(all, faults.Spec{ID: "frames", Kind: faults.KindReorder, Ends: ends, Frames: faults.Impairment{
			Loss: 0.2 * r.Float64(), Duplicate: 0.5 * r.Float64(), Reorder: 0.5 * r.Float64(), Delay: 30 * vtime.Microsecond,
		}})
	}
	return all
}

// TestTreeCarriesOnce: a registration whose last member answers late is repeated after a link has
// failed, and again when it is back. Each packet of a message then takes each link of the tree once.
func TestTreeCarriesOnce(t *testing.T) {
	const packets = 20
	for _, l := range treeLabs(t) {
		links, _ := l.between()
		for _, down := range links {
			n, err := sim.New(sim.Config{Check: true, Spec: simlab.Plain(l.graph), RetryAfter: treeRetry, RetriesMax: treeRetries})
			if err != nil {
				t.Fatal(err)
			}
			seen := 0
			for i := range l.graph.Nodes {
				for p := range l.graph.Nodes[i].Links {
					n.SetTap(i, p, func(_ vtime.Time, f *wire.Frame) {
						if simlab.IsData(f) {
							seen++
						}
					})
				}
			}
			tl := n.NewTimeline(treeReconverge)
			tl.Add(0, faults.Spec{ID: "stall", Kind: faults.KindStall, Nodes: []int{l.graph.Hosts - 1}, Window: faults.Window{For: treeRetry * 5 / 2}})
			tl.Add(0, faults.Spec{ID: "down", Kind: faults.KindLinkDown, Links: []int{down}, Window: faults.Window{
				From: vtime.Time(10 * vtime.Microsecond), For: treeRetry * 3 / 2,
			}})
			program := simlab.Broadcasts(1024, simlab.Message{From: 0, Packets: packets})
			if err := n.Run(sim.Job{Name: "once", Hosts: simlab.Hosts(l.graph), Params: simlab.Params(), Keep: true, Program: program}); err != nil {
				t.Fatal(err)
			}
			if err := n.Leftover(); err != nil {
				t.Error(err)
			}
			tree := treeLinks(n, wire.GroupNet|1, l.graph.Peer(0, 0))
			if seen != 2*packets*tree { // a tap at each end of a link
				t.Errorf("%s without %s: %d packets made %d hops on a tree of %d links", l.name, l.graph.LinkName(down), packets, seen/2, tree)
			}
		}
	}
}

// treeLinks returns the number of links of a group's tree that are reached over a link which
// ends at the given port, that link included.
func treeLinks(n *sim.Net, group uint32, at topo.End) (links int) {
	links = 1
	var g virtswitch.GroupState
	if sw := n.Switch(at.Node); sw == nil || !sw.ReadGroup(group, &g) {
		return links
	}
	for _, p := range g.Paths {
		if p.Port != at.Port {
			links += treeLinks(n, group, n.Graph().Peer(at.Node, p.Port))
		}
	}
	return links
}

// TestTreeOnRandomGraphs: on any graph, with whatever changes and is lost, three groups are
// trees or have failed. Where nothing changes and nothing is lost none fails.
func TestTreeOnRandomGraphs(t *testing.T) {
	seeds := uint64(1500)
	if testing.Short() {
		seeds = 300
	}
	all := []uint64{13217} // two ways meet in one attempt, with routes that no switch of both has seen change
	for seed := range seeds {
		all = append(all, seed)
	}
	ended := map[mrp.Phase]int{}
	for _, seed := range all {
		r := rand.New(rand.NewPCG(seed, 50))
		links := randomFabric(r)
		g, err := byHand(strings.TrimSpace(links))
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, links, err)
		}
		l := treeLab{links, g}
		run := treeRun{seed: seed, late: r.IntN(g.Hosts), more: 2, faults: randomChanges(r, &l)}
		if seed%8 == 0 {
			run.faults = nil
		}
		phase, why, wrong := l.register(t, run, nil)
		ended[phase]++
		if wrong != nil || phase != mrp.Active && phase != mrp.Failed || phase == mrp.Failed && run.faults == nil {
			t.Errorf("seed %d: %s with %d changes: %v, %v, %v", seed, links, len(run.faults), phase, why, wrong)
		}
	}
	t.Log(ended)
	if ended[mrp.Active] < int(seeds)/2 || ended[mrp.Failed] == 0 {
		t.Errorf("registrations end %v: too few that succeed, or none that fail", ended)
	}
}
