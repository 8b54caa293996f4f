// SPDX-License-Identifier: Apache-2.0

package hpl

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"gonum.org/v1/gonum/blas"

	"github.com/mcastlab/mcastlab/rank"
)

// errSingular is the error of a column without a pivot.
var errSingular = errors.New("the matrix is singular")

// panel is a process row's part of NB factorised columns of the matrix.
type panel struct {
	k, j0, jb int          // number, first column, columns
	m2        int          // rows of l2
	l1        []float64    // jb x jb: the block on the diagonal, L below it and U from it on
	l2        []float64    // m2 x jb: L in the rows of this process row below the block
	piv       []int32      // by column: row of its pivot
	buf       *rank.Buffer // the message: l2, l1, piv
}

// words returns the number of numbers in the panel's message.
func (p *panel) words() int { return p.m2*p.jb + p.jb*p.jb + p.jb }

func (p *panel) encode() {
	pack(p.buf, 0, p.l2)
	pack(p.buf, p.m2*p.jb, p.l1)
	v := make([]float64, p.jb)
	for i, r := range p.piv {
		v[i] = float64(r)
	}
	pack(p.buf, (p.m2+p.jb)*p.jb, v)
}

func (p *panel) decode() {
	unpack(p.buf, 0, p.l2)
	unpack(p.buf, p.m2*p.jb, p.l1)
	v := make([]float64, p.jb)
	unpack(p.buf, (p.m2+p.jb)*p.jb, v)
	for i := range v {
		p.piv[i] = int32(v[i])
	}
}

// factoring is the factorisation of one panel by its process column. All its processes know the
// rows of l1, because the pivot row is sent to all with the pivot (HPL_pdmxswp).
type factoring struct {
	*solver
	*panel
	w      []float64 // my rows from the block on, m x jb; those of the block are as before the swaps, l1 has them as they are after
	m      int
	search pivotSearch
}

// factor factorises a panel (HPL_pdfact).
func (s *solver) factor(p *panel) error {
	first, col := s.rowsBelow(p.j0), s.colsBelow(p.j0)
	f := &factoring{solver: s, panel: p, m: s.mp - first}
	if s.a != nil {
		f.w = make([]float64, f.m*p.jb)
		for i := range f.m {
			copy(f.w[i*p.jb:(i+1)*p.jb], s.a[(first+i)*s.nq+col:])
		}
	}
	if err := f.search.begin(s, p.jb); err != nil {
		return err
	}
	if err := f.recurse(0, p.jb); err != nil {
		return fmt.Errorf("factorise panel %d: %w", p.k, err)
	}
	if err := s.col.Wait(f.search.sent...); err != nil {
		return err
	}
	if s.a == nil {
		return nil
	}
	if s.hasRow(p.k) {
		copy(f.w, p.l1)
	}
	copy(p.l2, f.w[(f.m-p.m2)*p.jb:])
	for i := range f.m {
		copy(s.a[(first+i)*s.nq+col:], f.w[i*p.jb:(i+1)*p.jb])
	}
	p.encode()
	return nil
}

// active returns the first of my rows that has not been a pivot row before column j.
func (f *factoring) active(j int) int {
	if f.hasRow(f.k) {
		return j
	}
	return 0
}

// recurse factorises columns a to b recursively, in ndiv parts down to nbmin columns (HPL_pdrpan*).
func (f *factoring) recurse(a, b int) error {
	if b-a <= f.NBMin {
		return f.base(a, b)
	}
	blocks := (b - a + f.NBMin - 1) / f.NBMin
	width := (blocks + f.NDiv - 1) / f.NDiv * f.NBMin
	for c := a; c < b; c += width {
		e := min(c+width, b)
		switch f.RFact {
		case Left:
			f.solveTop(a, c, c, e)
			f.updateRows(a, c, c, e)
		case Crout:
			f.updateRows(a, c, c, e)
		}
		if err := f.recurse(c, e); err != nil {
			return err
		}
		switch f.RFact {
		case Right:
			f.solveTop(c, e, e, b)
			f.updateRows(c, e, e, b)
		case Crout:
			f.updateTop(a, c, e, b)
			f.solveTop(c, e, e, b)
		}
	}
	return nil
}

