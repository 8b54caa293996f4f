// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
)

// TestLayout: each node has one place in one part, and a link one in each part that it starts or ends in, so that parts
// together are not larger than the whole but for the links between them. What a part does not have is not there.
func TestLayout(t *testing.T) {
	g, err := topo.FatTree(4, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	cfg := dividedConfig(t, 1)
	cfg.Graph = g
	p, err := NewParts(cfg, Divide(g, 3), 1)
	if err != nil {
		t.Fatal(err)
	}
	nodes, links, between := 0, 0, 0
	for part, n := range p.parts {
		nodes += len(n.nodes)
		links += n.links.Len()
		between += len(n.inbound)
		if len(n.channel.down) != len(n.nodes) || n.channel.up != nil || len(n.ports) != n.links.Len() {
			t.Errorf("part %d has %d nodes, and the channel to %d", part, len(n.nodes), len(n.channel.down))
		}
	}
	if nodes != len(g.Nodes) || links != p.Ports()+between || between == 0 || between == p.Ports() {
		t.Errorf("%d nodes of %d, %d links of %d, of which %d are between parts", nodes, len(g.Nodes), links, p.Ports(), between)
	}
	if s := p.faults.Net(); len(s.nodes) != 0 || s.links.Len() != 0 || s.Ports() != p.Ports() {
		t.Errorf("the schedule has %d nodes and %d links", len(s.nodes), s.links.Len())
	}
	for i := range g.Nodes {
		for port := range g.Nodes[i].Links {
			placed(t, p, topo.End{Node: i, Port: port})
		}
	}
}

// placed wants a port's link to be in the parts of its two ends, and in no other.
func placed(t *testing.T, p *Parts, e topo.End) {
	t.Helper()
	id, far := p.PortID(e.Node, e.Port), p.Graph().Peer(e.Node, e.Port)
	if p.layout.end(id) != e || p.layout.far(id) != far.Node {
		t.Errorf("port %d is %v and leads to %d, want %v and %d", id, p.layout.end(id), p.layout.far(id), e, far.Node)
	}
	if l := p.Link(id); l != p.Of(far.Node).Link(id) && p.partOf(e.Node) != p.partOf(far.Node) || int(l.Node) != far.Node || int(l.NodePort) != far.Port {
		t.Errorf("the link of port %d ends at port %d of node %d, want %v", id, l.NodePort, l.Node, far)
	}
	for part, n := range p.parts {
		in := part == p.partOf(e.Node) || part == p.partOf(far.Node)
		if (n.Link(id) != nil) != in {
			t.Errorf("part %d has the link of port %d: %v, want %v", part, id, !in, in)
		}
		if own := part == p.partOf(e.Node); own != (n.Switch(e.Node) != nil || n.NIC(e.Node) != nil) {
			t.Errorf("part %d has node %d: %v, want %v", part, e.Node, !own, own)
		}
	}
}

// TestLayoutGaps: the port of a number is found beside nodes that have none.
func TestLayoutGaps(t *testing.T) {
	y := &layout{first: []int32{0, 0, 2, 2, 2, 3, 3}}
	for id, want := range []topo.End{{Node: 1}, {Node: 1, Port: 1}, {Node: 4}} {
		if got := y.end(id); got != want {
			t.Errorf("port %d is %v, want %v", id, got, want)
		}
	}
}

// TestRoutesOnce: parts that ask for the tables without the same links get the same, until they are forgotten.
func TestRoutesOnce(t *testing.T) {
	cfg := dividedConfig(t, 1)
	r := &routes{graph: cfg.Graph}
	whole, down := r.without(nil), len(cfg.Graph.Links)-1
	if again := r.without([]int{}); &again[0] != &whole[0] {
		t.Error("the same tables are made again")
	}
	less := r.without([]int{down})
	if again := r.without([]int{down}); &again[0] != &less[0] || &less[0] == &whole[0] {
		t.Error("the tables without a link are those of the whole, or are made again")
	}
	if r.forget(); r.tables != nil {
		t.Error("forgotten tables are kept")
	}
}
