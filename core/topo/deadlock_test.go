// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"errors"
	"slices"
	"testing"
)

// wantRing fails the test unless there is a ring whose links follow each other.
func wantRing(t *testing.T, g *Graph, err error) {
	t.Helper()
	var e *DeadlockError
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want a ring", err)
	}
	for i, x := range e.Ring {
		next := e.Ring[(i+1)%len(e.Ring)]
		if g.Peer(x.Node, x.Port).Node != next.Node {
			t.Errorf("%v: the link from %s does not lead to %s", err, g.PortName(x), g.PortName(next))
		}
	}
}

// TestNoDeadlock: the routes of every shape, multicast trees included, have no ring of
// buffer dependencies.
func TestNoDeadlock(t *testing.T) {
	for name, g := range map[string]*Graph{ // independent of each other
		"k=4":        must(t)(FatTree(4, link)),
		"k=8":        must(t)(FatTree(8, link)),
		"FT1024":     must(t)(ThreeLayer(FT1024(), link)),
		"leaf-spine": must(t)(LeafSpine(LeafSpineSpec{Leaves: 4, Spines: 3, Hosts: 2, Parallel: 2}, link)),
		"star":       must(t)(Star(8, link)),
	} {
		if err := g.CheckDeadlock(g.Routes()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := g.RoutesWithout(); !slices.EqualFunc(got, g.Routes(), sameTable) {
			t.Errorf("%s: routes without a failure are not the routes", name)
		}
		for i, all := range g.Routes() {
			if !sameTable(g.RoutesAt(g.Hosts+i), all) {
				t.Errorf("%s: the routes at %s are not those", name, g.Nodes[g.Hosts+i].Name)
			}
		}
	}
}

func sameTable(a, b Table) bool {
	return slices.Equal(a.Set, b.Set) && slices.Equal(a.Attached, b.Attached) &&
		slices.EqualFunc(a.Sets, b.Sets, func(x, y []uint16) bool { return slices.Equal(x, y) })
}

// failures calls f with every single and every double failure of a link.
func failures(g *Graph, f func(failed ...int)) (n int) {
	for a := range g.Links {
		f(a)
		n++
		for b := range a {
			f(b, a)
			n++
		}
	}
	return n
}

// TestNoDeadlockAfterFailures: after every single and every double link failure of the k=4 fat-tree,
// with routes computed again, there is no ring (promise D11), and routes are right: a packet reaches
// its leaf over links that work, never up after down, from every leaf from which there is such a way.
func TestNoDeadlockAfterFailures(t *testing.T) {
	g := must(t)(FatTree(4, link))
	n := failures(g, func(failed ...int) {
		tables := g.RoutesWithout(failed...)
		if err := g.CheckDeadlock(tables); err != nil {
			t.Errorf("without %s: %v", linkNames(g, failed), err)
		}
		checkUpDown(t, g, tables, failed)
		one := failed[0] % g.Switches()
		if !sameTable(g.RoutesAt(g.Hosts+one, failed...), tables[one]) {
			t.Errorf("without %s: the routes at %s are not those", linkNames(g, failed), g.Nodes[g.Hosts+one].Name)
		}
	})
	if n != 48+48*47/2 {
		t.Errorf("%d failures, want 48 single and 1128 double ones", n)
	}
}

// TestNoDeadlockAfterSwitchFailures: the same with one or two switches gone.
func TestNoDeadlockAfterSwitchFailures(t *testing.T) {
	g := must(t)(FatTree(4, link))
	n := 0
	for a := g.Hosts; a < len(g.Nodes); a++ {
		for b := g.Hosts; b <= a; b++ {
			n++
			failed := slices.Concat(g.Nodes[a].Links, g.Nodes[b].Links)
			tables := g.RoutesWithout(failed...)
			if err := g.CheckDeadlock(tables); err != nil {
				t.Errorf("without %s and %s: %v", g.Nodes[a].Name, g.Nodes[b].Name, err)
			}
			checkUpDown(t, g, tables, failed)
		}
	}
	if n != 210 {
		t.Errorf("%d failures, want 20 single and 190 double ones", n)
	}
}

func linkNames(g *Graph, links []int) (names []string) {
	for _, l := range links {
		names = append(names, g.LinkName(l))
	}
	return names
}

// checkUpDown walks every path of the tables and compares reach with a plain search.
func checkUpDown(t *testing.T, g *Graph, tables []Table, failed []int) {
	t.Helper()
	for b, leaf := range g.blocks() {
		reach := upDownReach(g, leaf, failed)
		for from := g.Hosts; g.Nodes[from].Tier == TierLeaf; from++ {
			if from == leaf {
				continue
			}
			if has := tables[from-g.Hosts].Set[b] >= 0; has != reach[from] {
				t.Fatalf("without %s: %s has a route to %s: %v, there is an up-down path: %v",
					linkNames(g, failed), g.Nodes[from].Name, g.Nodes[leaf].Name, has, reach[from])
			}
			if reach[from] && !walk(g, tables, b, leaf, from, false, failed) {
				t.Fatalf("without %s: from %s to %s a packet is lost, or goes up after down", linkNames(g, failed), g.Nodes[from].Name, g.Nodes[leaf].Name)
			}
		}
	}
}

// walk follows all routes from a switch to a leaf.
func walk(g *Graph, tables []Table, block, leaf, at int, fell bool, failed []int) bool {
	if at == leaf {
		return true
	}
	set := tables[at-g.Hosts].Set[block]
	if set < 0 {
		return false
	}
	for _, p := range tables[at-g.Hosts].Sets[set] {
		far := g.Peer(at, int(p)).Node
		up := g.Nodes[far].Tier > g.Nodes[at].Tier
		if up && fell || slices.Contains(failed, g.Nodes[at].Links[p]) || !walk(g, tables, block, leaf, far, fell || !up, failed) {
			return false
		}
	}
	return true
}

// upDownReach searches from a leaf, up first and then down, for the leaves it can reach;
// such paths are the same in both directions.
func upDownReach(g *Graph, leaf int, failed []int) map[int]bool {
	type place struct {
		n    int
		fell bool
	}
	seen := map[place]bool{{leaf, false}: true}
	queue := []place{{leaf, false}}
	reach := map[int]bool{leaf: true}
	for len(queue) > 0 {
		x := queue[0]
		queue = queue[1:]
		for p, l := range g.Nodes[x.n].Links {
			m := g.Peer(x.n, p).Node
			up := g.Nodes[m].Tier > g.Nodes[x.n].Tier
			y := place{m, x.fell || !up}
			if g.Nodes[m].Kind == Host || slices.Contains(failed, l) || up && x.fell || seen[y] {
				continue
			}
			seen[y], reach[m] = true, true
			queue = append(queue, y)
		}
	}
	return reach
}

// TestDeadlockFound: routings that are wrong on purpose.
func TestDeadlockFound(t *testing.T) {
	t.Run("ring of switches", func(t *testing.T) {
		nodes := []CustomNode{}
		var links []CustomLink
		names := []string{"s0", "s1", "s2", "s3", "s4"}
		for i, s := range names {
			h := "h" + s[1:]
			nodes = append(nodes, CustomNode{h, Host}, CustomNode{s, Switch})
			links = append(links, CustomLink{h, s, -1, -1, link}, CustomLink{s, names[(i+1)%len(names)], -1, -1, link})
		}
		g := must(t)(Custom(nodes, links))
		wantRing(t, g, g.CheckDeadlock(g.Routes()))
	})
	t.Run("shortest paths after failures", func(t *testing.T) {
		// leaf0 keeps agg1 only and leaf2 agg2 only: the paths between them that are left
		// go down to another leaf and up again.
		g := must(t)(FatTree(4, link))
		down := make([]bool, len(g.Links))
		for i := range g.Links {
			down[i] = g.LinkName(i) == "leaf0:2-agg0:0" || g.LinkName(i) == "leaf2:3-agg3:0"
		}
		wantRing(t, g, g.CheckDeadlock(g.routes(allSwitches, down, false)))
	})
	t.Run("trees with two ports up", func(t *testing.T) {
		// Unicast is up-down, but a member behind each of two ports up makes a leaf turn
		// packets up that came from above.
		g := must(t)(FatTree(4, link))
		var failed []int
		for i := range g.Links {
			if n := g.LinkName(i); n == "leaf0:2-agg0:0" || n == "leaf2:3-agg3:0" {
				failed = append(failed, i)
			}
		}
		tables := g.RoutesWithout(failed...)
		if err := g.CheckDeadlock(tables); err != nil {
			t.Error(err)
		}
		wantRing(t, g, newDependencies(g, tables, false).ring())
	})
	t.Run("one table bent", func(t *testing.T) {
		g := must(t)(FatTree(4, link))
		tables := g.Routes()
		for i := range 2 { // leaf0 and leaf1 send packets for the other's hosts up and down again
			other := 1 - i
			set := int32(len(tables[i].Sets))
			tables[i].Sets = append(tables[i].Sets, []uint16{2, 3})
			tables[i].Set[other] = set
		}
		for i := range tables { // and both aggregation switches of the pod send it to the wrong one
			if name := g.Nodes[g.Hosts+i].Name; name == "agg0" || name == "agg1" {
				tables[i].Set[0], tables[i].Set[1] = tables[i].Set[1], tables[i].Set[0]
			}
		}
		wantRing(t, g, g.CheckDeadlock(tables))
	})
}

func BenchmarkCheckDeadlock(b *testing.B) {
	for name, s := range map[string]ThreeLayerSpec{"FT1024": FT1024(), "FT16384": FT16384()} { // independent of each other
		b.Run(name, func(b *testing.B) {
			g := must(b)(ThreeLayer(s, link))
			tables := g.Routes()
			for b.Loop() {
				if err := g.CheckDeadlock(tables); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