// solveTop computes U in the block's rows a to c and the columns from to, by multiplying with L^-1.
func (f *factoring) solveTop(a, c, from, to int) {
	if n, k := to-from, c-a; n > 0 && k > 0 {
		f.work(k*k*n, func() {
			f.blas.Dtrsm(blas.Left, blas.Lower, blas.NoTrans, blas.Unit, k, n, 1, f.l1[a*f.jb+a:], f.jb, f.l1[a*f.jb+from:], f.jb)
		})
	}
}

// updateRows subtracts the elimination by columns a to c from the columns from to of my active rows.
func (f *factoring) updateRows(a, c, from, to int) {
	i := f.active(c)
	if m, n, k := f.m-i, to-from, c-a; m > 0 && n > 0 && k > 0 {
		f.work(2*m*n*k, func() {
			f.blas.Dgemm(blas.NoTrans, blas.NoTrans, m, n, k, -1, f.w[i*f.jb+a:], f.jb, f.l1[a*f.jb+from:], f.jb, 1, f.w[i*f.jb+from:], f.jb)
		})
	}
}

// updateTop does the same as updateRows for the block's rows c to e, which have been pivot rows.
func (f *factoring) updateTop(a, c, e, b int) {
	if m, n, k := e-c, b-e, c-a; m > 0 && n > 0 && k > 0 {
		f.work(2*m*n*k, func() {
			f.blas.Dgemm(blas.NoTrans, blas.NoTrans, m, n, k, -1, f.l1[c*f.jb+a:], f.jb, f.l1[a*f.jb+e:], f.jb, 1, f.l1[c*f.jb+e:], f.jb)
		})
	}
}

// base factorises columns a to b one by one (HPL_pdpanl*).
func (f *factoring) base(a, b int) error {
	for j := a; j < b; j++ {
		switch f.PFact {
		case Left:
			f.solveTop(a, j, j, j+1)
			f.updateRows(a, j, j, j+1)
		case Crout:
			f.updateRows(a, j, j, j+1)
		}
		if err := f.pivot(j); err != nil {
			return err
		}
		if f.PFact == Crout {
			f.updateTop(a, j, j+1, b)
		}
		f.scale(j)
		if f.PFact == Right {
			f.updateRows(j, j+1, j+1, b)
		}
	}
	return nil
}

// scale divides my active rows of column j by its pivot.
func (f *factoring) scale(j int) {
	i := f.active(j + 1)
	if m := f.m - i; m > 0 {
		f.work(m, func() {
			pivot := f.l1[j*f.jb+j]
			for ; i < f.m; i++ {
				f.w[i*f.jb+j] /= pivot
			}
		})
	}
}

// pivot finds the number of column j with the largest absolute value in the active rows of all
// processes, and swaps its row with the column's own.
func (f *factoring) pivot(j int) error {
	i, best := f.active(j), -1
	f.work(f.m-i, func() {
		for r := i; r < f.m; r++ {
			if best < 0 || math.Abs(f.w[r*f.jb+j]) > math.Abs(f.w[best*f.jb+j]) {
				best = r
			}
		}
	})
	c := newCandidate(f.jb)
	first := f.mp - f.m
	if best >= 0 {
		c.value = math.Abs(f.w[best*f.jb+j])
		c.from = globalOf(first+best, f.NB, f.myRow, f.P)
		copy(c.row, f.w[best*f.jb:])
	}
	if f.hasRow(f.k) && f.a != nil {
		c.hasOwn = true
		copy(c.own, f.w[j*f.jb:])
	}
	if err := f.search.agree(f.solver, j, c); err != nil {
		return err
	}
	if f.a == nil {
		f.piv[j] = int32(f.modelPivot(f.panel, j))
		return nil
	}
	if c.value == 0 {
		return errSingular
	}
	f.piv[j] = int32(c.from)
	copy(f.l1[j*f.jb:(j+1)*f.jb], c.row)
	if ownerOf(c.from, f.NB, f.P) == f.myRow {
		copy(f.w[(localOf(c.from, f.NB, f.P)-first)*f.jb:][:f.jb], c.own)
	}
	return nil
}

// modelPivot returns a pivot row for a cost-only run. Either each process row provides an equal
// share of U, or the last one, counted from the block's own, provides all of it.
func (s *solver) modelPivot(p *panel, j int) int {
	rel := ((j+1)*s.P - 1) / p.jb
	row := (p.k+rel)*s.NB + j - rel*p.jb/s.P
	if s.p.Pivots == PivotsCentralised {
		rel = s.P - 1 - p.k%s.P
		row = (p.k+rel)*s.NB + j
	}
	if rel == 0 || row >= s.N {
		return p.j0 + j
	}
	return row
}

