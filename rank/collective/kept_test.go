// SPDX-License-Identifier: Apache-2.0

package collective_test

import (
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// TestKept: a rank has one UD queue pair for each subgroup, whatever the number of ranks and chains, a reliable
// one to each neighbour of the ring, and those of the barrier (AG-18). UC has a queue pair for each subgroup and
// chain. Operations that are no larger than the first make nothing new: no queue pair, no registration and
// no completion queue (AG-25); UC only changes the key of its window.
func TestKept(t *testing.T) {
	for _, c := range []struct {
		scheme                  string
		ranks, subgroups, chain int
	}{
		{"multicast", 2, 1, 1}, {"multicast", 3, 2, 1}, {"multicast", 5, 4, 5}, {"multicast", 8, 3, 2}, {"multicast", 9, 1, 3},
		{"uc-multicast", 4, 2, 1}, {"uc-multicast", 6, 2, 3},
	} {
		groups := c.subgroups
		if c.scheme == "uc-multicast" {
			groups *= c.chain
		}
		neighbours, peers := map[int]bool{}, map[int]bool{} // of rank 0
		for _, d := range []int{1, c.ranks - 1} {
			neighbours[d] = true
		}
		for d := 1; d < c.ranks; d *= 2 {
			peers[d], peers[c.ranks-d] = true, true
		}
		want := groups + len(neighbours) + len(peers)
		made := madeBy(t, c.scheme, c.ranks, collective.Options{Subgroups: c.subgroups, Parallel: c.chain, Staging: 8})
		for i, m := range made {
			if m.QPs != want || m.Attached != groups {
				t.Errorf("%+v, operation %d: %d queue pairs of which %d are attached, want %d and %d", c, i, m.QPs, m.Attached, want, groups)
			}
			if m != made[0] {
				t.Errorf("%+v: operation %d has %+v, the first %+v", c, i, m, made[0])
			}
		}
	}
}

// madeBy returns the objects of rank 0's adapter after each of some Allgathers, the first of which is the
// largest.
func madeBy(t *testing.T, scheme string, ranks int, o collective.Options) (made []virtrnic.Made) {
	t.Helper()
	g, err := topo.Star(ranks, simlab.Link())
	n := newNet(t, g, err, 1)
	err = n.Run(sim.Job{Name: "k", Hosts: simlab.Hosts(g), Params: simlab.Params(), Program: func(r *rank.Rank) error {
		a, err := collective.NewAllgather(scheme, r, o)
		if err != nil {
			return err
		}
		b, err := r.Alloc(ranks*20000, rank.MemoryBytes)
		if err != nil {
			return err
		}
		for i, size := range []int{20000, 5000, 20000, 1, 12345} {
			if err := a.Begin(b, size, 0); err != nil {
				return err
			}
			r.Sync()
			if _, err := a.Run(); err != nil {
				return fmt.Errorf("operation %d: %w", i, err)
			}
			r.Sync()
			if r.ID() == 0 {
				made = append(made, n.NIC(0).Made())
			}
		}
		if err := b.Free(); err != nil {
			return err
		}
		return a.Close()
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Leftover(); err != nil {
		t.Error(err)
	}
	return made
}
