// SPDX-License-Identifier: Apache-2.0

// Package topo builds the topologies of labs: fat-trees, m-port n-trees, leaf-spine fabrics,
// stars, and custom graphs. It assigns an address to every host and switch, computes equal-cost
// routes and multicast trees, checks them for deadlock, and draws the graph. It has no I/O, no
// clock and no randomness of its own.
package topo

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Kind is the type of a node: host or switch.
type Kind uint8

// Kinds of node.
const (
	Host Kind = iota
	Switch
)

// Tier is the level of a node above the hosts, which are tier 0.
type Tier uint8

// Tiers of the built-in shapes. A switch of a custom graph is a leaf if it has hosts,
// and otherwise one above its lowest neighbour.
const (
	TierHost Tier = iota
	TierLeaf
	TierAgg
	TierCore
)

// Node is a host or a switch.
type Node struct {
	Name  string
	Kind  Kind
	Tier  Tier
	Pod   int // -1 if the shape has no pods or the switch is above them
	IP    uint32
	Links []int // by port: index into Graph.Links
}

// End is one end of a link.
type End struct{ Node, Port int }

// Link is a cable between two ports. Delay is the propagation delay of one direction.
type Link struct {
	A, B  End
	Rate  int64 // bit/s in each direction
	Delay vtime.Duration
}

// Graph is a topology. Nodes are hosts first, in rank order, then switches from the
// leaves up.
type Graph struct {
	Nodes []Node
	Links []Link
	Hosts int // the first Hosts nodes are hosts
	// IPv6 is set if the fabric's addresses are IPv6. Node.IP does not depend on it.
	IPv6 bool
	// Groups is the network that McstIDs come from.
	Groups wire.GroupRange
	names  map[string]int
	// byHand marks custom graphs, whose tiers serve drawing only.
	byHand bool
	nTree  *NTree // nil if the graph is not an m-port n-tree
	flat   flat
}

// LinkParams holds the rate in bit/s and the propagation delay of every link of a built-in shape.
type LinkParams struct {
	Rate  int64
	Delay vtime.Duration
}

func (g *Graph) addNode(name string, k Kind, tier Tier, pod int) int {
	if g.names == nil {
		g.names = map[string]int{}
	}
	id := len(g.Nodes)
	g.Nodes = append(g.Nodes, Node{Name: name, Kind: k, Tier: tier, Pod: pod})
	g.names[name] = id
	if k == Host {
		g.Hosts++
	}
	return id
}

// join adds a link between two ports. The nodes' Links must already have entries for them.
func (g *Graph) join(a, b End, p LinkParams) {
	g.Nodes[a.Node].Links[a.Port], g.Nodes[b.Node].Links[b.Port] = len(g.Links), len(g.Links)
	g.Links = append(g.Links, Link{a, b, p.Rate, p.Delay})
}

// connect adds a link between the next free ports of two nodes.
func (g *Graph) connect(a, b int, p LinkParams) {
	l := len(g.Links)
	na, nb := &g.Nodes[a], &g.Nodes[b]
	g.Links = append(g.Links, Link{End{a, len(na.Links)}, End{b, len(nb.Links)}, p.Rate, p.Delay})
	na.Links = append(na.Links, l)
	nb.Links = append(nb.Links, l)
}

// Find returns the node with the given name, and whether there is one.
func (g *Graph) Find(name string) (int, bool) {
	i, ok := g.names[name]
	return i, ok
}

// HostsAt returns the hosts with the given addresses. It is an error if an address is not that of a
// host.
func (g *Graph) HostsAt(ips []uint32) ([]int, error) {
	at := make(map[uint32]int, g.Hosts)
	for h := range g.Hosts {
		at[g.Nodes[h].IP] = h
	}
	hosts := make([]int, len(ips))
	for i, ip := range ips {
		h, ok := at[ip]
		if !ok {
			return nil, fmt.Errorf("no host has the address %d.%d.%d.%d", ip>>24, ip>>16&0xff, ip>>8&0xff, ip&0xff)
		}
		hosts[i] = h
	}
	return hosts, nil
}

// Peer returns the other end of the link at a node's port.
func (g *Graph) Peer(node, port int) End {
	l := &g.Links[g.Nodes[node].Links[port]]
	if l.A.Node == node && l.A.Port == port {
		return l.B
	}
	return l.A
}

// LinkName returns the name of a link, which names its two ends: h0:0-leaf0:0.
func (g *Graph) LinkName(i int) string {
	l := &g.Links[i]
	return fmt.Sprintf("%s:%d-%s:%d", g.Nodes[l.A.Node].Name, l.A.Port, g.Nodes[l.B.Node].Name, l.B.Port)
}

// PortName returns the name of a port: leaf0:3.
func (g *Graph) PortName(e End) string { return fmt.Sprintf("%s:%d", g.Nodes[e.Node].Name, e.Port) }

// Switches returns the number of switches.
func (g *Graph) Switches() int { return len(g.Nodes) - g.Hosts }

// Up returns, by port, whether a switch's port leads to a higher tier. It returns nil in a custom
// graph, whose tiers are no order of its links.
func (g *Graph) Up(node int) []bool {
	if g.byHand {
		return nil
	}
	up := make([]bool, len(g.Nodes[node].Links))
	for p := range up {
		up[p] = g.Nodes[g.Peer(node, p).Node].Tier > g.Nodes[node].Tier
	}
	return up
}
