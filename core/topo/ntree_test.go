// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/wire"
)

// nTrees are the shapes that every property is tested on.
func nTrees(t *testing.T) (all []*Graph) {
	for _, s := range [][2]int{{4, 2}, {4, 3}, {8, 2}, {8, 3}, {4, 4}, {4, 5}, {16, 2}} {
		all = append(all, must(t)(MPortNTree(s[0], s[1], link)))
	}
	return all
}

func (t *NTree) String() string { return fmt.Sprintf("IBFT(%d, %d)", t.m, t.n) }

// at returns the node of a host P(label) or a switch SW<label, level>.
func at(t *testing.T, g *Graph, name string) int {
	t.Helper()
	if i, ok := g.Find(name); ok {
		return i
	}
	for h := range g.Hosts {
		if g.nTree.Label(h) == name {
			return h
		}
	}
	t.Fatalf("no node %s", name)
	return 0
}

// TestNTreeCounts: the characteristics of §2.2, and R-Y0's 128 hosts, 80 switches, height 4.
func TestNTreeCounts(t *testing.T) {
	for _, g := range nTrees(t) {
		x := g.NTree()
		h, n := x.m/2, x.n
		if g.Hosts != 2*x.pow(n) || g.Switches() != (2*n-1)*x.pow(n-1) || x.Switches() != g.Switches() {
			t.Errorf("%v has %d hosts and %d switches", x, g.Hosts, g.Switches())
		}
		if top := g.Nodes[len(g.Nodes)-1].Tier; int(top)+1 != n+1 {
			t.Errorf("%v has height %d, want %d", x, top+1, n+1)
		}
		for i := g.Hosts; i < len(g.Nodes); i++ {
			level, w := x.At(i)
			if x.node(level, w) != i || len(g.Nodes[i].Links) != x.m {
				t.Fatalf("%v: switch %s is at node %d, not %d, with %d ports", x, g.Nodes[i].Name, i, x.node(level, w), len(g.Nodes[i].Links))
			}
			for p := range x.m { // ports 1..h go down, h+1..m up; at level 0 all go down (CYC-3)
				if up := g.Nodes[g.Peer(i, p).Node].Tier > g.Nodes[i].Tier; up != (level > 0 && p >= h) {
					t.Fatalf("%v: port %d of %s leads to %s", x, p, g.Nodes[i].Name, g.Nodes[g.Peer(i, p).Node].Name)
				}
			}
		}
		if len(g.Links)*2 != g.Hosts+g.Switches()*x.m {
			t.Errorf("%v has %d links for its ports", x, len(g.Links))
		}
		if err := g.CheckRoutes(g.Routes()); err != nil {
			t.Errorf("%v: %v", x, err)
		}
		if err := g.CheckDeadlock(g.Routes()); err != nil {
			t.Errorf("%v: %v", x, err)
		}
	}
	g := must(t)(MPortNTree(8, 3, link))
	if g.Hosts != 128 || g.Switches() != 80 || g.Nodes[len(g.Nodes)-1].Tier+1 != 4 {
		t.Errorf("IBFT(8, 3) has %d hosts, %d switches, height %d; the paper has 128, 80, 4", g.Hosts, g.Switches(), g.Nodes[len(g.Nodes)-1].Tier+1)
	}
}

