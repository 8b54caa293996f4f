// SPDX-License-Identifier: Apache-2.0

package bcast

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// Settings are the broadcast benchmark in a lab file.
type Settings struct {
	Label      string             `yaml:"label" json:"label,omitzero" doc:"name in reports" default:"bcast"`
	Schemes    []setting.Scheme   `yaml:"schemes" json:"schemes,omitzero" doc:"algorithms" required:"true"`
	Root       string             `yaml:"root" json:"root,omitzero" doc:"host that sends; default: the first rank"`
	Ranks      setting.Hosts      `yaml:"ranks" json:"ranks,omitzero" doc:"hosts that take part: all, or names, patterns and ranges: h3, h*, h0..h7" default:"all"`
	Sizes      []setting.Size     `yaml:"sizes" json:"sizes,omitzero" doc:"message sizes, at most 2GiB" required:"true"`
	Iterations setting.Iterations `yaml:"iterations" json:"iterations,omitzero" doc:"auto: 10 up to 64KiB, 3 up to 1MiB, 1 above" default:"auto"`
	WarmUp     int                `yaml:"warm-up" json:"warmUp,omitzero" doc:"warm-up iterations, not measured" default:"0"`
	Memory     string             `yaml:"memory" json:"memory,omitzero" doc:"bytes: real; hashed: a running hash instead (not for uc-multicast); phantom: lengths only, nothing is verified; auto: bytes up to 512MiB over all ranks, else hashed (of uc-multicast: phantom)" default:"auto" enum:"auto,bytes,hashed,phantom"`
	Operation  string             `yaml:"operation" json:"operation,omitzero" doc:"what carries a message: send; or, with an external host among the ranks and scheme cepheus, write: registered WRITEs (docs/writes.md)" default:"send" enum:"send,write"`
	Group      string             `yaml:"group" json:"group,omitzero" doc:"address of the group, 10.254.255.1 to 10.254.255.254 or the same of switches.group-net, of a workload with an external host among the ranks: the same in every run; default: each run takes the next of 10.254.0.1 to 10.254.254.255"`
}

// operationWrite sends by registered WRITEs.
const operationWrite = "write"

// App implements apps.Kind.
func (*Settings) App(e apps.Env) apps.App { return App{Delivered: e.Delivered, Programs: e.Programs} }

// Prepare implements apps.Kind.
func (w *Settings) Prepare(s *apps.Setup) (apps.Prepared, error) {
	g, hosts := s.Graph, w.Ranks.Resolve(s.Graph)
	p := Params{Workload: w.Label, Iterations: int(w.Iterations), WarmUp: w.WarmUp, Memory: apps.Memory(w.Memory), Seed: s.Seed}
	peers := s.Peers(hosts)
	for i, h := range hosts {
		if g.Nodes[h].Name == w.Root {
			p.Root = i
		}
		if peers != nil && peers[i] != nil {
			p.External = append(p.External, g.Nodes[h].Name)
		}
	}
	for _, s := range w.Schemes {
		o := s.Options(len(hosts))
		o.Write = w.Operation == operationWrite
		p.Schemes = append(p.Schemes, Scheme{Label: s.Label, Name: s.Name, Options: o})
	}
	steps := 0
	for _, size := range w.Sizes {
		p.Sizes = append(p.Sizes, int(size))
		steps += len(p.Schemes) * (p.WarmUp + apps.Repeats(p.Iterations, int(size)))
	}
	return apps.Prepared{
		Input: p, Hosts: hosts, Steps: steps, Peers: peers, Root: p.Root, Group: w.NamedGroup(g.Groups), Spare: spareReceivers(&p, len(hosts)),
	}, nil
}

// spareReceivers marks every rank but the root as one that may be lost, if all schemes continue without
// it; else it returns nil.
func spareReceivers(p *Params, ranks int) []bool {
	for _, s := range p.Schemes {
		if s.Options.Fallback == "" || s.Options.Fallback == collective.FallbackOff {
			return nil
		}
	}
	spare := make([]bool, ranks)
	for i := range spare {
		spare[i] = i != p.Root
	}
	return spare
}

