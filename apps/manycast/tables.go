// SPDX-License-Identifier: Apache-2.0

package manycast

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// tables fills the multicast tables of switches, as a subnet manager does (CYC-14).
type tables struct {
	*side
	graph  *topo.Graph
	shared map[int]*topo.SharedTree // by multicast LID: trees of a class, whose members join and leave
	there  []wire.MulticastEntry    // entries in the switches
}

// fill installs the entries of an iteration. It returns their number, and the number of entries in all switches that
// were set, changed or removed for it.
func (t *tables) fill(iteration int, scheme string, sources []int, groups [][]int) (entries, updates int, err error) {
	var all []wire.MulticastEntry
	done := map[int]bool{}
	for i, src := range sources {
		mlid := t.mlid(scheme, src)
		if scheme == Unicast || done[mlid] {
			continue
		}
		done[mlid] = true
		tree, err := t.tree(iteration, scheme, mlid, i, sources, groups[i])
		if err != nil {
			return 0, 0, err
		}
		for _, b := range tree {
			b.Group = topo.MLIDAddress(mlid)
			all = append(all, b)
		}
	}
	updates = changed(t.there, all)
	t.there = all
	return len(all), updates, rankrun.Of(t.r).SetBranches(all)
}

// tree returns the entries of the group to which source i sends.
func (t *tables) tree(iteration int, scheme string, mlid, i int, sources, members []int) ([]wire.MulticastEntry, error) {
	switch scheme {
	case Cyclic:
		return t.graph.CyclicTree(sources[i], members)
	case CyclicClass:
		return t.move(mlid, t.side.tree.Class(sources[i]), members)
	}
	senders := sources
	if t.p.PerSource {
		senders = sources[i : i+1]
	}
	var choose func(int) int
	if scheme == OpenSMDrawn {
		choose = t.p.root(iteration, i)
	}
	return t.graph.SpanningTree(members, senders, choose)
}

// move lets members of a shared tree leave and join until it has the given ones.
func (t *tables) move(mlid, class int, members []int) ([]wire.MulticastEntry, error) {
	tree := t.shared[mlid]
	if tree == nil {
		var err error
		if tree, err = t.graph.NewSharedTree(class); err != nil {
			return nil, err
		}
		t.shared[mlid] = tree
	}
	for h := range t.graph.Hosts {
		var err error
		switch in := slices.Contains(members, h); {
		case in && !tree.Has(h):
			err = tree.Join(h)
		case !in && tree.Has(h):
			err = tree.Leave(h)
		}
		if err != nil {
			return nil, err
		}
	}
	return tree.Branches(), nil
}

// changed returns the number of entries that differ between two fillings of the tables, those that only one has
// included.
func changed(old, new []wire.MulticastEntry) (n int) {
	type place struct {
		node  int
		group uint32
	}
	were := map[place]wire.MulticastEntry{}
	for _, b := range old {
		were[place{b.Switch, b.Group}] = b
	}
	for _, b := range new {
		at := place{b.Switch, b.Group}
		if w, ok := were[at]; !ok || !slices.Equal(w.Ports, b.Ports) || !slices.Equal(w.From, b.From) {
			n++
		}
		delete(were, at)
	}
	return n + len(were)
}
