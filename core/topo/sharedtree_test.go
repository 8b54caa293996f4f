// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestSharedTree: while hosts join and leave by draw, the tables are those that would be computed afresh, every
// member gets each packet once, from any sender, and hosts that have left get none (CYC-14).
func TestSharedTree(t *testing.T) {
	for _, g := range nTrees(t) {
		r := rand.New(rand.NewPCG(14, uint64(g.Hosts)))
		x := g.NTree()
		class := r.IntN(x.Classes())
		tree, err := g.NewSharedTree(class)
		if err != nil {
			t.Fatal(err)
		}
		var members []int
		joined, left := 0, 0
		for range 200 {
			h := r.IntN(g.Hosts)
			if i, in := slices.BinarySearch(members, h); in {
				members = slices.Delete(members, i, i+1)
				err = tree.Leave(h)
				left++
			} else {
				members = slices.Insert(members, i, h)
				err = tree.Join(h)
				joined++
			}
			if err != nil {
				t.Fatal(err)
			}
			got := tree.Branches()
			if want := mustTree(t)(g.ClassTree(class, members)); !reflect.DeepEqual(got, want) {
				t.Fatalf("%v, members %v: %v, and afresh %v", x, members, got, want)
			}
			src := r.IntN(g.Hosts/x.Classes())*x.Classes() + class
			if !exact(g, got, src, members) {
				t.Fatalf("%v: from P(%s) to %v is wrong", x, x.Label(src), members)
			}
		}
		if joined == 0 || left == 0 {
			t.Errorf("%v: %d joined and %d left", x, joined, left)
		}
	}
}

// TestSharedTreeRefuses invalid joins and leaves.
func TestSharedTreeRefuses(t *testing.T) {
	g := must(t)(MPortNTree(4, 2, link))
	tree, err := g.NewSharedTree(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Join(3); err != nil || !tree.Has(3) || tree.Has(2) {
		t.Fatal(err)
	}
	before := tree.Branches()
	for want, err := range map[string]error{ // independent of each other
		"h3 is a member": tree.Join(3), "host 8 is out of range": tree.Join(8), "host -1 is out of range": tree.Join(-1), "host 2 is no member": tree.Leave(2),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if !reflect.DeepEqual(before, tree.Branches()) {
		t.Error("what was refused changed the tables")
	}
	if _, err := must(t)(Star(4, link)).NewSharedTree(0); err == nil {
		t.Error("a star has a shared tree")
	}
}
