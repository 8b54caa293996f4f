// SPDX-License-Identifier: Apache-2.0

package virtswitch_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// The registrar's patience in these tests, and how long routes take to change everywhere:
// several rounds of both fit into each other.
const (
	treeRetry      = 60 * vtime.Microsecond
	treeReconverge = 25 * vtime.Microsecond
	treeRetries    = 8
)

// treeLab is a fabric and a group of all its hosts, which the first one leads.
type treeLab struct {
	name  string
	graph *topo.Graph
}

// byHand returns the graph of links like "a-s"; nodes with names from a to h are hosts.
func byHand(links string) (*topo.Graph, error) {
	var nodes []topo.CustomNode
	var all []topo.CustomLink
	for _, l := range strings.Fields(links) {
		a, b, _ := strings.Cut(l, "-")
		all = append(all, topo.CustomLink{A: a, B: b, PortA: -1, PortB: -1, Params: simlab.Link()})
		for _, name := range []string{a, b} {
			n := topo.CustomNode{Name: name, Kind: topo.Switch}
			if name[0] <= 'h' {
				n.Kind = topo.Host
			}
			if !slices.Contains(nodes, n) {
				nodes = append(nodes, n)
			}
		}
	}
	slices.SortStableFunc(nodes, func(a, b topo.CustomNode) int { return strings.Compare(a.Name, b.Name) })
	return topo.Custom(nodes, all)
}

// treeLabs are fabrics with one way, several equal ways and longer ways between hosts.
func treeLabs(t *testing.T) (all []treeLab) {
	t.Helper()
	for _, c := range []struct {
		name string
		make func() (*topo.Graph, error)
	}{
		{"triangle", func() (*topo.Graph, error) { return byHand("a-s b-s c-t d-u e-u s-t t-u s-u") }},
		{"square", func() (*topo.Graph, error) { return byHand("a-s b-t c-u d-v s-t t-u u-v v-s") }},
		{"diamonds", func() (*topo.Graph, error) {
			return byHand("a-s b-v c-x d-t e-w s-t s-u t-v u-v v-w v-y w-x y-x t-u w-y")
		}},
		{"mesh", func() (*topo.Graph, error) {
			return byHand("a-s b-t c-u d-v e-w s-t s-u s-v s-w t-u t-v t-w u-v u-w v-w")
		}},
		{"leaf-spine", func() (*topo.Graph, error) {
			return topo.LeafSpine(topo.LeafSpineSpec{Leaves: 3, Spines: 2, Hosts: 2}, simlab.Link())
		}},
		{"fat-tree", func() (*topo.Graph, error) { return topo.FatTree(4, simlab.Link()) }},
		{"n-tree", func() (*topo.Graph, error) { return topo.MPortNTree(4, 2, simlab.Link()) }},
	} {
		g, err := c.make()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		all = append(all, treeLab{c.name, g})
	}
	return all
}

// treeRun is one registration while something changes, or several.
type treeRun struct {
	seed   uint64
	late   int // the host that joins when it has been asked once; 0: none
	more   int // groups besides, each led by another host and begun a little later
	faults []faults.Spec
}