// TestNTreeExamples are the paper's own examples (CYC-4, CYC-10, R-Y0).
func TestNTreeExamples(t *testing.T) {
	g := must(t)(MPortNTree(4, 3, link))
	x := g.NTree()
	host := func(label string) int { return at(t, g, label) }
	names := func(nodes []int) (s string) {
		for _, n := range nodes {
			s += g.Nodes[n].Name + " "
		}
		return s
	}
	if got := x.common(host("200"), host("211")); got != 1 {
		t.Errorf("gcp(200, 211) has %d digits, want 1", got)
	}
	if got := names(x.Ancestors(host("200"), host("211"))); got != "sw20-1 sw21-1 " {
		t.Errorf("lca(200, 211) is %s", got)
	}
	if host("200") != 8 || host("211") != 11 || x.Rank(1, 8) != 0 || x.Rank(1, 11) != 3 {
		t.Errorf("PIDs %d and %d, ranks %d and %d", host("200"), host("211"), x.Rank(1, 8), x.Rank(1, 11))
	}
	if lids, err := x.LIDs(); lids != 4 || err != nil || x.BaseLID(host("300")) != 49 {
		t.Errorf("P(300) has %d LIDs from %d on (%v), want 49 to 52", lids, x.BaseLID(host("300")), err)
	}
	for i, src := range []string{"000", "001", "010", "011"} {
		if got := x.LID(host(src), host("200")); got != 33+i {
			t.Errorf("P(%s) uses LID %d of P(200), want %d", src, got, 33+i)
		}
	}
	walk := func(src, dst string) (s string) {
		lid := x.LID(host(src), host(dst))
		for e := g.Peer(host(src), 0); e.Node >= g.Hosts; {
			p := x.Port(e.Node, lid)
			s += fmt.Sprintf("%s:%d,%d ", g.Nodes[e.Node].Name, e.Port+1, p+1)
			e = g.Peer(e.Node, p)
		}
		return s
	}
	for dst, want := range map[string]string{ // each is its own case
		"200": "sw00-2:1,3 sw00-1:1,3 sw00-0:1,3 sw20-1:3,1 sw20-2:3,1 ",
		"201": "sw00-2:1,3 sw00-1:1,3 sw00-0:1,3 sw20-1:3,1 sw20-2:3,2 ",
		"210": "sw00-2:1,3 sw00-1:1,3 sw00-0:1,3 sw20-1:3,2 sw21-2:3,1 ",
		"211": "sw00-2:1,3 sw00-1:1,3 sw00-0:1,3 sw20-1:3,2 sw21-2:3,2 ",
	} {
		if got := walk("000", dst); got != want {
			t.Errorf("000 to %s goes by %s, want %s", dst, got, want)
		}
	}
	tree, err := g.CyclicTree(host("000"), []int{host("200"), host("201"), host("210"), host("211")})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]uint16{"sw00-2": {2}, "sw00-1": {2}, "sw00-0": {2}, "sw20-1": {0, 1}, "sw20-2": {0, 1}, "sw21-2": {0, 1}}
	for _, b := range tree {
		if name := g.Nodes[b.Switch].Name; !slices.Equal(b.Ports, want[name]) || len(b.From) != 1 {
			t.Errorf("%s sends by %v and receives by %v, want %v", name, b.Ports, b.From, want[name])
		}
	}
	if len(tree) != len(want) {
		t.Errorf("%d switches have an entry, want %d", len(tree), len(want))
	}
}

// TestCyclicGroups: CG(P(200), l, y) of Fig. 5, and in general: sources with one lca level
// and one suffix, and only they, use one LID of a destination for that level (CYC-6).
func TestCyclicGroups(t *testing.T) {
	for _, g := range nTrees(t) {
		x := g.NTree()
		for dst := range g.Hosts {
			lids := map[string]int{}
			for src := range g.Hosts {
				if src == dst {
					continue
				}
				l := x.common(src, dst)
				group := fmt.Sprint(l, " ", x.Rank(l+1, src)) // the suffix of n-l-1 digits is as good as its rank
				lid := x.LID(src, dst)
				if old, ok := lids[group]; ok && old != lid || x.Owner(lid) != dst {
					t.Fatalf("%v: P(%s) sends to P(%s) by LID %d, others of its cyclic group by %d", x, x.Label(src), x.Label(dst), lid, old)
				}
				lids[group] = lid
			}
			for l := range x.n { // h^(n-l-1) groups at level l, each its own LID
				used := map[int]bool{}
				for group, lid := range lids { // a count
					if strings.HasPrefix(group, fmt.Sprint(l, " ")) {
						used[lid] = true
					}
				}
				if want := x.pow(x.n - l - 1); len(used) != want {
					t.Fatalf("%v: at level %d %d LIDs of P(%s) are used, want %d", x, l, len(used), x.Label(dst), want)
				}
			}
		}
	}
}

