// SPDX-License-Identifier: Apache-2.0

package hpl

import (
	"fmt"
	"math"
	"testing"
)

// TestMatrix: the norms of the matrix of order 1000 are those that hpcc prints for it
// (interop.TestHPCC runs it for others), and the parts of a grid's processes are parts of one matrix.
func TestMatrix(t *testing.T) {
	const n = 1000
	whole := newGeometry(Test{N: n, NB: n, P: 1, Q: 1}, 0)
	a := make([]float64, whole.mp*whole.nq)
	whole.fill(a)
	var sup, one, b float64
	columns := make([]float64, n)
	for i := range n {
		row := 0.0
		for j := range n {
			row += math.Abs(a[i*(n+1)+j])
			columns[j] += math.Abs(a[i*(n+1)+j])
		}
		sup, b = max(sup, row), max(b, math.Abs(a[i*(n+1)+n]))
	}
	for _, c := range columns {
		one = max(one, c)
	}
	const hpcc = "262.773468 263.865287 0.499776"
	if got := fmt.Sprintf("%.6f %.6f %.6f", sup, one, b); got != hpcc {
		t.Errorf("norms of A (oo, 1) and b: %s, hpcc has %s", got, hpcc)
	}
	for id := range 6 {
		g := newGeometry(Test{N: n, NB: 48, P: 2, Q: 3, ColumnMajor: true}, id)
		part := make([]float64, g.mp*g.nq)
		g.fill(part)
		for i := range g.mp {
			for j := range g.nq {
				if want := a[globalOf(i, 48, g.myRow, 2)*(n+1)+globalOf(j, 48, g.myCol, 3)]; part[i*g.nq+j] != want {
					t.Fatalf("process %d has %v at %d, %d, not %v", id, part[i*g.nq+j], i, j, want)
				}
			}
		}
	}
}

// TestGrid: every row has one owner, and local and global numbers undo each other.
func TestGrid(t *testing.T) {
	for _, nb := range []int{1, 3, 8} {
		for procs := 1; procs <= 5; procs++ {
			for n := 1; n <= 40; n++ {
				sum := 0
				for me := range procs {
					mine := share(n, nb, me, procs)
					sum += mine
					for l := range mine {
						g := globalOf(l, nb, me, procs)
						if g >= n || ownerOf(g, nb, procs) != me || localOf(g, nb, procs) != l {
							t.Fatalf("n %d, nb %d, process %d of %d: local %d is %d", n, nb, me, procs, l, g)
						}
					}
				}
				if sum != n {
					t.Fatalf("n %d, nb %d, %d processes have %d rows", n, nb, procs, sum)
				}
			}
		}
	}
}
