package topo

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
func (g *Graph) Routes() []Table {
	blocks := g.blocks()
	tables := make([]Table, g.Switches())
	seen := make([]map[string]int32, g.Switches())
	for i := range tables {
		tables[i].Set = make([]int32, len(blocks))
		for b := range tables[i].Set {
			tables[i].Set[b] = -1
		}
		seen[i] = map[string]int32{}
	}
	for h := range g.Hosts {
		at := g.Peer(h, 0)
		t := &tables[at.Node-g.Hosts]
		t.Attached = append(t.Attached, Attached{g.Nodes[h].IP, at.Port})
	}
	var dist []int
	last := -1
	key := make([]byte, 0, 2*portsMax)
	for b, leaf := range blocks {
		if leaf != last {
			dist, last = g.distances(leaf), leaf
		}
		for i := range tables {
			n := g.Hosts + i
			if n == leaf || dist[n] < 0 {
				continue
			}
			key = key[:0]
			for p := range g.Nodes[n].Links {
				peer := g.Peer(n, p).Node
				if g.Nodes[peer].Kind == Switch && dist[peer] == dist[n]-1 {
					key = append(key, byte(p), byte(p>>8))
				}
			}
			tables[i].Set[b] = tables[i].intern(seen[i], key)
		}
	}
	return tables
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

// distances returns the hops from every switch to one of them, -1 if there is no way.
// Hosts do not forward.
func (g *Graph) distances(to int) []int {
	dist := make([]int, len(g.Nodes))
	for i := range dist {
		dist[i] = -1
	}
	dist[to] = 0
	queue := []int{to}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		for p := range g.Nodes[n].Links {
			m := g.Peer(n, p).Node
			if g.Nodes[m].Kind == Switch && dist[m] < 0 {
				dist[m] = dist[n] + 1
				queue = append(queue, m)
			}
		}
	}
	return dist
}

// Hops returns the links between two different hosts: 2 on one leaf, 4 in one pod of
// a fat-tree, 6 across pods.
func (g *Graph) Hops(a, b int) int {
	return 2 + g.distances(g.Peer(b, 0).Node)[g.Peer(a, 0).Node]
}
