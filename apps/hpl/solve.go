// SPDX-License-Identifier: Apache-2.0

package hpl

import (
	"math"
	"math/bits"
	"slices"

	"gonum.org/v1/gonum/blas"

	"github.com/mcastlab/mcastlab/rank"
)

// slots returns the number of slots for messages in transfer: one for sending, one for each child
// in a tree, and one for the parent.
func (s *solver) slots() int { return bits.Len(uint(max(s.P, s.Q))) + 2 }

// slotWords returns the size of a slot in numbers.
func (s *solver) slotWords() int { return max(s.NB, 3*s.mp, s.nq, 4) }

func (s *solver) slotLeg(peer, slot, n int) leg {
	return leg{peer, s.numbers, slot * s.slotWords() * word, n * word}
}

// reduce combines n numbers of every process of a view on the process root, along a binomial tree.
// The order is fixed, so that the rounding is always the same.
func (s *solver) reduce(c *line, root, n int, v []float64, op func(a, b float64) float64) error {
	size := c.Size()
	abs := func(x int) int { return (x + root) % size }
	tree := binomial((c.ID()-root+size)%size, size)
	var in []leg
	var peers []int
	for i, k := range tree.children {
		in = append(in, s.slotLeg(abs(k), i+1, n))
	}
	if tree.parent >= 0 {
		peers = []int{abs(tree.parent)}
	}
	reqs, err := begin(c, slices.Values(in), peers)
	if err != nil {
		return err
	}
	got := make([]float64, len(v))
	for i := len(in) - 1; i >= 0; i-- { // the smallest subtree is ready first
		if err := c.Wait(reqs[i]); err != nil {
			return err
		}
		unpack(s.numbers, (i+1)*s.slotWords(), got)
		for k := range v {
			v[k] = op(v[k], got[k])
		}
	}
	if tree.parent < 0 {
		return nil
	}
	return s.sendNumbers(c.Rank, []int{abs(tree.parent)}, n, v)
}

// sendNumbers sends n numbers to all peers and waits until they have them.
func (s *solver) sendNumbers(c *rank.Rank, peers []int, n int, v []float64) error {
	pack(s.numbers, 0, v)
	var legs []leg
	for _, p := range peers {
		legs = append(legs, s.slotLeg(p, 0, n))
	}
	sent, err := sendAll(c, nil, legs)
	if err != nil {
		return err
	}
	return c.Wait(sent...)
}

// spreadColumn sends n numbers from one process of my column to all others, along a binomial tree.
// It calls solve on the root before the numbers are sent.
func (s *solver) spreadColumn(root, n int, v []float64, solve func() error) error {
	size := s.col.Size()
	abs := func(x int) int { return (x + root) % size }
	tree := binomial((s.col.ID()-root+size)%size, size)
	var in []leg
	var to []int
	for _, k := range tree.children {
		to = append(to, abs(k))
	}
	if tree.parent >= 0 {
		in = []leg{s.slotLeg(abs(tree.parent), s.slots()-1, n)}
	}
	reqs, err := begin(s.col, slices.Values(in), to)
	if err != nil {
		return err
	}
	if tree.parent < 0 {
		err = solve()
	} else if err = s.col.Wait(reqs...); err == nil {
		unpack(s.numbers, (s.slots()-1)*s.slotWords(), v)
	}
	if err != nil {
		return err
	}
	return s.sendNumbers(s.col.Rank, to, n, v)
}

