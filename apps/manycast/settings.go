// SPDX-License-Identifier: Apache-2.0

package manycast

import (
	"fmt"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/faults"
)

// Settings are the benchmark in a lab file: in each iteration sources and members are drawn
// again, and each source sends one message to all members of its group but itself.
type Settings struct {
	Label      string             `yaml:"label" json:"label,omitzero" doc:"name in reports" default:"many-to-many"`
	Schemes    []setting.Scheme   `yaml:"schemes" json:"schemes,omitzero" doc:"cyclic, a tree per source; cyclic-class, one per group and class of sources; opensm, one per group; opensm-drawn, the same with a random root among equally good ones; unicast" required:"true"`
	Sources    setting.Share      `yaml:"sources" json:"sources,omitzero" doc:"hosts that send: a number, a share such as 40%, or all" default:"all"`
	Group      setting.Share      `yaml:"group" json:"group,omitzero" doc:"hosts of a group: a number, a share or all" default:"all"`
	Groups     string             `yaml:"groups" json:"groups,omitzero" doc:"shared: all sources send to one group; per-source: each to one of its own" default:"shared" enum:"shared,per-source"`
	Replace    *setting.Share     `yaml:"replace" json:"replace,omitzero" doc:"members that leave a group after each iteration, as a number or a share, while as many others join; sources stay; default: sources and members are drawn again"`
	Sizes      []setting.Size     `yaml:"sizes" json:"sizes,omitzero" doc:"message sizes, at most 2GiB" required:"true"`
	Iterations setting.Iterations `yaml:"iterations" json:"iterations,omitzero" doc:"draws of sources and members; auto: 30" default:"auto"`
	Memory     string             `yaml:"memory" json:"memory,omitzero" doc:"bytes: real; phantom: lengths only, nothing is verified; auto: bytes up to 512MiB over all ranks, else phantom" default:"auto" enum:"auto,bytes,phantom"`
}

// groupsPerSource: each source sends to a group of its own.
const groupsPerSource = "per-source"

// drawsDefault is the number of iterations of auto (CYC-20).
const drawsDefault = 30

// App implements apps.Kind.
func (*Settings) App(apps.Env) apps.App { return App{} }

// Prepare implements apps.Kind.
func (w *Settings) Prepare(s *apps.Setup) (apps.Prepared, error) {
	g := s.Graph
	m, n := g.NTree().Shape()
	p := Params{
		Workload: w.Label, Memory: apps.Memory(w.Memory), Seed: s.Seed,
		M: m, N: n, Sources: w.Sources.Of(g.Hosts), Members: w.Group.Of(g.Hosts), Iterations: int(w.Iterations), PerSource: w.Groups == groupsPerSource,
	}
	if w.Replace != nil {
		p.Replace = w.Replace.Of(p.Members)
	}
	if p.Iterations == 0 {
		p.Iterations = drawsDefault
	}
	for _, s := range w.Schemes {
		p.Schemes = append(p.Schemes, Scheme{Label: s.Label, Name: s.Name})
	}
	for _, s := range w.Sizes {
		p.Sizes = append(p.Sizes, int(s))
	}
	hosts := make([]int, g.Hosts)
	for h := range hosts {
		hosts[h] = h
	}
	return apps.Prepared{Input: p, Hosts: hosts, Steps: len(p.Schemes) * len(p.Sizes) * p.Iterations}, nil
}

// Check implements apps.Kind.
func (w *Settings) Check(c *setting.Checker, p string) {
	c.Label(p, w.Label)
	t := c.Graph.NTree()
	if t == nil {
		c.Failf(p, "many-to-many goes by the LIDs of an m-port n-tree, and this is none: write topology: {m-port-n-tree: {m: 8, n: 3}}")
		return
	}
	if _, err := t.LIDs(); err != nil {
		c.Failf("topology", "many-to-many goes by LIDs, and %v", err)
		return
	}
	for _, x := range []struct {
		name string
		of   setting.Share
	}{{"sources", w.Sources}, {"group", w.Group}} {
		if n := x.of.Of(c.Graph.Hosts); n > c.Graph.Hosts {
			c.Failf(p+"."+x.name, "%s of %d hosts: the lab has %d", x.name, n, c.Graph.Hosts)
		}
	}
	if w.Replace != nil {
		n, members := w.Replace.Of(w.Group.Of(c.Graph.Hosts)), w.Group.Of(c.Graph.Hosts)
		if n > members || n > c.Graph.Hosts-members {
			c.Failf(p+".replace", "%v of a group of %d: %d members leave and as many others join, and the lab has %d hosts "+
				"that are no members: use fewer, or a smaller group",
				w.Replace, members, n, max(0, c.Graph.Hosts-members))
		}
	}
	c.Sizes(p, w.Sizes, 0, 1)
	c.Schemes(p, setting.Algorithms{Kind: Name, Names: Names()}, w.Schemes, w.Sizes)
	checkNothingLost(c, p)
	if n := c.Outside(setting.Hosts(nil).Resolve(c.Graph)); len(n) > 0 {
		c.Failf(p, "many-to-many needs every host to run a program, and %s is external", n[0])
	}
}

// checkNothingLost makes sure that no packet is lost on purpose: unreliable messages are not sent
// again, and a rank that waits for a lost one waits for ever.
func checkNothingLost(c *setting.Checker, p string) {
	if !c.Lossless {
		c.Failf("switches.pfc", "many-to-many sends unreliable messages, and switches drop packets of priority %d when they are full: "+
			"write pfc: {priorities: [%d]}", c.Priority, c.Priority)
	}
	for i, k := range c.Faults {
		switch k {
		case faults.KindRateCut, faults.KindPause, faults.KindPauseStorm, faults.KindStall, faults.KindSlowReceiver: // nothing is lost
		default:
			c.Failf(fmt.Sprintf("faults[%d]", i), "many-to-many sends unreliable messages, of which a packet that is lost or late ends one for good: "+
				"leave the fault %s out, or %s", k, p)
		}
	}
}

// Links implements apps.Kind: it runs on no wall clock.
func (w *Settings) Links(*topo.Graph, int, *apps.Row) int { return 0 }

// Only implements apps.Kind.
func (w *Settings) Only(*apps.Row) apps.Kind { return nil }

// WhySimOnly implements apps.SimOnly.
func (w *Settings) WhySimOnly() string {
	return "runs in virtual time only, where multicast tables are filled and hosts have LIDs"
}

// SchemeNames implements apps.Schemed.
func (*Settings) SchemeNames(string) []string { return Names() }

// Quantities implements apps.Measurer.
func (*Settings) Quantities() map[string][]string {
	return map[string][]string{"latency": apps.Statistics(), "goodput": apps.Statistics()}
}
