package topo

import "slices"

// Table is the unicast routing of one switch.
type Table struct {
	// Sets holds the distinct sets of equal-cost ports, each ascending.
	Sets [][]uint16
	// Set is, per block of host addresses, an index into Sets, or -1 for a block that
	// is attached here or out of reach.
	Set []int32
	// Attached are the hosts at this switch.
	Attached []Attached
}

// Attached is a host at a port.
type Attached struct {
	IP   uint32
	Port int
}

// Routes returns the shortest-path routing of every switch, in node order: toward a
// host all ports whose neighbour is one hop nearer to the host's leaf. In a fat-tree
// these are the up-down paths.
func (g *Graph) Routes() []Table { return g.routes(allSwitches, nil, false) }

// RoutesWithout returns the routing once the given links have failed. In a graph whose
// switches stand in tiers paths go up and then down, never up again, also where a
// longer way round is the only one left: such ways make PFC deadlock possible, so a
// host without an up-down path has no route. In other graphs paths are the shortest.
func (g *Graph) RoutesWithout(failed ...int) []Table {
	return g.routes(allSwitches, g.marked(failed), g.tiered())
}

// RoutesAt returns the routing of one switch: that of Routes, or of RoutesWithout if links
// have failed. It takes a fraction of their time.
func (g *Graph) RoutesAt(node int, failed ...int) Table {
	if len(failed) == 0 {
		return g.routes(node, nil, false)[node-g.Hosts]
	}
	return g.routes(node, g.marked(failed), g.tiered())[node-g.Hosts]
}

// allSwitches is in place of the one switch whose routes are wanted.
const allSwitches = -1

// marked returns which links are among those that have failed.
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

// routes makes the tables of all switches, or of one; those of the others are empty.
func (g *Graph) routes(only int, down []bool, upDown bool) []Table {
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
	var w way
	last, flat := -1, g.flat
	key := make([]byte, 0, 2*portsMax)
	for b, leaf := range blocks {
		if leaf != last {
			w, last = g.wayTo(leaf, down, upDown), leaf
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

// flat is the ends of all links in one list, for what looks at each of them many times: the
// far end of port p of node n is far[first[n]+p].
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

// way is how far every switch is from a leaf, -1 if there is no way.
type way struct {
	dist  []int
	falls []bool // switches from which the way only goes down; nil: ways need not be up-down
}

// leads reports whether the way from switch n goes by port p, beyond which is node m, one
// step nearer.
func (g *Graph) leads(w *way, n, p, m int, down []bool) bool {
	if down != nil && down[g.Nodes[n].Links[p]] || g.Nodes[m].Kind != Switch {
		return false
	}
	return w.falls == nil || w.falls[n] == (g.Nodes[m].Tier < g.Nodes[n].Tier)
}

// wayTo measures the way to a leaf from everywhere. Up-down ways go down as soon as
// they can.
func (g *Graph) wayTo(leaf int, down []bool, upDown bool) way {
	if !upDown {
		return way{dist: g.distances(leaf, down, nil)}
	}
	higher := func(from, to int) bool { return g.Nodes[to].Tier > g.Nodes[from].Tier }
	w := way{dist: g.distances(leaf, down, higher), falls: make([]bool, len(g.Nodes))}
	var order []int // from the top down: a way up is known before it is used
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

// intern returns the index of the set spelled by key, adding it if it is new.
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

// blocks returns, per block of host addresses, the switch its hosts are at.
func (g *Graph) blocks() (leaf []int) {
	for h := range g.Hosts {
		b := int(g.Nodes[h].IP >> 8 & 0xffff)
		for len(leaf) <= b {
			leaf = append(leaf, g.Peer(h, 0).Node)
		}
	}
	return leaf
}

// distances returns the hops from every switch to one of them by links that are not
// down and steps that are allowed (nil: all), seen from that one; -1 if there is no way.
// Hosts do not forward.
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

// shortest returns the hops from every switch to one of them.
func (g *Graph) shortest(to int) []int { return g.distances(to, nil, nil) }

// Hops returns the links between two different hosts: 2 on one leaf, 4 in one pod of
// a fat-tree, 6 across pods.
func (g *Graph) Hops(a, b int) int {
	return 2 + g.shortest(g.Peer(b, 0).Node)[g.Peer(a, 0).Node]
}
