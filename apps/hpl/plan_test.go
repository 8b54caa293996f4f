// SPDX-License-Identifier: Apache-2.0

package hpl

import (
	"math/rand/v2"
	"testing"
)

// TestPlan: a plan of a panel's row exchanges has the result of the exchanges, one after the other, for random matrices, grids and
// pivots: which rows U has and where they come from, which rows of the block go where, and that all are somewhere once.
func TestPlan(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 0))
		test := Test{N: 1 + random.IntN(60), P: 1 + random.IntN(9), Q: 1}
		test.NB = 1 + random.IntN(min(test.N, 12))
		s := &solver{geometry: newGeometry(test, random.IntN(test.P))}
		p := &panel{k: random.IntN(s.panels())}
		p.j0, p.jb = p.k*s.NB, s.width(p.k)
		at := make([]int, test.N) // by place: the row that is there
		for i := range at {
			at[i] = i
		}
		for i := range p.jb {
			to := p.j0 + i + random.IntN(test.N-p.j0-i)
			if random.IntN(4) == 0 { // the same row more than once
				to = max(p.j0+i, to-to%7)
			}
			p.piv = append(p.piv, int32(to))
			at[p.j0+i], at[to] = at[to], at[p.j0+i]
		}
		pl := s.newPlan(p)
		fail := func(text string, args ...any) {
			t.Helper()
			t.Errorf("seed %d: N %d, NB %d, P %d, panel %d, pivots %v: "+text, append([]any{seed, test.N, test.NB, test.P, p.k, p.piv}, args...)...)
		}
		owner := func(row int) int { return (row/test.NB%test.P - p.k%test.P + test.P) % test.P }
		seen := map[int]bool{}
		for x := range test.P {
			last := -1
			for _, i := range pl.order[pl.start(x):pl.start(x+1)] {
				if row := int(pl.src[i]); row != at[p.j0+int(i)] || owner(row) != x || seen[int(i)] || int(i) < last {
					fail("row %d of U is %d of process %d, want %d of %d", i, row, x, at[p.j0+int(i)], owner(row))
				}
				seen[int(i)], last = true, int(i)
			}
			for _, m := range pl.moves(x) {
				if to := int(m.to); at[to] != int(m.from) || owner(to) != x || to < p.j0+p.jb {
					fail("process %d gets row %d at %d, want %d at one of %d", x, m.from, m.to, at[m.to], owner(int(m.to)))
				}
				at[m.to] = int(m.to)
			}
			if place := int(pl.place[x]); int(pl.tree[place]) != x {
				fail("process %d is at place %d, which is that of %d", x, place, pl.tree[place])
			}
			if from, to := pl.leaving(x); x > 0 && to-from != len(pl.moves(x)) {
				fail("%d rows leave for process %d, which gets %d", to-from, x, len(pl.moves(x)))
			}
		}
		if len(seen) != p.jb || pl.tree[0] != 0 {
			fail("U has %d rows of %d, the root of the tree is %d", len(seen), p.jb, pl.tree[0])
		}
		for i := p.j0 + p.jb; i < test.N; i++ {
			if at[i] != i {
				fail("nobody gets row %d, which is at %d", at[i], i)
			}
		}
		for a := 1; a < test.P-1; a++ { // those that get the most rows are next to the root
			for b := a + 1; b < test.P; b++ {
				if ones := func(v uint16) (n int) {
					for ; v != 0; v &= v - 1 {
						n++
					}
					return n
				}; len(pl.moves(a)) > len(pl.moves(b)) && ones(pl.place[a]) > ones(pl.place[b]) {
					fail("process %d with %d rows is below process %d with %d", a, len(pl.moves(a)), b, len(pl.moves(b)))
				}
			}
		}
	}
}