// Links implements apps.Kind.
func (w *Settings) Links(g *topo.Graph, mtu int, row *apps.Row) int {
	i := setting.SchemeIndex(w.Schemes, row.Scheme)
	if i < 0 {
		return 0
	}
	if isOwn(w.Schemes[i].Name) {
		return apps.LinksAtMost(g, row)
	}
	s, hosts, root := &w.Schemes[i], w.Ranks.Resolve(g), 0
	for i, h := range hosts {
		if g.Nodes[h].Name == w.Root {
			root = i
		}
	}
	at := func(i int) int { return hosts[(root+i)%len(hosts)] }
	hops := func(a, b int) int { return g.Hops(at(a), at(b)) }
	return collective.CriticalLinks(s.Name, s.Options(len(hosts)), len(hosts), row.SizeBytes, mtu, hops)
}

// Rows implements apps.Rower.
func (w *Settings) Rows() []apps.Row { return apps.RowsOf(w.Schemes, w.Sizes) }

// Only implements apps.Kind.
func (w *Settings) Only(row *apps.Row) apps.Kind {
	one := *w
	if !apps.OnlyRow(&one.Schemes, &one.Sizes, row) {
		return nil
	}
	return &one
}

// Trial implements apps.Trier.
func (w *Settings) Trial(t apps.Trial) (apps.Kind, string) {
	one := *w
	one.Iterations, one.WarmUp, one.Sizes = apps.TrialIterations, 0, t.Sizes
	switch {
	case t.Among != nil:
		one.Ranks, one.Root, one.Schemes = t.Among, t.Among[0], unicast()
		one.Operation, one.Group = "send", ""
	case t.Scheme < len(w.Schemes):
		one.Schemes = w.Schemes[t.Scheme : t.Scheme+1]
	default:
		return nil, ""
	}
	return &one, one.Schemes[0].Label
}

// StandIn returns a broadcast by unicast that stands for a workload in a trial: the trial measures the
// host, not the workload.
func StandIn(label string, ranks setting.Hosts) *Settings {
	return &Settings{Label: label, Ranks: ranks, Schemes: unicast(), Memory: "auto"}
}

func unicast() []setting.Scheme { return []setting.Scheme{{Name: "unicast", Label: "unicast"}} }

// FallsBack implements apps.Faller.
func (w *Settings) FallsBack() bool {
	return slices.ContainsFunc(w.Schemes, func(s setting.Scheme) bool { return s.FallsBack() })
}

// Check implements apps.Kind.
func (w *Settings) Check(c *setting.Checker, p string) {
	c.Label(p, w.Label)
	ranks := c.Ranks(p, "a broadcast", w.Ranks)
	if c.Failed() {
		return
	}
	c.Sizes(p, w.Sizes, w.WarmUp, 1)
	c.Schemes(p, w.Algorithms(), w.Schemes, w.Sizes)
	for i, s := range w.Schemes {
		if w.Memory == string(rank.MemoryHashed) && !collective.TakesHashed(s.Name) {
			c.Failf(p+".memory", "%s writes parts of what is lost twice, which hashed memory cannot take: use bytes or phantom, or leave scheme %d out", s.Name, i)
		}
	}
	g := c.Graph
	if w.Root == "" {
		w.Root = g.Nodes[ranks[0]].Name
	}
	root, ok := g.Find(w.Root)
	if !ok || root >= g.Hosts {
		c.Failf(p+".root", "there is no host %q%s", w.Root, setting.Suggest(w.Root, setting.HostNames(g)))
	} else if !slices.Contains(ranks, root) {
		c.Failf(p+".root", "root %s is not among the ranks", w.Root)
	}
	if !c.Failed() {
		w.checkExternals(c, p, ranks)
	}
}

