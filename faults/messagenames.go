// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/wire"
)

// spec resolves the names of a message.
func (m *message) spec(g *topo.Graph, controllers []string) (s Spec, err error) {
	s = Spec{
		Kind: m.Kind, Window: Window{From: m.From, For: m.For, Every: m.Every, Probability: m.Probability},
		Rate: m.Rate, Priority: m.Priority, Gap: m.Gap, Room: m.Room,
	}
	s.Controllers = append(s.Controllers, m.Controllers...)
	if s.Ends, err = find("port", m.Ends, func(put func(string, topo.End)) {
		for n := range g.Nodes {
			for p := range g.Nodes[n].Links {
				e := topo.End{Node: n, Port: p}
				put(g.PortName(e), e)
			}
		}
	}); err != nil {
		return s, err
	}
	if s.Links, err = find("link", m.Links, func(put func(string, int)) {
		for l := range g.Links {
			put(g.LinkName(l), l)
		}
	}); err != nil {
		return s, err
	}
	if s.Nodes, err = findNodes("node", m.Nodes, g, len(g.Nodes)); err != nil {
		return s, err
	}
	for _, w := range m.Cut {
		s.Cut = append(s.Cut, Way(w))
	}
	for _, c := range slices.Concat(m.Controllers, ends(m.Cut)) {
		if !slices.Contains(controllers, c) {
			return s, fmt.Errorf("the lab has no controller %q", c)
		}
	}
	if m.Frames != nil {
		s.Frames, err = m.Frames.impairment(g)
	}
	return s, err
}

func ends(cut []wayMessage) (names []string) {
	for _, w := range cut {
		names = append(names, w.From, w.To)
	}
	return names
}

// find looks up each name among those that all passes to put.
func find[T any](what string, names []string, all func(put func(name string, x T))) (found []T, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	at := map[string]T{}
	all(func(name string, x T) { at[name] = x })
	for _, name := range names {
		x, ok := at[name]
		if !ok {
			return nil, fmt.Errorf("the lab has no %s %q", what, name)
		}
		found = append(found, x)
	}
	return found, nil
}

// findNodes looks names up among the first n nodes.
func findNodes(what string, names []string, g *topo.Graph, n int) ([]int, error) {
	return find(what, names, func(put func(string, int)) {
		for i := range n {
			put(g.Nodes[i].Name, i)
		}
	})
}

func (m *framesMessage) impairment(g *topo.Graph) (i Impairment, err error) {
	i = Impairment{
		Loss: m.Loss, Corrupt: m.Corrupt, Truncate: m.Truncate, Duplicate: m.Duplicate, Reorder: m.Reorder,
		EveryNth: m.EveryNth, Delay: m.Delay, Hold: m.Hold, Jitter: m.Jitter,
	}
	if b := m.Burst; b != nil {
		i.Burst = &Burst{ToBad: b.ToBad, ToGood: b.ToGood, LossGood: b.LossGood, LossBad: b.LossBad}
	}
	for _, n := range m.Numbers { // a list
		if n < 1 {
			return i, fmt.Errorf("frames are counted from 1, not %d", n)
		}
		if i.Numbers == nil {
			i.Numbers = map[int]bool{}
		}
		i.Numbers[n] = true
	}
	if m.Match != nil {
		p, err := m.Match.match(g)
		if err != nil {
			return i, err
		}
		i.Match = p
	}
	return i, nil
}

func (m *matchMessage) match(g *topo.Graph) (p *Match, err error) {
	p = &Match{Group: m.Group, Groups: g.Groups, QP: m.QP}
	for _, name := range m.Classes {
		c, ok := ClassOf(name)
		if !ok {
			return nil, fmt.Errorf("there is no class of frames %q", name)
		}
		p.Classes |= c
	}
	if p.OpCodes, err = find("opcode", m.OpCodes, func(put func(string, wire.OpCode)) {
		for o := range 256 {
			if op := wire.OpCode(o); op.Is(wire.OpAssigned) {
				put(op.String(), op)
			}
		}
	}); err != nil {
		return nil, err
	}
	if p.Src, err = addresses(m.From, g); err != nil {
		return nil, err
	}
	if p.Dst, err = addresses(m.To, g); err != nil {
		return nil, err
	}
	if m.PSNs != nil {
		for _, x := range m.PSNs {
			if x < 0 || x >= 1<<24 {
				return nil, fmt.Errorf("%d is not a PSN", x)
			}
		}
		p.PSN, p.First, p.Last = true, wire.PSN(m.PSNs[0]), wire.PSN(m.PSNs[1])
	}
	return p, nil
}

func addresses(names []string, g *topo.Graph) (ips []uint32, err error) {
	hosts, err := findNodes("host", names, g, g.Hosts)
	for _, h := range hosts {
		ips = append(ips, g.Nodes[h].IP)
	}
	return ips, err
}