// path follows a LID from a host and returns the level that it reaches, the number of its links, the
// top switch, and whether it arrives without going up again.
func path(g *Graph, src, lid int) (level, links, top int, ok bool) {
	x := g.nTree
	level, fell := x.n, false
	e := g.Peer(src, 0)
	for links = 1; e.Node >= g.Hosts && links <= 2*x.n; links++ {
		l, _ := x.At(e.Node)
		p := x.Port(e.Node, lid)
		if up := l > 0 && p >= x.h; up && fell {
			return level, links, top, false
		} else if !up {
			fell = true
		}
		if l < level {
			level, top = l, e.Node
		}
		e = g.Peer(e.Node, p)
	}
	return level, links, top, e.Node == x.Owner(lid)
}

// TestNTreeRoutes: with every LID, every host reaches every other, up and then down, over
// 2(n-l) links by a least common ancestor (all of them for its own LIDs: h^l paths there
// are from a host to its ancestors of level l), and cyclic path selection goes by one of them.
func TestNTreeRoutes(t *testing.T) {
	for _, g := range nTrees(t) {
		x := g.NTree()
		paths := x.pow(x.n - 1)
		for src := range g.Hosts {
			for dst := range g.Hosts {
				if src == dst {
					continue
				}
				l := x.common(src, dst)
				tops := map[int]bool{}
				for lid := x.BaseLID(dst); lid < x.BaseLID(dst)+paths; lid++ {
					level, links, top, ok := path(g, src, lid)
					if !ok || level != l || links != 2*(x.n-l) {
						t.Fatalf("%v: P(%s) to LID %d of P(%s): arrives %v, over level %d and %d links, want %d and %d",
							x, x.Label(src), lid, x.Label(dst), ok, level, links, l, 2*(x.n-l))
					}
					tops[top] = true
				}
				ancestors := x.Ancestors(src, dst)
				if len(tops) != len(ancestors) || len(tops) != x.pow(x.n-1-l) {
					t.Fatalf("%v: P(%s) to P(%s) goes by %d top switches, there are %d ancestors", x, x.Label(src), x.Label(dst), len(tops), len(ancestors))
				}
				if _, _, top, _ := path(g, src, x.LID(src, dst)); !slices.Contains(ancestors, top) {
					t.Fatalf("%v: P(%s) to P(%s): cyclic path selection goes by %s", x, x.Label(src), x.Label(dst), g.Nodes[top].Name)
				}
			}
		}
	}
}

// TestNTreeOneClimb: whatever the destination, a source's packets climb along one path
// (CYC-9), so no packet is copied on the way up.
func TestNTreeOneClimb(t *testing.T) {
	for _, g := range nTrees(t) {
		x := g.NTree()
		for src := range g.Hosts {
			up := map[int]int{} // by switch
			for dst := range g.Hosts {
				if src == dst {
					continue
				}
				lid := x.LID(src, dst)
				for e := g.Peer(src, 0); ; {
					p := x.Port(e.Node, lid)
					if l, _ := x.At(e.Node); l == 0 || p < x.h {
						break
					}
					if old, ok := up[e.Node]; ok && old != p {
						t.Fatalf("%v: P(%s) climbs from %s by ports %d and %d", x, x.Label(src), g.Nodes[e.Node].Name, old, p)
					}
					up[e.Node] = p
					e = g.Peer(e.Node, p)
				}
			}
		}
	}
}

// spread follows a packet of a source through a group's table and returns the number of copies that
// each host gets, and of links that it crosses. A loop shows as a packet that crosses too many.
func spread(g *Graph, tree []wire.MulticastEntry, src int) (got map[int]int, links int) {
	table := map[int]wire.MulticastEntry{}
	for _, b := range tree {
		table[b.Switch] = b
	}
	got = map[int]int{}
	for queue := []End{g.Peer(src, 0)}; len(queue) > 0 && links <= 4*len(g.Links); links++ {
		e := queue[0]
		queue = queue[1:]
		if e.Node < g.Hosts {
			got[e.Node]++
			continue
		}
		b, ok := table[e.Node]
		if in := uint16(e.Port); !ok || !slices.Contains(b.Ports, in) && !slices.Contains(b.From, in) {
			continue
		}
		for _, p := range b.Ports {
			if int(p) != e.Port {
				queue = append(queue, g.Peer(e.Node, int(p)))
			}
		}
	}
	return got, links
}

