package topo

import (
	"fmt"
	"slices"
)

// Bounds of a graph. Routes, the proof that pauses cannot deadlock, and each change of routes
// look at every switch port for every leaf: 2^30 of these looks take about ten seconds and
// 1 GB. A fat-tree of 64-port switches, with its 65,536 hosts, needs 7x10^8.
const (
	hostsMax = 1 << 16
	looksMax = 1 << 30
)

// checkSize refuses a graph that is too large, before it is built.
func checkSize(hosts, leaves, switches, ports int) error {
	switch {
	case hosts > hostsMax:
		return fmt.Errorf("%d hosts are more than a lab may have (%d)", hosts, hostsMax)
	case switches > SwitchesMax || leaves > looksMax/max(1, switches*ports):
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
		case n.Kind == Host && g.Nodes[g.Peer(i, 0).Node].Kind == Host:
			return fmt.Errorf("hosts %s and %s are joined directly, put a switch between them", n.Name, g.Nodes[g.Peer(i, 0).Node].Name)
		}
	}
	if err := g.assign(); err != nil {
		return err
	}
	g.flat = g.flatten()
	return g.checkReach()
}

// checkReach makes sure that every host can reach every other.
func (g *Graph) checkReach() error {
	dist := g.shortest(g.Peer(0, 0).Node)
	for h := 1; h < g.Hosts; h++ {
		if dist[g.Peer(h, 0).Node] < 0 {
			return fmt.Errorf("there is no path from host %s to host %s", g.Nodes[0].Name, g.Nodes[h].Name)
		}
	}
	return nil
}

// CheckRoutes verifies routing tables against the graph: every switch that can be on
// a path has a route to every block, each route leads one hop nearer, and routes are
// symmetric: if a port leads from s toward leaf b on a shortest path from leaf a, its
// far end leads back toward a over the same link.
func (g *Graph) CheckRoutes(tables []Table) error {
	blocks := g.blocks()
	dist := make(map[int][]int)
	blockOf := make(map[int]int)
	for b, leaf := range blocks {
		if dist[leaf] == nil {
			dist[leaf] = g.shortest(leaf)
			blockOf[leaf] = b
		}
	}
	leaves := slices.Sorted(func(yield func(int) bool) {
		for l := range blockOf { // sorted by the caller
			if !yield(l) {
				return
			}
		}
	})
	for _, b := range leaves {
		for i := range tables {
			if err := g.checkRoute(tables, i, b, blockOf, dist, leaves); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkRoute verifies switch i's route toward leaf b.
func (g *Graph) checkRoute(tables []Table, i, b int, blockOf map[int]int, dist map[int][]int, leaves []int) error {
	s := g.Hosts + i
	if s == b || dist[b][s] < 0 {
		return nil
	}
	set := tables[i].Set[blockOf[b]]
	if set < 0 {
		return fmt.Errorf("switch %s has no route to %s", g.Nodes[s].Name, g.Nodes[b].Name)
	}
	for _, p := range tables[i].Sets[set] {
		far := g.Peer(s, int(p))
		if dist[b][far.Node] != dist[b][s]-1 {
			return fmt.Errorf("switch %s: port %d does not lead nearer to %s", g.Nodes[s].Name, p, g.Nodes[b].Name)
		}
		for _, a := range leaves {
			if a == far.Node || dist[a][s]+1 != dist[a][far.Node] {
				continue // s is not on a shortest path from a over this link
			}
			back := &tables[far.Node-g.Hosts]
			set := back.Set[blockOf[a]]
			if set < 0 || !slices.Contains(back.Sets[set], uint16(far.Port)) {
				return fmt.Errorf("route from %s to %s over link %s is not symmetric", g.Nodes[a].Name, g.Nodes[b].Name, g.LinkName(g.Nodes[s].Links[p]))
			}
		}
	}
	return nil
}
