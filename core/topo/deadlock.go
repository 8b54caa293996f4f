// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"math/bits"
	"slices"
	"strings"
)

// DeadlockError is a ring of links in which frames on each link can wait for buffer space at the
// end of the next. Under PFC all of them may stop for ever.
type DeadlockError struct {
	// Ring holds the sending ports of the links, in order. Each link waits for the next, and the
	// last waits for the first.
	Ring  []End
	nodes []string
}

// Error names the switches of the ring.
func (e *DeadlockError) Error() string {
	return "priority flow control can deadlock: frames wait for room in a ring, " + strings.Join(e.nodes, " > ")
}

// CheckDeadlock searches the graph of buffer dependencies for a ring (promise D11). A vertex is a
// channel: one direction of a link in one lossless priority. There is an edge from one channel to
// another if frames that arrived by the first may have to wait for the second. No frame changes its
// priority, so the graph is the same for every priority and is checked once. Edges come from
//
//   - unicast routes: every port of every equal-cost set toward a block, for traffic that can reach
//     the switch;
//   - multicast trees: every tree that registration can produce with these routes (CEP-12, CEP-13),
//     with data from any member and feedback to it. The ports that a tree takes depend on loads, so
//     all choices count. In a graph with tiers a tree has at most one upward port per switch, which
//     virtswitch enforces (Config.Up).
//
// A returned error is a *DeadlockError.
func (g *Graph) CheckDeadlock(tables []Table) error {
	return newDependencies(g, tables, !g.byHand).ring()
}

// portSet is a set of a switch's ports.
type portSet [(portsMax + 63) / 64]uint64

func (s *portSet) add(p int)      { s[p>>6] |= 1 << (p & 63) }
func (s *portSet) has(p int) bool { return s[p>>6]>>(p&63)&1 != 0 }
func (s *portSet) without(p int) portSet {
	t := *s
	t[p>>6] &^= 1 << (p & 63)
	return t
}

func (s *portSet) join(t portSet) {
	for i := range s {
		s[i] |= t[i]
	}
}

func (s *portSet) minus(t *portSet) portSet {
	u := *s
	for i := range u {
		u[i] &^= t[i]
	}
	return u
}

// next returns the lowest member from p on, or -1.
func (s *portSet) next(p int) int {
	for w := p >> 6; w < len(s); w++ {
		x := s[w]
		if w == p>>6 {
			x &= ^uint64(0) << (p & 63)
		}
		if x != 0 {
			return w<<6 | bits.TrailingZeros64(x)
		}
	}
	return -1
}

// dependencies is the graph of buffer dependencies. The number of a channel is that of the port at
// which it arrives: first[node] + port.
type dependencies struct {
	g      *Graph
	tables []Table
	flat               // first gives the numbers of channels
	sets   [][]portSet // by switch: its sets of equal-cost ports
	up     []portSet   // by switch: ports to a higher tier; nil if trees may take any port
	routes []portSet   // by channel: ports by which unicast traffic from it leaves
	next   []portSet   // by channel: routes, plus the ports that trees add
}

func newDependencies(g *Graph, tables []Table, oneUp bool) *dependencies {
	d := &dependencies{g: g, tables: tables, flat: g.flat}
	d.routes = make([]portSet, d.first[len(g.Nodes)])
	if oneUp {
		d.up = make([]portSet, g.Switches())
		for i := range d.up {
			for p, up := range g.Up(g.Hosts + i) {
				if up {
					d.up[i].add(p)
				}
			}
		}
	}
	d.addRoutes()
	d.next = append([]portSet(nil), d.routes...)
	for v := g.Hosts; v < len(g.Nodes); v++ {
		for in := range g.Nodes[v].Links {
			d.addTrees(v, in)
		}
	}
	return d
}

// exits returns the ports by which a switch sends toward a block.
func (d *dependencies) exits(v, block int) (s portSet) {
	t := &d.tables[v-d.g.Hosts]
	if set := t.Set[block]; set >= 0 {
		return d.sets[v-d.g.Hosts][set]
	}
	for _, a := range t.Attached {
		if int(a.IP>>8&0xffff) == block {
			s.add(a.Port)
		}
	}
	return s
}

