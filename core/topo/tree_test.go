// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestTree: a tree joins its hosts and no others, without a loop; in a fat-tree it turns
// once; different salts use different roots.
func TestTree(t *testing.T) {
	ring := must(t)(Custom(
		[]CustomNode{{"a", Host}, {"b", Host}, {"c", Host}, {"s", Switch}, {"t", Switch}, {"u", Switch}},
		[]CustomLink{{"a", "s", -1, -1, link}, {"b", "t", -1, -1, link}, {"c", "u", -1, -1, link},
			{"s", "t", -1, -1, link}, {"t", "u", -1, -1, link}, {"u", "s", -1, -1, link}}))
	for name, g := range map[string]*Graph{ // independent of each other
		"k=4": must(t)(FatTree(4, link)), "star": must(t)(Star(9, link)), "ring": ring,
		"leaf-spine": must(t)(LeafSpine(LeafSpineSpec{Leaves: 4, Spines: 3, Hosts: 3, Parallel: 2}, link)),
	} {
		tops := map[string]bool{}
		for seed := range uint64(50) {
			r := rand.New(rand.NewPCG(seed, 9))
			hosts := r.Perm(g.Hosts)[:1+r.IntN(g.Hosts)]
			tree, err := g.Tree(hosts, seed)
			if err != nil {
				t.Fatalf("%s, seed %d: %v", name, seed, err)
			}
			checkTree(t, g, tree, hosts, name == "k=4")
			for _, x := range tree {
				if g.Nodes[x.Switch].Tier == TierCore {
					tops[g.Nodes[x.Switch].Name] = true
				}
			}
		}
		if name == "k=4" && len(tops) < 3 {
			t.Errorf("50 trees of k=4 use the cores %v", tops)
		}
	}
	if _, err := ring.Tree([]int{0, 5}, 0); err == nil {
		t.Error("a switch is taken for a host")
	}
	if _, err := ring.Tree(nil, 0); err == nil {
		t.Error("a tree of nothing")
	}
}

// checkTree follows the tree from every host.
func checkTree(t *testing.T, g *Graph, tree []TreePorts, hosts []int, upDown bool) {
	t.Helper()
	ports := map[int][]uint16{}
	for _, x := range tree {
		ports[x.Switch] = x.Ports
	}
	for _, h := range hosts {
		var got []int
		steps := 0
		var follow func(e End, fell bool)
		follow = func(e End, fell bool) {
			if steps++; steps > 1000 {
				t.Fatal("the tree has a loop")
			}
			for _, p := range ports[e.Node] {
				if int(p) == e.Port {
					continue
				}
				far := g.Peer(e.Node, int(p))
				up := g.Nodes[far.Node].Tier > g.Nodes[e.Node].Tier
				if up && fell && upDown {
					t.Fatalf("the tree turns up at %s", g.Nodes[e.Node].Name)
				}
				if g.Nodes[far.Node].Kind == Host {
					got = append(got, far.Node)
					continue
				}
				follow(far, fell || !up)
			}
		}
		follow(g.Peer(h, 0), false)
		want := slices.DeleteFunc(slices.Clone(hosts), func(o int) bool { return o == h })
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("from %d the tree leads to %v, want %v", h, got, want)
		}
	}
}