// checkExternals verifies a workload in which external hosts take part. They run no
// program: they can be the source or a receiver, and pass nothing on.
func (w *Settings) checkExternals(c *setting.Checker, p string, ranks []int) {
	out := c.Outside(ranks)
	if w.checkForExternals(c, p, len(out) > 0); len(out) == 0 {
		return
	}
	root := c.Peers[w.Root]
	switch {
	case len(out) == len(ranks):
		c.Failf(p+".ranks", "all ranks are external: one at least must be the lab's")
	case len(w.Schemes) != 1:
		c.Failf(p+".schemes", "%s is external and has one connection: use one scheme per workload", out[0])
	case w.Schemes[0].Transport != "" && w.Schemes[0].Transport != collective.TransportRC:
		c.Failf(p+".schemes[0].transport", "transport %s needs every rank to run a program, and %s is external: leave it out", w.Schemes[0].Transport, out[0])
	case w.Schemes[0].Name != "cepheus" && w.Schemes[0].Name != "unicast":
		c.Failf(p+".schemes[0]", "%s needs every rank to run a program, and %s is external: use cepheus or unicast", w.Schemes[0].Name, out[0])
	case w.Schemes[0].Fallback != "" && w.Schemes[0].Fallback != collective.FallbackOff:
		c.Failf(p+".schemes[0].fallback", "a fallback needs every rank to run a program, and %s is external", out[0])
	case w.Memory == "hashed" || w.Memory == "phantom":
		c.Failf(p+".memory", "memory %s is for ranks of the lab alone, and %s is external: use bytes", w.Memory, out[0])
	case w.Schemes[0].Name == "unicast" && root != nil && len(ranks) > 2:
		c.Failf(p+".ranks", "%s is external and has one connection: as unicast source it can serve one rank", w.Root)
	}
	if len(w.Schemes) == 0 || w.Schemes[0].Name != "cepheus" {
		return
	}
	first := c.Peers[out[0]].SendPSN
	for _, name := range out {
		if x := c.Peers[name]; x.SendPSN != first || x.ReceivePSN != first {
			c.Failf(p+".ranks", "a group has one start PSN: give send-psn and receive-psn of external hosts in it one value, not %d and %d as %s has",
				x.SendPSN, x.ReceivePSN, name)
		}
	}
}

// checkForExternals verifies the keys that are for external hosts alone.
func (w *Settings) checkForExternals(c *setting.Checker, p string, external bool) {
	scheme := ""
	if len(w.Schemes) > 0 {
		scheme = w.Schemes[0].Name
	}
	group, err := parseGroup(w.Group, c.Graph.Groups)
	switch {
	case w.Operation == operationWrite && (!external || scheme != "cepheus"):
		c.Failf(p+".operation", "operation write is for scheme cepheus with an external host among the ranks: leave it out")
	case w.Group == "":
	case !external || scheme != "cepheus":
		c.Failf(p+".group", "group is for scheme cepheus with an external host among the ranks: leave it out")
	case err != nil:
		c.Failf(p+".group", "%v", err)
	case c.Controllers > 1:
		c.Failf(p+".group", "with controllers it is they who give out addresses, not group %v: leave it out", wire.AddrOf(group))
	}
}

// The groups that lab files may name. No run gets one of them otherwise.
// These are the lower halves of their addresses.
const (
	NamedGroupFirst = 0xff01
	NamedGroupLast  = 0xfffe
)

// parseGroup reads the address of a group; empty is 0.
func parseGroup(s string, groups wire.GroupRange) (uint32, error) {
	if s == "" {
		return 0, nil
	}
	first, last := groups.Net()|NamedGroupFirst, groups.Net()|NamedGroupLast
	a, err := netip.ParseAddr(s)
	if ip, ok := wire.IPOf(a); err == nil && ok && a.Is4() && ip >= first && ip <= last {
		return ip, nil
	}
	return 0, fmt.Errorf("group %q is not %v to %v", s, wire.AddrOf(first), wire.AddrOf(last))
}

// NamedGroup returns the McstID that the lab file names for the workload, or 0.
func (w *Settings) NamedGroup(groups wire.GroupRange) uint32 {
	group, err := parseGroup(w.Group, groups)
	if err != nil {
		return 0 // it was checked
	}
	return group
}

// Algorithms implements apps.Collective.
func (*Settings) Algorithms() setting.Algorithms { return setting.Broadcasts() }

// Quantities implements apps.Measurer.
func (*Settings) Quantities() map[string][]string {
	return map[string][]string{apps.QuantityPhase: apps.PhaseNames()}
}
