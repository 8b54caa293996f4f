// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// layout maps a lab's nodes and links to places in arrays. A Net has arrays of its own nodes and of the
// links that leave them or end at them, each at its place.
//
// Nodes and ports have numbers besides, which are those of the whole lab: a node that of the graph, and a
// port that of its transmitter, in the order of nodes and their ports. Events bear numbers and not places,
// because the order of events at one instant depends on them.
//
// All parts of a lab share one layout, which does not change.
type layout struct {
	graph *topo.Graph
	first []int32 // by node: the number of its first port, and at the end the number of all ports

	// In a lab that is whole the place of anything is its number, and these are nil.
	of     []int32 // by node: its part
	place  []int32 // by node: its place in its part
	starts []int32 // by port: the place of its link in the part that it starts in
	ends   []int32 // by port: the place of its link in the part that it ends in
}

// newLayout returns the layout of a lab of which node i is in part of[i], or of one that is whole if of is nil.
func newLayout(g *topo.Graph, of []int32) *layout {
	y := &layout{graph: g, of: of, first: make([]int32, len(g.Nodes)+1)}
	for i := range g.Nodes {
		y.first[i+1] = y.first[i] + int32(len(g.Nodes[i].Links))
	}
	if len(of) == 0 {
		return y
	}
	parts := int(slices.Max(of)) + 1
	nodes, links := make([]int32, parts), make([]int32, parts)
	y.place = make([]int32, len(g.Nodes))
	y.starts, y.ends = make([]int32, y.ports()), make([]int32, y.ports())
	for i, part := range of { // a node's own links are beside each other, before all that end in the part
		y.place[i] = nodes[part]
		nodes[part]++
		for id := y.first[i]; id < y.first[i+1]; id++ {
			y.starts[id] = links[part]
			links[part]++
		}
	}
	for i, part := range of {
		for port := range g.Nodes[i].Links {
			id := y.port(i, port)
			if to := of[g.Peer(i, port).Node]; to == part {
				y.ends[id] = y.starts[id]
			} else {
				y.ends[id] = links[to]
				links[to]++
			}
		}
	}
	return y
}

// ports returns the number of ports.
func (y *layout) ports() int { return int(y.first[len(y.first)-1]) }

// port returns the number of a node's port.
func (y *layout) port(node, port int) int { return int(y.first[node]) + port }

// end returns the port that has a number.
func (y *layout) end(id int) topo.End {
	node, found := slices.BinarySearch(y.first, int32(id))
	if !found {
		node--
	}
	for y.first[node+1] == y.first[node] {
		node++ // it has no port
	}
	return topo.End{Node: node, Port: id - int(y.first[node])}
}

// far returns the node at which the link of a port ends.
func (y *layout) far(id int) int {
	e := y.end(id)
	return y.graph.Peer(e.Node, e.Port).Node
}

// port is the end of a link at which it starts, as the loop stores it.
type port struct {
	id     int32 // its number
	node   int32 // the place of its node, or outside
	port   uint16
	leaves bool // the link ends outside the part
}

// outside stands for the place of a node that is not in the part, and for a part without nodes.
const outside = -1

// placeNodes gives the nodes that the simulation drives their places.
func (n *Net) placeNodes() {
	c := &n.cfg
	if c.layout == nil {
		var of []int32 // part 0 is this one
		for _, local := range c.Local {
			of = append(of, 1)
			if local {
				of[len(of)-1] = 0
			}
		}
		c.layout = newLayout(n.graph, of)
	}
	if c.routes == nil {
		c.routes = &routes{graph: n.graph}
	}
	n.layout, n.part = c.layout, c.part
	n.place, n.starts, n.ends = c.layout.place, c.layout.starts, c.layout.ends
	count := 0
	for i := range n.graph.Nodes {
		if n.local(i) {
			count++
		}
	}
	n.nodes = make([]node, 0, count)
	for i := range n.graph.Nodes {
		if n.local(i) {
			n.nodes = append(n.nodes, node{armed: vtime.Never, id: int32(i), first: int32(n.own)})
			n.own += len(n.graph.Nodes[i].Links)
		}
	}
}

// buildLinks makes one transmitter per node and port, in node order, and then the places of links from
// outside.
func (n *Net) buildLinks() {
	g := n.graph
	var ends []topo.End
	var from []topo.End // of links from outside, in the order of their numbers
	for at := range n.nodes {
		i := int(n.nodes[at].id)
		for p := range g.Nodes[i].Links {
			far := g.Peer(i, p)
			leaves := !n.local(far.Node)
			ends = append(ends, topo.End{Node: i, Port: p})
			n.ports = append(n.ports, port{int32(n.layout.port(i, p)), int32(at), uint16(p), leaves})
			if leaves {
				from = append(from, far)
			}
		}
	}
	slices.SortFunc(from, func(a, b topo.End) int { return n.layout.port(a.Node, a.Port) - n.layout.port(b.Node, b.Port) })
	for _, e := range from {
		ends = append(ends, e)
		n.ports = append(n.ports, port{int32(n.layout.port(e.Node, e.Port)), outside, uint16(e.Port), false})
	}
	if n.place != nil {
		n.inbound = make([]queue.FIFO[machine.Flight], len(from))
	}
	configs := make([]machine.PortConfig, len(ends))
	for at, e := range ends {
		configs[at] = n.cfg.Port(e.Node, e.Port)
	}
	n.links = machine.NewLinks(configs)
	for at, e := range ends {
		far, l := g.Peer(e.Node, e.Port), n.links.At(at)
		l.Node, l.NodePort = int32(far.Node), int32(far.Port)
	}
}

// local reports whether this simulation drives a node.
func (n *Net) local(node int) bool { return n.layout.of == nil || n.layout.of[node] == n.part }

// at returns a node that this simulation drives.
func (n *Net) at(id int) *node { return &n.nodes[n.placeOf(id)] }

// placeOf returns the place of a node that this simulation drives.
func (n *Net) placeOf(node int) int {
	if n.place != nil {
		return int(n.place[node])
	}
	return node
}

// startOf returns the place of the link of a port, which starts in the part.
func (n *Net) startOf(id int) int {
	if n.starts != nil {
		return int(n.starts[id])
	}
	return id
}

// endOf returns the place of the link of a port, which ends in the part.
func (n *Net) endOf(id int) int {
	if n.ends != nil {
		return int(n.ends[id])
	}
	return id
}

// linkOf returns the place of the link of any port, and false if it neither starts nor ends in the part.
func (n *Net) linkOf(id int) (place int, ok bool) {
	switch {
	case n.local(n.layout.end(id).Node):
		return n.startOf(id), true
	case n.local(n.layout.far(id)):
		return n.endOf(id), true
	}
	return 0, false
}
