// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// gaps are the places where a deletion may have got lost on a group's paths. The maps are never iterated.
type gaps struct {
	links    map[int]bool // by transmitter, both of a link: it was down, or a fault has lost a registration packet
	switches map[int]bool // by node: it has lost its group tables
}

func newGaps() gaps { return gaps{links: map[int]bool{}, switches: map[int]bool{}} }

// gap records a link, by one of its ends, as one on which a deletion may have got lost.
func (c *checker) gap(at topo.End) {
	n := c.net
	far := n.graph.Peer(at.Node, at.Port)
	c.gaps.links[n.PortID(at.Node, at.Port)], c.gaps.links[n.PortID(far.Node, far.Port)] = true, true
}

// losesMRP reports whether a verdict keeps a registration packet from its receiver.
func losesMRP(f *wire.Frame, v faults.Verdict) bool {
	return f.Kind() == wire.KindMRP && (v.Drop || v.Damage || v.Cut)
}

// cutOff returns the number of groups at a switch of which no deletion could reach the switch.
func (c *checker) cutOff(node int) (groups int) {
	for _, g := range c.net.nodes[node].sw.Groups() {
		w := island{c: c, group: g.McstID, entered: map[int]bool{}}
		if w.cutOff(node) {
			groups++
		}
	}
	return groups
}

// island is a walk over the switches that hold a group and that the group's paths connect.
type island struct {
	c       *checker
	group   uint32
	entered map[int]bool // by node
}

// cutOff reports whether nobody beyond the switches that the walk enters could pass a deletion on to them:
// all other paths lead over links with gaps, or to switches that have lost their group tables.
func (w *island) cutOff(node int) bool {
	n := w.c.net
	w.entered[node] = true
	var g virtswitch.GroupState
	n.nodes[node].sw.ReadGroup(w.group, &g)
	for _, p := range g.Paths {
		far := n.graph.Peer(node, p.Port)
		switch {
		case w.c.gaps.links[n.PortID(node, p.Port)] || w.entered[far.Node]:
		case n.graph.Nodes[far.Node].Kind == topo.Host:
			return false
		case w.holds(far):
			if !w.cutOff(far.Node) {
				return false
			}
		case !w.c.gaps.switches[far.Node]:
			return false
		}
	}
	return true
}

// holds reports whether a switch holds the group with a path through the given port.
func (w *island) holds(at topo.End) bool {
	var g virtswitch.GroupState
	if !w.c.net.nodes[at.Node].sw.ReadGroup(w.group, &g) {
		return false
	}
	for _, p := range g.Paths {
		if p.Port == at.Port {
			return true
		}
	}
	return false
}