// exact reports whether each member but the source gets one copy and no other host any.
func exact(g *Graph, tree []wire.MulticastEntry, src int, members []int) bool {
	got, _ := spread(g, tree, src)
	for _, m := range members {
		if m != src && got[m] != 1 {
			return false
		}
		delete(got, m)
	}
	return len(got) == 0
}

// draw returns a random group.
func draw(r *rand.Rand, g *Graph) []int {
	all := r.Perm(g.Hosts)[:2+r.IntN(g.Hosts-1)]
	slices.Sort(all)
	return all
}

// TestMulticastTables: 0 duplicates and omissions over random groups and, for each, every
// source, member or not (R-Y6).
func TestMulticastTables(t *testing.T) {
	for _, g := range nTrees(t) {
		r := rand.New(rand.NewPCG(1, uint64(g.Hosts)))
		x := g.NTree()
		tries := max(4, 1500/g.Hosts)
		if testing.Short() {
			tries = 4
		}
		for range tries {
			members := draw(r, g)
			classes := make([][]wire.MulticastEntry, x.Classes())
			var all []int
			for c := range classes {
				classes[c] = mustTree(t)(g.ClassTree(c, members))
			}
			for h := range g.Hosts {
				all = append(all, h)
			}
			one := mustTree(t)(g.SpanningTree(members, all, nil))
			for _, src := range all {
				if !exact(g, mustTree(t)(g.CyclicTree(src, members)), src, members) {
					t.Fatalf("%v: cyclic tree of P(%s) to %v is wrong", x, x.Label(src), members)
				}
				if !exact(g, classes[x.Class(src)], src, members) {
					t.Fatalf("%v: class tree of P(%s) to %v is wrong", x, x.Label(src), members)
				}
				if !exact(g, one, src, members) {
					t.Fatalf("%v: spanning tree from P(%s) to %v is wrong", x, x.Label(src), members)
				}
			}
		}
	}
}

