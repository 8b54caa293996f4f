// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"fmt"
	"slices"
)

// TreePorts holds a switch's ports in a multicast tree, ascending.
type TreePorts struct {
	Switch int // node
	Ports  []uint16
}

// Tree returns a tree that connects the given hosts, by switch in node order. If switches form
// tiers, its root is one of the lowest switches that have all hosts below them, so that packets go
// up and then down. salt selects one of these switches, so that trees with different salts spread
// over the fabric. In other graphs the root is the first host's leaf.
func (g *Graph) Tree(hosts []int, salt uint64) ([]TreePorts, error) {
	var leaves []int
	for _, h := range hosts {
		if h < 0 || h >= g.Hosts {
			return nil, fmt.Errorf("multicast tree: node %d is not a host", h)
		}
		leaves = append(leaves, g.Peer(h, 0).Node)
	}
	if len(leaves) == 0 {
		return nil, fmt.Errorf("multicast tree: no host")
	}
	if g.Switches() == 0 {
		return nil, nil // the link is the tree
	}
	root, allowed := leaves[0], func(int, int) bool { return true }
	if g.tiered() {
		allowed = func(from, to int) bool { return g.Nodes[to].Tier < g.Nodes[from].Tier }
		roots := g.roots(leaves, allowed)
		if len(roots) == 0 {
			return nil, fmt.Errorf("multicast tree: no switch has all of its %d hosts below it", len(hosts))
		}
		root = roots[salt%uint64(len(roots))]
	}
	return g.hang(root, hosts, salt, allowed), nil
}

// roots returns the switches of the lowest tier that has switches from which allowed steps lead to
// all leaves.
func (g *Graph) roots(leaves []int, allowed func(from, to int) bool) (roots []int) {
	for n := g.Hosts; n < len(g.Nodes); n++ {
		if len(roots) > 0 && g.Nodes[n].Tier > g.Nodes[roots[0]].Tier {
			continue
		}
		dist := g.distances(n, nil, allowed)
		if slices.ContainsFunc(leaves, func(l int) bool { return dist[l] < 0 }) {
			continue
		}
		if len(roots) > 0 && g.Nodes[n].Tier < g.Nodes[roots[0]].Tier {
			roots = roots[:0]
		}
		roots = append(roots, n)
	}
	return roots
}

// hang returns the tree of the shortest paths from the root to the hosts. salt selects one of
// several equal paths, and it selects the same one for all hosts behind a switch.
func (g *Graph) hang(root int, hosts []int, salt uint64, allowed func(from, to int) bool) (tree []TreePorts) {
	dist := g.distances(root, nil, allowed)
	ports := make([][]uint16, len(g.Nodes))
	join := func(e End) bool {
		if slices.Contains(ports[e.Node], uint16(e.Port)) {
			return false
		}
		ports[e.Node] = append(ports[e.Node], uint16(e.Port))
		return true
	}
	for _, h := range hosts {
		at := g.Peer(h, 0)
		if !join(at) {
			continue
		}
		for n := at.Node; n != root; {
			var ways []int
			for p := range g.Nodes[n].Links {
				if m := g.Peer(n, p).Node; g.Nodes[m].Kind == Switch && dist[m] >= 0 && dist[m] == dist[n]-1 && allowed(m, n) {
					ways = append(ways, p)
				}
			}
			p := ways[salt%uint64(len(ways))]
			far := g.Peer(n, p)
			join(End{n, p})
			if !join(far) {
				break
			}
			n = far.Node
		}
	}
	for n := g.Hosts; n < len(g.Nodes); n++ {
		if len(ports[n]) > 0 {
			slices.Sort(ports[n])
			tree = append(tree, TreePorts{n, ports[n]})
		}
	}
	return tree
}
