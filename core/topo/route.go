// SPDX-License-Identifier: Apache-2.0

package topo

import "slices"

// Table is the unicast routing of one switch.
type Table struct {
	// Sets holds the distinct sets of equal-cost ports, each ascending.
	Sets [][]uint16
	// Set holds, by block of host addresses, an index into Sets. It is -1 for a block that is
	// attached here or out of reach.
	Set []int32
	// Attached lists the hosts at this switch.
	Attached []Attached
}

// Attached is a host's address and the switch port to which it is attached.
type Attached struct {
	IP   uint32
	Port int
}

// Routes returns the shortest-path routing of every switch, in node order. Toward a host it uses
// all ports whose neighbour is one hop nearer to the host's leaf. In a fat-tree these are the
// up-down paths.
func (g *Graph) Routes() []Table { return g.routes(allSwitches, nil, false) }

// RoutesWithout returns the routing after the given links have failed. In a graph whose switches
// form tiers, a path goes up and then down and never up again, because other paths make a PFC
// deadlock possible. A host without an up-down path has no route, even if a longer path is left.
// In other graphs paths are the shortest.
func (g *Graph) RoutesWithout(failed ...int) []Table {
	return g.routes(allSwitches, g.marked(failed), g.tiered())
}

// RoutesAt returns the table of one switch that Routes returns, or RoutesWithout if links have
// failed. It takes a fraction of their time.
func (g *Graph) RoutesAt(node int, failed ...int) Table {
	if len(failed) == 0 {
		return g.routes(node, nil, false)[node-g.Hosts]
	}
	return g.routes(node, g.marked(failed), g.tiered())[node-g.Hosts]
}

// allSwitches as the argument of routes asks for the tables of all switches.
const allSwitches = -1

// marked returns, by link, whether it has failed.
func (g *Graph) marked(failed []int) []bool {
	down := make([]bool, len(g.Links))
	for _, l := range failed {
		down[l] = true
	}
	return down
}

// tiered reports whether every link between switches joins different tiers.
func (g *Graph) tiered() bool {
	for _, l := range g.Links {
		a, b := &g.Nodes[l.A.Node], &g.Nodes[l.B.Node]
		if a.Kind == Switch && b.Kind == Switch && a.Tier == b.Tier {
			return false
		}
	}
	return true
}

// routes makes the tables of all switches, or of the one switch only. The tables of the others are
// then empty.
func (g *Graph) routes(only int, down []bool, upDown bool) []Table {
	if g.Switches() == 0 {
		return nil
	}
	blocks := g.blocks()
	tables := make([]Table, g.Switches())
	seen := make([]map[string]int32, g.Switches())
	from, to := 0, len(tables)
	if only != allSwitches {
		from, to = only-g.Hosts, only-g.Hosts+1
	}
	for i := from; i < to; i++ {
		tables[i].Set = make([]int32, len(blocks))
		for b := range tables[i].Set {
			tables[i].Set[b] = -1
		}
		seen[i] = map[string]int32{}
	}
	for h := range g.Hosts {
		if down != nil && down[g.Nodes[h].Links[0]] {
			continue
		}
		at := g.Peer(h, 0)
		if only != allSwitches && at.Node != only {
			continue
		}
		t := &tables[at.Node-g.Hosts]
		t.Attached = append(t.Attached, Attached{g.Nodes[h].IP, at.Port})
	}
	var w paths
	last, flat := -1, g.flat
	key := make([]byte, 0, 2*portsMax)
	for b, leaf := range blocks {
		if leaf != last {
			w, last = g.pathsTo(leaf, down, upDown), leaf
		}
		for i := from; i < to; i++ {
			n := g.Hosts + i
			if n == leaf || w.dist[n] < 0 {
				continue
			}
			key = key[:0]
			nearer := w.dist[n] - 1
			for p, far := range flat.far[flat.first[n]:flat.first[n+1]] { // a list, by port
				if w.dist[far.Node] == nearer && g.leads(&w, n, p, int(far.Node), down) {
					key = append(key, byte(p), byte(p>>8))
				}
			}
			tables[i].Set[b] = tables[i].intern(seen[i], key)
		}
	}
	return tables
}

// flat holds the far ends of all ports in one list, for loops that visit them many times. The far
// end of port p of node n is far[first[n]+p].
type flat struct {
	first []int
	far   []shortEnd
}

type shortEnd struct{ Node, Port int32 }

