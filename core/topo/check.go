// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"fmt"
	"math"
	"slices"
)

// Bounds of a graph. Routes, the deadlock check, and each change of routes visit every switch port
// for every leaf. 2^30 of these visits take about ten seconds and 1 GB. A fat-tree of 64-port
// switches with its 65,536 hosts needs 7x10^8.
const (
	hostsMax  = 1 << 16
	visitsMax = 1 << 30
)

// checkSize refuses a graph that is too large, before it is built.
func checkSize(hosts, leaves, switches, ports int) error {
	switch {
	case hosts > hostsMax:
		return fmt.Errorf("%d hosts are more than a lab may have (%d)", hosts, hostsMax)
	case switches > SwitchesMax || leaves > visitsMax/max(1, switches*ports):
		return fmt.Errorf("the routes of %d switches with %d ports to %d leaves are more than can be computed in some seconds: use fewer, larger switches",
			switches, ports, leaves)
	}
	return nil
}

// finish assigns addresses and checks the graph.
func (g *Graph) finish() error {
	if g.Hosts < 2 {
		return fmt.Errorf("a lab needs at least two hosts, this has %d", g.Hosts)
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		switch {
		case len(n.Links) == 0:
			return fmt.Errorf("node %s has no link", n.Name)
		case n.Kind == Host && len(n.Links) != 1:
			return fmt.Errorf("host %s has %d links, a host has one", n.Name, len(n.Links))
		case n.Kind == Host && g.Nodes[g.Peer(i, 0).Node].Kind == Host && len(g.Nodes) > 2:
			return fmt.Errorf("hosts %s and %s are joined directly, put a switch between them, or leave all other nodes out", n.Name, g.Nodes[g.Peer(i, 0).Node].Name)
		}
	}
	if err := g.assign(); err != nil {
		return err
	}
	g.flat = g.flatten()
	if g.Switches() == 0 {
		return nil // two hosts back to back
	}
	return g.checkReach()
}

// checkReach returns an error if some host cannot reach all others.
func (g *Graph) checkReach() error {
	dist := g.shortest(g.Peer(0, 0).Node)
	for h := 1; h < g.Hosts; h++ {
		if dist[g.Peer(h, 0).Node] < 0 {
			return fmt.Errorf("there is no path from host %s to host %s", g.Nodes[0].Name, g.Nodes[h].Name)
		}
	}
	return nil
}

// CheckRoutes verifies routing tables against the graph. Every switch that can be on a path must
// have a route to every block, and each route must lead one hop nearer. Routes must be symmetric: if
// a port of a switch leads toward leaf b on a shortest path from leaf a, the far end of its link
// must lead back toward a over the same link.
func (g *Graph) CheckRoutes(tables []Table) error {
	c := routeCheck{g: g, tables: tables}
	seen := make([]bool, len(g.Nodes))
	for b, leaf := range g.blocks() {
		if !seen[leaf] {
			seen[leaf] = true
			c.leaves = append(c.leaves, leafBlock{leaf, b})
		}
	}
	all := make([]uint16, g.Switches()*len(c.leaves))
	for i := range g.Switches() {
		c.dist = append(c.dist, all[i*len(c.leaves):][:len(c.leaves)])
	}
	for k, l := range c.leaves {
		for i, d := range g.shortest(l.node)[g.Hosts:] {
			c.dist[i][k] = uint16(d) // -1 becomes outOfReach
		}
	}
	for i := range tables {
		if err := c.nearer(i); err != nil {
			return err
		}
	}
	for i := range tables {
		if err := c.symmetric(i); err != nil {
			return err
		}
	}
	return nil
}

// routeCheck is the state of CheckRoutes.
type routeCheck struct {
	g      *Graph
	tables []Table
	leaves []leafBlock
	dist   [][]uint16 // hops, by switch and then by leaf, in the order in which symmetric reads them
}

// outOfReach is the distance of a switch without a path to the leaf.
const outOfReach = math.MaxUint16

// leafBlock is a leaf and the first block of addresses of its hosts.
type leafBlock struct{ node, block int }

// nearer verifies that switch i has a route to every leaf that it can reach, and that each port of a
// route leads one hop nearer.
func (c *routeCheck) nearer(i int) error {
	g, s := c.g, c.g.Hosts+i
	for k, b := range c.leaves {
		if s == b.node || c.dist[i][k] == outOfReach {
			continue
		}
		set := c.tables[i].Set[b.block]
		if set < 0 {
			return fmt.Errorf("switch %s has no route to %s", g.Nodes[s].Name, g.Nodes[b.node].Name)
		}
		for _, p := range c.tables[i].Sets[set] {
			far := g.Peer(s, int(p)).Node - g.Hosts
			if far < 0 || c.dist[far][k] != c.dist[i][k]-1 {
				return fmt.Errorf("switch %s: port %d does not lead nearer to %s", g.Nodes[s].Name, p, g.Nodes[b.node].Name)
			}
		}
	}
	return nil
}

// symmetric verifies, for each link that the routes of switch i use, that the routes of the switch
// at its far end lead back over the same link.
func (c *routeCheck) symmetric(i int) error {
	g, s := c.g, c.g.Hosts+i
	for p := range g.Nodes[s].Links {
		port, far := uint16(p), g.Peer(s, p)
		f := far.Node - g.Hosts
		if f < 0 || !slices.ContainsFunc(c.tables[i].Sets, func(set []uint16) bool { return slices.Contains(set, port) }) {
			continue
		}
		back, here, there := &c.tables[f], c.dist[i], c.dist[f]
		for k, a := range c.leaves {
			if here[k]+1 != there[k] {
				continue // this is not on a shortest path from the leaf over the link
			}
			if set := back.Set[a.block]; set < 0 || !slices.Contains(back.Sets[set], uint16(far.Port)) {
				return fmt.Errorf("routes from %s over link %s are not symmetric", g.Nodes[a.node].Name, g.LinkName(g.Nodes[s].Links[p]))
			}
		}
	}
	return nil
}