// substitute solves U x = y from the last block up (HPL_pdtrsv). The process row of a block adds
// up the contributions of its columns, the process on the diagonal solves for x, and its process
// column subtracts the result from the rows above.
func (s *solver) substitute() error {
	var v []float64 // by my rows: the contribution of the x known so far
	if s.a != nil {
		v, s.x = make([]float64, s.mp), make([]float64, s.nq)
	}
	for k := s.panels() - 1; k >= 0; k-- {
		jb, r0, c0 := s.width(k), s.rowsBelow(k*s.NB), s.colsBelow(k*s.NB)
		var y []float64
		if s.a != nil {
			y = make([]float64, jb)
		}
		if s.hasRow(k) {
			for i := range y {
				y[i] = -v[r0+i]
				if ownerOf(s.N, s.NB, s.Q) == s.myCol {
					y[i] += s.a[(r0+i)*s.nq+s.nq-1]
				}
			}
			if err := s.reduce(s.row, k%s.Q, jb, y, sum); err != nil {
				return err
			}
		}
		if !s.hasCol(k) {
			continue
		}
		err := s.spreadColumn(k%s.P, jb, y, func() error {
			s.work(jb*jb, func() {
				s.blas.Dtrsv(blas.Upper, blas.NoTrans, blas.NonUnit, jb, s.a[r0*s.nq+c0:], s.nq, y, 1)
			})
			return nil
		})
		if err != nil {
			return err
		}
		if s.a != nil {
			copy(s.x[c0:], y)
		}
		if above := s.rowsBelow(k * s.NB); above > 0 {
			s.work(2*above*jb, func() {
				s.blas.Dgemv(blas.NoTrans, above, jb, 1, s.a[c0:], s.nq, y, 1, 1, v, 1)
			})
		}
	}
	return nil
}

// epsilon is the relative precision of HPL's formula.
const epsilon = 1.0 / (1 << 53)

// residual returns HPL's scaled residual of a system of order n, where err is ||Ax-b||_oo. It is
// the largest number if the solution has an infinity or a NaN.
func residual(err float64, m *Norms, n int) float64 {
	return number(err / (epsilon * (m.AOo*m.XOo + m.BOo) * float64(n)))
}

// number returns x, or the largest number in place of an infinity or a NaN, which JSON does not
// have.
func number(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return math.MaxFloat64
	}
	return x
}

// verify generates the matrix again and reduces the norms to rank 0 (HPL_pdtest).
func (s *solver) verify() error {
	if s.spoil != nil {
		s.spoil(s.r, s.x)
	}
	a := make([]float64, s.mp*s.nq)
	s.fill(a)
	hasB, cols := ownerOf(s.N, s.NB, s.Q) == s.myCol, s.colsBelow(s.N)
	v, columns := make([]float64, 3*s.mp), make([]float64, cols)
	ax, abs, b := v[:s.mp], v[s.mp:2*s.mp], v[2*s.mp:]
	for i := range s.mp {
		row := a[i*s.nq : (i+1)*s.nq]
		for j, x := range s.x[:cols] {
			ax[i] += row[j] * x
			abs[i] += math.Abs(row[j])
			columns[j] += math.Abs(row[j])
		}
		if hasB {
			b[i] = row[s.nq-1]
		}
	}
	xOo, x1 := 0.0, []float64{0}
	for _, e := range s.x[:cols] {
		xOo, x1[0] = math.Max(xOo, math.Abs(e)), x1[0]+math.Abs(e)
	}
	if err := s.reduce(s.col, 0, len(columns), columns, sum); err != nil {
		return err
	}
	largest := []float64{xOo, 0}
	for _, c := range columns { // only the first process row has the sums of whole columns
		largest[1] = math.Max(largest[1], c)
	}
	if err := s.reduce(s.row, 0, len(v), v, sum); err != nil {
		return err
	}
	if err := s.reduce(s.row, 0, len(largest), largest, math.Max); err != nil {
		return err
	}
	if err := s.reduce(s.row, 0, 1, x1, sum); err != nil {
		return err
	}
	if s.myCol != 0 {
		return nil
	}
	m := []float64{0, 0, 0}
	for i := range s.mp {
		m[0] = math.Max(m[0], math.Abs(b[i]-ax[i]))
		m[1] = math.Max(m[1], abs[i])
		m[2] = math.Max(m[2], math.Abs(b[i]))
	}
	if err := s.reduce(s.col, 0, len(m), m, math.Max); err != nil {
		return err
	}
	if s.myRow == 0 {
		s.rec.Error = number(m[0])
		s.rec.Norms = &Norms{AOo: number(m[1]), A1: number(largest[1]), XOo: number(largest[0]), X1: number(x1[0]), BOo: number(m[2])}
	}
	return nil
}

// sum returns a + b.
func sum(a, b float64) float64 { return a + b }
