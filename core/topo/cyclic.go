// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mcastlab/mcastlab/core/wire"
)

// branches makes the entries of all switches from their sets of ports. A switch that packets leave
// by no port has no entry.
func (g *Graph) branches(ports, from []portSet) (all []wire.MulticastEntry) {
	list := func(s *portSet) (l []uint16) {
		for p := s.next(0); p >= 0; p = s.next(p + 1) {
			l = append(l, uint16(p))
		}
		return l
	}
	for i := range ports {
		if b := (wire.MulticastEntry{Switch: g.Hosts + i, Ports: list(&ports[i]), From: list(&from[i])}); len(b.Ports) > 0 {
			all = append(all, b)
		}
	}
	return all
}

// ErrNoNTree is the error of trees that only an m-port n-tree has.
var ErrNoNTree = errors.New("the fabric is not an m-port n-tree")

// CyclicTree returns the entries of one source and its group. Each switch on the paths from the
// source to the members has the union of the output ports for the members' LIDs. The paper takes
// this union in every switch in §3.3.2, and only on the paths in its abstract. Only the latter
// delivers each packet once (CYC-11). The source itself may be among the members.
func (g *Graph) CyclicTree(src int, members []int) ([]wire.MulticastEntry, error) {
	t := g.nTree
	if t == nil {
		return nil, ErrNoNTree
	}
	ports, from := make([]portSet, g.Switches()), make([]portSet, g.Switches())
	for _, d := range members {
		if d == src {
			continue
		}
		lid := t.LID(src, d)
		for at := g.Peer(src, 0); at.Node >= g.Hosts; {
			p := t.Port(at.Node, lid)
			ports[at.Node-g.Hosts].add(p)
			from[at.Node-g.Hosts].add(at.Port)
			at = g.Peer(at.Node, p)
		}
	}
	return g.branches(ports, from), nil
}

// ClassTree returns the entries that all sources of a class can share. Every switch has the union
// of the output ports for the members' LIDs of that class. They form a tree whose root is the
// class's own top switch (CYC-12).
func (g *Graph) ClassTree(class int, members []int) ([]wire.MulticastEntry, error) {
	t := g.nTree
	if t == nil {
		return nil, ErrNoNTree
	}
	ports, from := make([]portSet, g.Switches()), make([]portSet, g.Switches())
	for i := range ports {
		for _, d := range members {
			ports[i].add(t.Port(g.Hosts+i, t.classLID(class, d)))
		}
		for p := range t.m { // forwarding by MLID does not depend on the input port
			if !ports[i].has(p) {
				from[i].add(p)
			}
		}
	}
	return g.branches(ports, from), nil
}

// SpanningTree returns the entries of the one tree per group that OpenSM builds over any fabric
// (CYC-16). Its root is the switch with the least average distance to the members. choose selects
// one of several such switches by index; nil selects the first. From the root on, each member is
// reached by the first port that leads to it on a shortest path. Hosts that only send are attached
// in the same way, but packets do not leave by ports that lead to such hosts only.
func (g *Graph) SpanningTree(members, senders []int, choose func(roots int) int) ([]wire.MulticastEntry, error) {
	if g.Switches() == 0 {
		return nil, nil // the link is the tree
	}
	dist := map[int][]int{} // by leaf of a host of the tree: hops from each switch
	hosts := slices.Clone(members)
	for _, h := range senders {
		if !slices.Contains(members, h) {
			hosts = append(hosts, h)
		}
	}
	for _, h := range hosts {
		if leaf := g.Peer(h, 0).Node; dist[leaf] == nil {
			dist[leaf] = g.shortest(leaf)
		}
	}
	var roots []int
	least := math.MaxInt
	for n := g.Hosts; n < len(g.Nodes); n++ {
		sum := 0
		for _, h := range members {
			sum += dist[g.Peer(h, 0).Node][n]
		}
		switch {
		case sum < least:
			roots, least = append(roots[:0], n), sum
		case sum == least:
			roots = append(roots, n)
		}
	}
	if len(members) == 0 {
		return nil, fmt.Errorf("spanning tree: the group has no member")
	}
	root := roots[0]
	if choose != nil {
		root = roots[choose(len(roots))]
	}
	s := spanning{g: g, dist: dist, parent: make([]int, len(g.Nodes)), below: make([]int, len(g.Nodes)), ports: make([]portSet, g.Switches())}
	for i := range s.parent {
		s.parent[i] = -1
	}
	for i, h := range hosts {
		if err := s.attach(root, h, i < len(members)); err != nil {
			return nil, err
		}
	}
	return s.table(root, len(members), members), nil
}

// spanning is a spanning tree under construction.
type spanning struct {
	g      *Graph
	dist   map[int][]int
	parent []int     // by node: the port that leads toward the root
	below  []int     // by node: number of members in its subtree
	ports  []portSet // by switch: ports in the tree
}

// attach adds the path from the root to a host.
func (s *spanning) attach(root, host int, member bool) error {
	g, leaf := s.g, s.g.Peer(host, 0)
	dist := s.dist[leaf.Node]
	for n := root; ; {
		if member {
			s.below[n]++
		}
		if n == leaf.Node {
			s.ports[n-g.Hosts].add(leaf.Port)
			return nil
		}
		p := 0
		for g.Nodes[g.Peer(n, p).Node].Kind != Switch || dist[g.Peer(n, p).Node] != dist[n]-1 {
			p++
		}
		far := g.Peer(n, p)
		if old := s.parent[far.Node]; old >= 0 && old != far.Port || far.Node == root {
			return fmt.Errorf("spanning tree: the first shortest paths from %s do not form a tree: two lead to %s", g.Nodes[root].Name, g.Nodes[far.Node].Name)
		}
		s.parent[far.Node] = far.Port
		s.ports[n-g.Hosts].add(p)
		s.ports[far.Node-g.Hosts].add(far.Port)
		n = far.Node
	}
}

// table separates the ports that lead to members from those that lead to senders only.
func (s *spanning) table(root, all int, members []int) []wire.MulticastEntry {
	g := s.g
	from := make([]portSet, len(s.ports))
	for i := range s.ports {
		n := g.Hosts + i
		for p := s.ports[i].next(0); p >= 0; p = s.ports[i].next(p + 1) {
			far := g.Peer(n, p).Node
			there := s.below[far]
			switch {
			case far < g.Hosts && slices.Contains(members, far):
				there = 1
			case n != root && p == s.parent[n]:
				there = all - s.below[n]
			}
			if there == 0 {
				from[i].add(p)
				s.ports[i] = s.ports[i].without(p)
			}
		}
	}
	return g.branches(s.ports, from)
}