// candidate is the best pivot found so far: its value, its row, and the row with which it is
// swapped, which the block's own process contributes.
type candidate struct {
	value  float64 // absolute value; negative if there is no candidate
	from   int
	hasOwn bool
	row    []float64
	own    []float64
}

func newCandidate(jb int) *candidate {
	return &candidate{value: -1, row: make([]float64, jb), own: make([]float64, jb)}
}

// candidateWords is the length of a candidate's message.
func (s *solver) candidateWords() int { return 3 + 2*s.NB }

func (c *candidate) encode(b *rank.Buffer, at int) {
	own := 0.0
	if c.hasOwn {
		own = 1
	}
	pack(b, at, []float64{c.value, float64(c.from), own})
	pack(b, at+3, c.row)
	pack(b, at+3+len(c.row), c.own)
}

// meet merges another candidate: the larger value wins, and the upper row of two equal ones.
func (c *candidate) meet(b *rank.Buffer, at int) {
	var head [3]float64
	unpack(b, at, head[:])
	if head[0] > c.value || head[0] == c.value && int(head[1]) < c.from {
		c.value, c.from = head[0], int(head[1])
		unpack(b, at+3, c.row)
	}
	if head[2] == 1 && !c.hasOwn {
		c.hasOwn = true
		unpack(b, at+3+len(c.row), c.own)
	}
}

// exchange is a step by which all processes of a column agree on a pivot.
type exchange struct {
	peer       int
	send, recv bool
}

// exchanges returns an upper bound of the number of steps among the given number of processes.
func exchanges(procs int) int { return bits.Len(uint(procs-1)) + 1 }

// agreement returns a process's steps, which are exchanges along the edges of the largest
// hypercube. A process outside it sends its candidate to one inside first and receives the result
// at the end.
func agreement(me, procs int) (all []exchange) {
	cube := 1 << (bits.Len(uint(procs)) - 1)
	if me >= cube {
		return []exchange{{me - cube, true, false}, {me - cube, false, true}}
	}
	if me+cube < procs {
		all = append(all, exchange{me + cube, false, true})
	}
	for b := 1; b < cube; b *= 2 {
		all = append(all, exchange{me ^ b, true, true})
	}
	if me+cube < procs {
		all = append(all, exchange{me + cube, true, false})
	}
	return all
}

// pivotSearch holds the messages of one panel's factorisation. All receives are posted before it
// begins, so that every message finds one.
type pivotSearch struct {
	steps []exchange
	recvs []*rank.Request // by column and step
	sent  []*rank.Request
}

func (q *pivotSearch) begin(s *solver, jb int) error {
	q.steps = agreement(s.myRow, s.P)
	var in []leg
	var peers []int
	n := (3 + 2*jb) * word
	for j := range jb {
		for i, e := range q.steps {
			if e.recv {
				in = append(in, leg{e.peer, s.pivots, q.slot(s, j, i, 0), n})
			}
		}
	}
	for _, e := range q.steps {
		peers = append(peers, e.peer)
	}
	reqs, err := begin(s.col, slices.Values(in), peers)
	for j := 0; j < jb && err == nil; j++ {
		for _, e := range q.steps {
			var r *rank.Request
			if e.recv {
				r, reqs = reqs[0], reqs[1:]
			}
			q.recvs = append(q.recvs, r)
		}
	}
	return err
}

// slot returns the offset in bytes of the message of a column's step in the buffer. sent is 0 for
// the received message and 1 for the sent one.
func (q *pivotSearch) slot(s *solver, column, step, sent int) int {
	return ((column*exchanges(s.P)+step)*2 + sent) * s.candidateWords() * word
}

// agree gives all processes of the process column the best candidate of column j.
func (q *pivotSearch) agree(s *solver, j int, c *candidate) error {
	n := (3 + 2*len(c.row)) * word
	for i, e := range q.steps {
		if e.send {
			at := q.slot(s, j, i, 1)
			c.encode(s.pivots, at/word)
			r, err := (&leg{e.peer, s.pivots, at, n}).send(s.col.Rank)
			if err != nil {
				return err
			}
			q.sent = append(q.sent, r)
		}
		if e.recv {
			if err := s.col.Wait(q.recvs[j*len(q.steps)+i]); err != nil {
				return err
			}
			c.meet(s.pivots, q.slot(s, j, i, 0)/word)
		}
	}
	return nil
}
