// SPDX-License-Identifier: Apache-2.0

// Package place decides which node of a lab goes to which of several servers: pods stay together, so that few links lead from
// server to server, and servers get nodes in proportion to their cores.
package place

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// Server is a place for nodes.
type Server struct {
	Name   string
	Cores  int
	Memory int64 // bytes
}

// memoryShare is the part of a server's memory for nodes: a fifth remains for other programs.
const memoryShare = 0.8

// room returns the number of nodes that fit into a server's memory.
func (m *Server) room() int { return int(float64(m.Memory) * memoryShare / engine.NodeMemory) }

// Nodes returns the server of each node. It is an error if the servers together have no room for all.
func Nodes(g *topo.Graph, servers []Server) ([]int, error) {
	if len(servers) == 0 {
		return nil, errors.New("no server to place nodes on")
	}
	p := &placing{g: g, servers: servers, at: make([]int, len(g.Nodes)), has: make([]int, len(servers))}
	room, cores := 0, 0
	for i := range servers {
		room += servers[i].room()
		cores += max(1, servers[i].Cores)
	}
	if len(g.Nodes) > room {
		return nil, fmt.Errorf("%d nodes of %d MiB each do not fit: %d servers have memory for %d of them", len(g.Nodes), engine.NodeMemory>>20, len(servers), room)
	}
	for i := range servers {
		p.fair = append(p.fair, float64(len(g.Nodes)*max(1, servers[i].Cores))/float64(cores))
	}
	for i := range p.at {
		p.at[i] = -1
	}
	for _, u := range units(g) {
		p.put(u)
	}
	return p.at, nil
}

// placing is a placement under way.
type placing struct {
	g       *topo.Graph
	servers []Server
	at      []int     // by node; -1: nowhere yet
	has     []int     // by server: its nodes
	fair    []float64 // by server: nodes that its cores are good for
}

// units returns what stays together, in the order in which it is placed: pods, or a leaf with its hosts where there are no pods,
// and then each of the other switches by itself.
func units(g *topo.Graph) (all [][]int) {
	pods := map[int]int{} // index of a pod's unit
	leaves := map[int]int{}
	in := make([]bool, len(g.Nodes))
	join := func(of map[int]int, key, node int) {
		i, ok := of[key]
		if !ok {
			i = len(all)
			of[key] = i
			all = append(all, nil)
		}
		all[i], in[node] = append(all[i], node), true
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		switch {
		case n.Pod >= 0:
			join(pods, n.Pod, i)
		case i < g.Hosts && len(n.Links) > 0:
			leaf := g.Peer(i, 0).Node
			if leaf < g.Hosts || g.Nodes[leaf].Pod >= 0 {
				leaf = i // two hosts back to back
			}
			join(leaves, leaf, i)
			if leaf != i && !in[leaf] {
				join(leaves, leaf, leaf)
			}
		}
	}
	for i := range g.Nodes {
		if !in[i] {
			all = append(all, []int{i})
		}
	}
	return all
}

// slack is by how much more than its fair share of nodes a server may get for the sake of fewer links.
const slack = 1.25

// put places what stays together, if it fits anywhere as a whole, else node by node.
func (p *placing) put(unit []int) {
	best := -1
	for m := range p.servers {
		if p.has[m]+len(unit) <= p.servers[m].room() && (best < 0 || p.better(unit, m, best)) {
			best = m
		}
	}
	over := best >= 0 && len(unit) > 1 && float64(p.has[best]+len(unit)) > slack*p.fair[best]+1
	if over && len(unit) > int(slack*slices.Max(p.fair))+1 { // no server's share is as large as that
		best = -1
	}
	if best < 0 && len(unit) > 1 {
		for i := len(unit) - 1; i >= 0; i-- { // the leaf, which is behind its hosts, first
			p.put(unit[i : i+1])
		}
		return
	}
	for _, n := range unit {
		p.at[n] = best
	}
	p.has[best] += len(unit)
}

// better reports whether a unit is better placed on server a than on b: within the fair share before beyond, then with more
// links to what is there, then where more is free.
func (p *placing) better(unit []int, a, b int) bool {
	fits := func(m int) bool { return float64(p.has[m]+len(unit)) <= slack*p.fair[m] }
	if fits(a) != fits(b) {
		return fits(a)
	}
	if x, y := p.links(unit, a), p.links(unit, b); fits(a) && x != y {
		return x > y
	}
	load := func(m int) float64 { return float64(p.has[m]+len(unit)) / p.fair[m] }
	return load(a) < load(b)
}

// links counts the links between a unit and what is on a server.
func (p *placing) links(unit []int, m int) (n int) {
	for _, i := range unit {
		for port := range p.g.Nodes[i].Links {
			if p.at[p.g.Peer(i, port).Node] == m {
				n++
			}
		}
	}
	return n
}