// addRoutes follows the unicast traffic from all hosts to each block.
func (d *dependencies) addRoutes() {
	g := d.g
	d.sets = make([][]portSet, g.Switches())
	for i, t := range d.tables {
		d.sets[i] = make([]portSet, len(t.Sets))
		for k, set := range t.Sets {
			for _, p := range set {
				d.sets[i][k].add(int(p))
			}
		}
	}
	from := make([]portSet, g.Switches()) // by switch: ports by which the traffic of its own hosts leaves
	came := make([]int, len(d.routes))    // by channel: 1 + the last block whose traffic reached it
	seen := make([]int, g.Switches())     // by switch: 1 + the last block whose traffic reached it
	var queue []End
	for b := range g.blocks() {
		visit := func(v int) {
			if seen[v-g.Hosts] == b+1 {
				return
			}
			seen[v-g.Hosts] = b + 1
			exits := d.exits(v, b)
			for p := exits.next(0); p >= 0; p = exits.next(p + 1) {
				far := d.far[d.first[v]+p]
				if c := d.first[far.Node] + int(far.Port); int(far.Node) >= g.Hosts && came[c] != b+1 {
					came[c] = b + 1
					queue = append(queue, End{int(far.Node), int(far.Port)})
				}
			}
		}
		for i := range d.tables {
			if len(d.tables[i].Attached) > 0 {
				from[i].join(d.exits(g.Hosts+i, b))
				visit(g.Hosts + i)
			}
		}
		for len(queue) > 0 {
			a := queue[len(queue)-1]
			queue = queue[:len(queue)-1]
			exits := d.exits(a.Node, b)
			d.routes[d.first[a.Node]+a.Port].join(exits.without(a.Port))
			visit(a.Node)
		}
	}
	for i := range d.tables {
		for _, a := range d.tables[i].Attached {
			d.routes[d.first[g.Hosts+i]+a.Port] = from[i].without(a.Port)
		}
	}
}

// addTrees adds the dependencies of trees whose registration arrives at switch v by port in. The
// registration leaves by some of the exits of unicast traffic. Data and feedback may then arrive by
// any of these ports and leave by any other.
func (d *dependencies) addTrees(v, in int) {
	exits := d.routes[d.first[v]+in]
	for q := exits.next(0); q >= 0; q = exits.next(q + 1) {
		c := &d.next[d.first[v]+q]
		c.add(in)
		others := exits.without(q)
		if d.up != nil && d.up[v-d.g.Hosts].has(q) {
			others = others.minus(&d.up[v-d.g.Hosts])
		}
		c.join(others)
	}
}

// visit is one channel on the current path of the search for a ring.
type visit struct {
	v, in int // the channel arrives at this port
	exit  int // the last exit that was followed
}

// ring returns a *DeadlockError if some channels wait for each other in a ring.
func (d *dependencies) ring() error {
	const fresh, open, done = 0, 1, 2
	state := make([]uint8, len(d.next))
	var path []visit
	for start := range state {
		if state[start] != fresh {
			continue
		}
		v, _ := slices.BinarySearch(d.first, start+1)
		path = append(path[:0], visit{v - 1, start - d.first[v-1], -1})
		state[start] = open
		for len(path) > 0 {
			s := &path[len(path)-1]
			c := d.first[s.v] + s.in
			if s.exit = d.next[c].next(s.exit + 1); s.exit < 0 {
				state[c] = done
				path = path[:len(path)-1]
				continue
			}
			far := d.g.Peer(s.v, s.exit)
			switch to := d.first[far.Node] + far.Port; state[to] {
			case fresh:
				state[to] = open
				path = append(path, visit{far.Node, far.Port, -1})
			case open:
				return d.found(path, far)
			}
		}
	}
	return nil
}

// found returns the error of the ring that closes when the last channel of the path waits for the
// one that arrives at the given end.
func (d *dependencies) found(path []visit, at End) error {
	from := slices.IndexFunc(path, func(s visit) bool { return s.v == at.Node && s.in == at.Port })
	e := &DeadlockError{}
	for _, s := range path[from:] {
		sender := d.g.Peer(s.v, s.in)
		e.Ring = append(e.Ring, sender)
		e.nodes = append(e.nodes, d.g.Nodes[sender.Node].Name)
	}
	e.nodes = append(e.nodes, e.nodes[0])
	return e
}