func mustTree(t *testing.T) func([]wire.MulticastEntry, error) []wire.MulticastEntry {
	return func(b []wire.MulticastEntry, err error) []wire.MulticastEntry {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

// TestTableSizes: of one group a switch has an entry per source with cyclic trees, one per
// class, at most h^(n-1), and one with OpenSM's tree; a source's cyclic tree has no switch
// off its paths, and a class's hangs from one top switch.
func TestTableSizes(t *testing.T) {
	g := must(t)(MPortNTree(8, 3, link))
	x := g.NTree()
	r := rand.New(rand.NewPCG(2, 3))
	for range 20 {
		members := draw(r, g)
		roots := map[int]bool{}
		for c := range x.Classes() {
			tree := mustTree(t)(g.ClassTree(c, members))
			if len(tree) > g.Switches() {
				t.Errorf("%d switches have an entry", len(tree))
			}
			_, _, top, _ := path(g, c, x.classLID(c, g.Hosts-1)) // from the first host of the class to the last host
			roots[top] = true
		}
		if len(roots) != x.Classes() {
			t.Errorf("the classes of sources hang from %d top switches, want %d", len(roots), x.Classes())
		}
		for src := range g.Hosts {
			used := map[int]bool{}
			for _, m := range members {
				if m == src {
					continue
				}
				for e := g.Peer(src, 0); e.Node >= g.Hosts; e = g.Peer(e.Node, x.Port(e.Node, x.LID(src, m))) {
					used[e.Node] = true
				}
			}
			if tree := mustTree(t)(g.CyclicTree(src, members)); len(tree) != len(used) {
				t.Errorf("the cyclic tree of P(%s) has %d switches, its paths %d", x.Label(src), len(tree), len(used))
			}
		}
	}
	if x.Classes() != 16 {
		t.Errorf("IBFT(8, 3) has %d classes, want 16", x.Classes())
	}
}

// everySwitch is the table as §3.3.2 has it literally: the union in each switch, with the
// LIDs that the source selects.
func everySwitch(g *Graph, src int, members []int) []wire.MulticastEntry {
	x := g.nTree
	ports, from := make([]portSet, g.Switches()), make([]portSet, g.Switches())
	for i := range ports {
		for p := range x.m {
			from[i].add(p)
		}
		for _, d := range members {
			if d != src {
				ports[i].add(x.Port(g.Hosts+i, x.LID(src, d)))
			}
		}
	}
	return g.branches(ports, from)
}

// TestUnionInEverySwitchFails: the literal reading loops or duplicates where members have
// lca levels that differ (CYC-11, FLT-21), and is right where all have the same (CON-19).
func TestUnionInEverySwitchFails(t *testing.T) {
	for _, c := range []struct {
		m, n int
	}{{4, 3}, {8, 3}} {
		g := must(t)(MPortNTree(c.m, c.n, link))
		x := g.NTree()
		r := rand.New(rand.NewPCG(4, uint64(c.m)))
		wrong, right := 0, 0
		for range 240 {
			src, members := r.IntN(g.Hosts), draw(r, g)
			same := true
			for _, m := range members {
				same = same && (m == src || x.common(src, m) == 0)
			}
			switch ok := exact(g, everySwitch(g, src, members), src, members); {
			case !ok && same:
				t.Errorf("%v: P(%s) to %v fails although all members have lca level 0", x, x.Label(src), members)
			case !ok:
				wrong++
			case same:
				right++
			}
			if !exact(g, mustTree(t)(g.CyclicTree(src, members)), src, members) {
				t.Errorf("%v: union on paths fails too: P(%s) to %v", x, x.Label(src), members)
			}
		}
		t.Logf("%v: the union in every switch fails for %d of 240 groups; right for %d with one lca level", x, wrong, right)
		if wrong < 60 {
			t.Errorf("%v: the union in every switch fails for %d of 240 groups only", x, wrong)
		}
	}
}

// TestDuplicationOnTheWayUpFails is Fig. 3c: a switch that copies a packet to two upward
// ports makes members get several copies (CYC-13).
func TestDuplicationOnTheWayUpFails(t *testing.T) {
	g := must(t)(MPortNTree(8, 2, link))
	x := g.NTree()
	src, members := at(t, g, "00"), []int{at(t, g, "60"), at(t, g, "70"), at(t, g, "71")}
	tree := mustTree(t)(g.CyclicTree(src, members))
	if !exact(g, tree, src, members) {
		t.Fatal("the tree itself is wrong")
	}
	leaf := g.Peer(src, 0).Node
	top := mustTree(t)(g.ClassTree(x.Class(src)+1, members))
	i := slices.IndexFunc(tree, func(b wire.MulticastEntry) bool { return b.Switch == leaf })
	other := slices.IndexFunc(top, func(b wire.MulticastEntry) bool { l, _ := x.At(b.Switch); return l == 0 && slices.Contains(b.Ports, 6) })
	up := tree[i].Ports[0]
	tree[i].Ports = append(tree[i].Ports, up+1)
	far := g.Peer(leaf, int(up)+1).Node
	tree = append(tree, wire.MulticastEntry{Switch: far, Ports: top[other].Ports, From: []uint16{0}})
	for _, m := range members { // the descending leaves take packets from either top switch
		l := g.Peer(m, 0).Node
		j := slices.IndexFunc(tree, func(b wire.MulticastEntry) bool { return b.Switch == l })
		tree[j].From = append(tree[j].From, up+1)
	}
	if got, _ := spread(g, tree, src); got[members[0]] < 2 || got[members[2]] < 2 {
		t.Errorf("copies: %v; members should get several", got)
	}
}

// TestSpanningTreeRoot: with all hosts in the group the root is the first top switch, or the
// one that is chosen; with members on one leaf it is that leaf.
func TestSpanningTreeRoot(t *testing.T) {
	g := must(t)(MPortNTree(4, 3, link))
	var all []int
	for h := range g.Hosts {
		all = append(all, h)
	}
	tops := 0
	for _, b := range mustTree(t)(g.SpanningTree(all, nil, nil)) {
		if g.Nodes[b.Switch].Tier == 3 {
			tops++
			if g.Nodes[b.Switch].Name != "sw00-0" {
				t.Errorf("the tree of all hosts hangs from %s", g.Nodes[b.Switch].Name)
			}
		}
	}
	if tops != 1 {
		t.Errorf("the tree has %d top switches", tops)
	}
	for i := range 4 { // all four top switches are equally near to all hosts
		tree := mustTree(t)(g.SpanningTree(all, nil, func(roots int) int {
			if roots != 4 {
				t.Errorf("%d switches to choose from", roots)
			}
			return i
		}))
		name := g.Nodes[tree[slices.IndexFunc(tree, func(b wire.MulticastEntry) bool { return g.Nodes[b.Switch].Tier == 3 })].Switch].Name
		if want := fmt.Sprintf("sw%d%d-0", i/2, i%2); name != want || !exact(g, tree, 0, all) {
			t.Errorf("choice %d: the tree hangs from %s, want %s", i, name, want)
		}
	}
	if tree := mustTree(t)(g.SpanningTree([]int{4, 5}, nil, nil)); len(tree) != 1 || g.Nodes[tree[0].Switch].Name != "sw10-2" {
		t.Errorf("the tree of two hosts of one leaf is %+v", tree)
	}
	tree := mustTree(t)(g.SpanningTree([]int{4, 5}, []int{0}, nil))
	if !exact(g, tree, 0, []int{4, 5}) || !exact(g, tree, 4, []int{4, 5}) {
		t.Errorf("a host that only sends is not attached: %+v", tree)
	}
	if _, links := spread(g, tree, 4); links != 2 {
		t.Errorf("a packet between two hosts of a leaf crosses %d links: it goes to hosts that only send", links)
	}
	if _, err := g.SpanningTree(nil, nil, nil); err == nil {
		t.Error("a tree without members")
	}
}

// TestMLIDsSuffice: where there are LIDs there are multicast LIDs for three trees per host
// (many-to-many takes one of each kind for each source), since there are 512 hosts at most.
func TestMLIDsSuffice(t *testing.T) {
	most := 0
	for m := 4; m <= portsMax; m += 2 {
		for n := 2; ; n++ {
			x, err := NewNTree(m, n)
			if err != nil {
				break
			}
			if _, err := x.LIDs(); err == nil {
				most = max(most, x.Hosts())
			}
		}
	}
	if most != 512 || 3*most > MLIDLast-MLIDFirst+1 {
		t.Errorf("there are up to %d hosts with LIDs, and %d multicast LIDs", most, MLIDLast-MLIDFirst+1)
	}
}

// TestNTreeRefused: shapes that cannot be, and LIDs that cannot.
func TestNTreeRefused(t *testing.T) {
	for _, c := range []struct {
		m, n int
		want string
	}{{3, 2, "even"}, {2, 3, "4 to"}, {256, 2, "4 to 254"}, {8, 1, "star"}, {8, 0, "star"}, {4, 16, "more than"}, {254, 3, "more than"}} {
		if _, err := MPortNTree(c.m, c.n, link); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("IBFT(%d, %d): %v, want %q", c.m, c.n, err, c.want)
		}
	}
	for _, c := range []struct {
		m, n int
		want string
	}{{6, 2, "power of two"}, {4, 9, "LMC has three bits"}, {64, 2, "hosts need"}} {
		x, err := NewNTree(c.m, c.n)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.LIDs(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("LIDs of IBFT(%d, %d): %v, want %q", c.m, c.n, err, c.want)
		}
	}
	g := must(t)(MPortNTree(6, 2, link)) // a fabric all the same
	if err := g.CheckRoutes(g.Routes()); err != nil {
		t.Error(err)
	}
	star := must(t)(Star(4, link))
	if _, err := star.CyclicTree(0, []int{1}); err == nil {
		t.Error("cyclic tree on a star")
	}
	if _, err := star.ClassTree(0, []int{1}); err == nil {
		t.Error("class tree on a star")
	}
}