// register runs it and returns the leader's last phase, with the reason if the registration failed, or
// a violation in the tree.
func (l *treeLab) register(t *testing.T, r treeRun, look func(n *sim.Net)) (phase mrp.Phase, why, wrong error) {
	t.Helper()
	n, err := sim.New(sim.Config{
		Check: true, NoDigest: true, RetryAfter: treeRetry, RetriesMax: treeRetries,
		Spec: fabric.Spec{Graph: l.graph, Seed: r.seed, Switch: fabric.Switch{Settings: virtswitch.Settings{Buffer: 16 << 20, Rules: virtswitch.RulesFixed()}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if look != nil {
		look(n)
	}
	tl := n.NewTimeline(treeReconverge)
	for _, f := range r.faults {
		tl.Add(0, f)
	}
	l.begin(t, n, 0, 0, 0, r.late)
	n.At(0, func(vtime.Time) {}) // makes the lab look at the leader's packets
	for k := 1; k <= r.more; k++ {
		n.At(vtime.Time(k)*vtime.Time(7*vtime.Microsecond), func(now vtime.Time) { l.begin(t, n, now, k%l.graph.Hosts, k, r.late) })
	}
	if err := n.Drain(); err != nil {
		return mrp.Unknown, nil, err
	}
	phase, why = n.Agent(0).Status(wire.GroupNet | 1)
	return phase, why, nil
}

// begin begins the registration of group k.
func (l *treeLab) begin(t *testing.T, n *sim.Net, now vtime.Time, leader, k, late int) {
	id, qpn := wire.GroupNet|uint32(1+k), func(h int) wire.QPN { return wire.QPN(100 + h + k*64) }
	g := mrp.Group{McstID: id, LeaderQPN: qpn(leader), Activate: true}
	for h := range l.graph.Hosts {
		if h == leader {
			continue
		}
		join := func(vtime.Time) { n.Agent(h).Join(id, qpn(h)) }
		g.Members = append(g.Members, mrp.Member{IP: l.graph.Nodes[h].IP, QPN: qpn(h)})
		if h == late {
			n.At(now.Add(treeRetry/2), join)
		} else {
			join(now)
		}
	}
	if err := n.Agent(leader).Register(now, g); err != nil {
		t.Error(err)
	}
}

// instants returns when registration packets come anywhere if nothing changes.
func (l *treeLab) instants(t *testing.T, late int) (all []vtime.Time) {
	t.Helper()
	phase, why, wrong := l.register(t, treeRun{seed: 1, late: late}, func(n *sim.Net) {
		for id := range n.Ports() {
			n.SetFault(id, simlab.Observer(func(now vtime.Time, _ *wire.Frame) { all = append(all, now) }))
		}
	})
	if phase != mrp.Active || wrong != nil {
		t.Fatalf("%s: a registration that nothing disturbs ends in %v, %v, %v", l.name, phase, why, wrong)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// treeChanges are changes, at an instant, of a link between switches or of a switch.
var treeChanges = []struct {
	name string
	of   faults.Kind
	make func(at vtime.Time) faults.Window
}{
	{"down", faults.KindLinkDown, func(at vtime.Time) faults.Window { return faults.Window{From: at} }},
	{"up", faults.KindLinkDown, func(at vtime.Time) faults.Window { return faults.Window{For: vtime.Duration(at)} }},
	{"flap", faults.KindLinkDown, func(at vtime.Time) faults.Window { return faults.Window{From: at, For: 3 * vtime.Microsecond} }},
	{"outage", faults.KindLinkDown, func(at vtime.Time) faults.Window { return faults.Window{From: at, For: 40 * vtime.Microsecond} }},
	{"flapping", faults.KindLinkDown, func(at vtime.Time) faults.Window {
		return faults.Window{From: at, For: 30 * vtime.Microsecond, Every: 70 * vtime.Microsecond}
	}},
	{"crash", faults.KindCrash, func(at vtime.Time) faults.Window { return faults.Window{From: at, For: 35 * vtime.Microsecond} }},
	{"agent crash", faults.KindAgentCrash, func(at vtime.Time) faults.Window { return faults.Window{From: at, For: 35 * vtime.Microsecond} }},
	{"restart", faults.KindRestart, func(at vtime.Time) faults.Window { return faults.Window{From: at} }},
	{"wipe", faults.KindWipe, func(at vtime.Time) faults.Window { return faults.Window{From: at} }},
}

// between returns the links between switches, and the switches.
func (l *treeLab) between() (links, switches []int) {
	g := l.graph
	for i := range g.Links {
		if g.Links[i].A.Node >= g.Hosts && g.Links[i].B.Node >= g.Hosts {
			links = append(links, i)
		}
	}
	for i := g.Hosts; i < len(g.Nodes); i++ {
		switches = append(switches, i)
	}
	return links, switches
}

// TestTreeWhateverChanges: whatever link goes down, comes up or flaps, and whatever switch crashes, a
// picosecond before or after a registration packet comes anywhere or at the same instant, the installed
// entries finally are a tree, or the registration has failed: because a member had no route, or because
// a switch has lost its state.
func TestTreeWhateverChanges(t *testing.T) {
	runs, most := 0, 700 // of a fabric
	if testing.Short() {
		most = 150
	}
	ended := map[string]map[mrp.Phase]int{}
	for _, l := range treeLabs(t) {
		r := rand.New(rand.NewPCG(4, 4))
		links, switches := l.between()
		late := l.graph.Hosts - 1
		var all []treeRun
		var names []string
		for _, at := range l.instants(t, late) {
			for _, step := range []vtime.Time{-1, 0, 1} {
				for _, c := range treeChanges {
					where := links
					if !c.of.OfLinks() {
						where = switches
					}
					for _, w := range where {
						f := faults.Spec{ID: "change", Kind: c.of, Window: c.make(at + step)}
						if c.of.OfLinks() {
							f.Links = []int{w}
						} else {
							f.Nodes = []int{w}
						}
						all = append(all, treeRun{seed: 1, late: late, faults: []faults.Spec{f}})
						names = append(names, c.name)
					}
				}
			}
		}
		order := r.Perm(len(all))
		for _, i := range order[:min(most, len(order))] {
			runs++
			f := all[i].faults[0]
			phase, why, wrong := l.register(t, all[i], nil)
			if wrong != nil || phase != mrp.Active && phase != mrp.Failed {
				t.Errorf("%s, %s of link %v or switch %v at %v: %v, %v", l.name, names[i], f.Links, f.Nodes, f.From, phase, wrong)
			}
			if phase == mrp.Failed && f.Kind.OfLinks() && !strings.HasSuffix(why.Error(), wire.MRPErrNoRoute.String()) {
				t.Errorf("%s, %s of link %v at %v: %v", l.name, names[i], f.Links, f.From, why)
			}
			if ended[names[i]] == nil {
				ended[names[i]] = map[mrp.Phase]int{}
			}
			ended[names[i]][phase]++
		}
		t.Logf("%s: %d of %d", l.name, min(most, len(order)), len(order))
	}
	for _, c := range treeChanges {
		t.Logf("%s: %v", c.name, fmt.Sprint(ended[c.name]))
	}
	t.Logf("%d runs", runs)
}