func (g *Graph) flatten() flat {
	f := flat{first: make([]int, len(g.Nodes)+1)}
	for n := range g.Nodes {
		for p := range g.Nodes[n].Links {
			far := g.Peer(n, p)
			f.far = append(f.far, shortEnd{int32(far.Node), int32(far.Port)})
		}
		f.first[n+1] = len(f.far)
	}
	return f
}

// paths describes the paths from every switch to a leaf.
type paths struct {
	dist  []int  // by node: hops to the leaf, or -1 if there is no path
	falls []bool // by node: the path only goes down; nil if paths need not be up-down
}

// leads reports whether a path from switch n uses port p. Node m at the far end must be one hop
// nearer.
func (g *Graph) leads(w *paths, n, p, m int, down []bool) bool {
	if down != nil && down[g.Nodes[n].Links[p]] || g.Nodes[m].Kind != Switch {
		return false
	}
	return w.falls == nil || w.falls[n] == (g.Nodes[m].Tier < g.Nodes[n].Tier)
}

// pathsTo computes the paths to a leaf from every switch. Up-down paths go down as soon as they can.
func (g *Graph) pathsTo(leaf int, down []bool, upDown bool) paths {
	if !upDown {
		return paths{dist: g.distances(leaf, down, nil)}
	}
	higher := func(from, to int) bool { return g.Nodes[to].Tier > g.Nodes[from].Tier }
	w := paths{dist: g.distances(leaf, down, higher), falls: make([]bool, len(g.Nodes))}
	var order []int // from the top down, so that a path of a higher switch is known before it is used
	for n := g.Hosts; n < len(g.Nodes); n++ {
		w.falls[n] = w.dist[n] >= 0
		order = append(order, n)
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(g.Nodes[b].Tier) - int(g.Nodes[a].Tier) })
	for _, n := range order {
		if w.falls[n] {
			continue
		}
		for p, l := range g.Nodes[n].Links {
			m := g.Peer(n, p).Node
			if (down == nil || !down[l]) && higher(n, m) && w.dist[m] >= 0 && (w.dist[n] < 0 || w.dist[m] < w.dist[n]-1) {
				w.dist[n] = w.dist[m] + 1
			}
		}
	}
	return w
}

// intern returns the index of the set that key encodes, and adds the set if it is new.
func (t *Table) intern(seen map[string]int32, key []byte) int32 {
	if i, ok := seen[string(key)]; ok {
		return i
	}
	set := make([]uint16, 0, len(key)/2)
	for k := 0; k < len(key); k += 2 {
		set = append(set, uint16(key[k])|uint16(key[k+1])<<8)
	}
	i := int32(len(t.Sets))
	t.Sets = append(t.Sets, set)
	seen[string(key)] = i
	return i
}

// blocks returns, by block of host addresses, the leaf of its hosts.
func (g *Graph) blocks() (leaf []int) {
	for h := range g.Hosts {
		b := int(g.Nodes[h].IP >> 8 & 0xffff)
		for len(leaf) <= b {
			leaf = append(leaf, g.Peer(h, 0).Node)
		}
	}
	return leaf
}

// distances returns the number of hops from every switch to the switch to, or -1 if there is no
// path. It uses links that are not down, and steps for which allowed returns true. A step is seen
// in the direction away from to; a nil allowed allows all. Hosts do not forward.
func (g *Graph) distances(to int, down []bool, allowed func(from, to int) bool) []int {
	dist := make([]int, len(g.Nodes))
	for i := range dist {
		dist[i] = -1
	}
	dist[to] = 0
	queue := append(make([]int, 0, g.Switches()), to)
	for i := 0; i < len(queue); i++ {
		n := queue[i]
		for p, far := range g.flat.far[g.flat.first[n]:g.flat.first[n+1]] { // a list, by port
			m := int(far.Node)
			if m >= g.Hosts && dist[m] < 0 && (down == nil || !down[g.Nodes[n].Links[p]]) && (allowed == nil || allowed(n, m)) {
				dist[m] = dist[n] + 1
				queue = append(queue, m)
			}
		}
	}
	return dist
}

// shortest returns the number of hops from every switch to the switch to, over all links.
func (g *Graph) shortest(to int) []int { return g.distances(to, nil, nil) }

// Hops returns the number of links on a shortest path between two different hosts: 2 on the same
// leaf, and in a fat-tree 4 within a pod and 6 between pods. It is 1 without a switch.
func (g *Graph) Hops(a, b int) int {
	if g.Switches() == 0 {
		return 1
	}
	return 2 + g.shortest(g.Peer(b, 0).Node)[g.Peer(a, 0).Node]
}
