// SPDX-License-Identifier: Apache-2.0

package hpl

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas/gonum"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// geometry is a process's place on the grid and its part of the matrix.
type geometry struct {
	Test
	myRow, myCol int
	mp, nq       int // local rows, and local columns with b
}

func newGeometry(t Test, id int) *geometry {
	g := &geometry{Test: t, myRow: id / t.Q, myCol: id % t.Q}
	if t.ColumnMajor {
		g.myRow, g.myCol = id%t.P, id/t.P
	}
	g.mp, g.nq = g.rowsBelow(t.N), g.colsBelow(t.N+1)
	return g
}

// rankAt returns the rank at a place of the grid.
func (g *geometry) rankAt(row, col int) int {
	if g.ColumnMajor {
		return col*g.P + row
	}
	return row*g.Q + col
}

// rowsBelow and colsBelow return the number of local rows, or columns, among the first n.
func (g *geometry) rowsBelow(n int) int { return share(n, g.NB, g.myRow, g.P) }
func (g *geometry) colsBelow(n int) int { return share(n, g.NB, g.myCol, g.Q) }

// panels returns the number of panels, and width the number of columns of one. hasCol and hasRow
// report whether the process column and the process row of block k are this process's.
func (g *geometry) panels() int       { return (g.N + g.NB - 1) / g.NB }
func (g *geometry) width(k int) int   { return min(g.NB, g.N-k*g.NB) }
func (g *geometry) hasCol(k int) bool { return k%g.Q == g.myCol }
func (g *geometry) hasRow(k int) bool { return k%g.P == g.myRow }

// solver is one rank's part of one test.
type solver struct {
	*geometry
	p               *Params
	r               *rank.Rank
	grid            *rank.Rank // view of all processes
	row, col        *line      // my process row by column, and my process column by row
	blas            gonum.Implementation
	a               []float64 // my part of [A b], row-major with nq columns; nil in a cost-only run
	epochs          int
	cast            *caster
	swap            *swapper
	pivots, numbers *rank.Buffer // messages of the panel factorisation, and of the rest
	x               []float64    // solution, by my own columns
	rec             record
	spoil           func(r *rank.Rank, x []float64)
}

func newSolver(r *rank.Rank, p *Params, test int) *solver {
	s := &solver{geometry: newGeometry(p.Tests[test], r.ID()), p: p, r: r}
	s.rec.Test = test
	s.epochs = s.panels()
	if p.Epochs > 0 {
		s.epochs = min(s.epochs, p.Epochs)
	}
	return s
}

// connect makes the views of the grid, with the connections of their barriers.
func (s *solver) connect() (err error) {
	if err := s.enterGrid(); err != nil {
		return err
	}
	if s.row, err = newLine(s.r, s.lineName("row", s.myRow), s.myRanks(true)); err != nil {
		return err
	}
	s.col, err = newLine(s.r, s.lineName("column", s.myCol), s.myRanks(false))
	return err
}

// enterGrid makes the view of all processes, unless they are all ranks.
func (s *solver) enterGrid() (err error) {
	if s.grid = s.r; s.P*s.Q < s.r.Size() {
		all := make([]int, s.P*s.Q)
		for i := range all {
			all[i] = i
		}
		s.grid, err = s.r.Sub(fmt.Sprintf("%d", s.rec.Test), all)
	}
	return err
}

func (s *solver) lineName(kind string, i int) string {
	return fmt.Sprintf("%d/%s/%d", s.rec.Test, kind, i)
}

// myRanks returns the ranks of the process's row, or of its column.
func (s *solver) myRanks(row bool) (all []int) {
	if row {
		for q := range s.Q {
			all = append(all, s.rankAt(s.myRow, q))
		}
		return all
	}
	for p := range s.P {
		all = append(all, s.rankAt(p, s.myCol))
	}
	return all
}

// prepare generates the matrix and allocates the buffers and the broadcast.
func (s *solver) prepare() (err error) {
	if !s.p.CostOnly {
		s.a = make([]float64, s.mp*s.nq)
		s.fill(s.a)
	}
	if s.pivots, err = s.alloc(2 * s.NB * exchanges(s.P) * s.candidateWords()); err != nil {
		return err
	}
	if s.numbers, err = s.alloc(s.slots() * s.slotWords()); err != nil {
		return err
	}
	if s.swap, err = newSwapper(s); err != nil {
		return err
	}
	if s.cast, err = newCaster(s); err != nil {
		return err
	}
	return s.cast.connect()
}

// word is the size of a number in a message, in bytes.
const word = 8

// alloc returns a buffer for the given number of numbers. In a cost-only run it has no bytes.
func (s *solver) alloc(words int) (*rank.Buffer, error) {
	kind := rank.MemoryBytes
	if s.p.CostOnly {
		kind = rank.MemoryPhantom
	}
	return s.r.Alloc(max(1, words)*word, kind)
}

// pack writes numbers into a buffer from word at on. It does nothing if the buffer has no bytes.
func pack(b *rank.Buffer, at int, v []float64) {
	if to := b.Bytes(); to != nil {
		for i, x := range v {
			binary.LittleEndian.PutUint64(to[(at+i)*word:], math.Float64bits(x))
		}
	}
}

// unpack is the inverse of pack.
func unpack(b *rank.Buffer, at int, v []float64) {
	if from := b.Bytes(); from != nil {
		for i := range v {
			v[i] = math.Float64frombits(binary.LittleEndian.Uint64(from[(at+i)*word:]))
		}
	}
}

// work calls f, unless the run is cost-only, and lets the lab time of the given number of
// floating-point operations pass.
func (s *solver) work(flops int, f func()) {
	if s.a != nil {
		f()
	}
	if s.p.GFlops > 0 {
		s.r.Compute(float64(flops), s.p.GFlops*1e9)
	}
}

// run solves the system and measures that.
func (s *solver) run() error {
	w := s.r.Go("panels", s.cast.serve)
	s.grid.Sync()
	s.rec.Start = s.r.Now()
	if err := s.factorise(); err != nil {
		return err
	}
	if err := w.Join(); err != nil {
		return err
	}
	if s.a != nil {
		s.rec.LU = s.digest()
	}
	if s.epochs == s.panels() {
		if err := s.substitute(); err != nil {
			return err
		}
	}
	s.rec.End = s.r.Now()
	s.grid.Sync()
	if s.a == nil || s.p.Threshold < 0 {
		return nil
	}
	return s.verify()
}

// emit reports the rank's measurements.
func (s *solver) emit() error {
	out, err := json.Marshal(&s.rec)
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	rankrun.Of(s.r).Emit(out)
	return nil
}

// factorise is the loop over the panels. With look-ahead the columns of the next panel are updated
// first, and its broadcast overlaps with the update of the others.
func (s *solver) factorise() error {
	if err := s.panel(0); err != nil {
		return err
	}
	for k := range s.epochs {
		p, err := s.cast.wait(k)
		if err != nil {
			return err
		}
		first := s.colsBelow(min((k+1)*s.NB, s.N))
		next := k+1 < s.epochs && s.hasCol(k+1)
		if next && s.Depth > 0 {
			if err := s.update(p, first, first+s.width(k+1)); err != nil {
				return err
			}
			if err := s.panel(k + 1); err != nil {
				return err
			}
			first += s.width(k + 1)
		}
		if err := s.update(p, first, s.nq); err != nil {
			return err
		}
		s.cast.release(k)
		if next && s.Depth == 0 {
			if err := s.panel(k + 1); err != nil {
				return err
			}
		}
	}
	return nil
}

// panel factorises a panel and posts it for broadcast, on the processes that have it.
func (s *solver) panel(k int) error {
	if !s.hasCol(k) {
		return nil
	}
	start := s.r.Now()
	p := s.cast.slot(k)
	if err := s.factor(p); err != nil {
		return err
	}
	s.rec.Factor += s.r.Now().Sub(start)
	s.cast.post(p)
	return nil
}

// digest returns the SHA-256 of the local part of the factors: L below the diagonal, U above, and
// the transformed b.
func (s *solver) digest() string {
	h := sha256.New()
	var b [word]byte
	for _, v := range s.a {
		binary.LittleEndian.PutUint64(b[:], math.Float64bits(v))
		h.Write(b[:])
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// close releases the resources of the test after all ranks have ended it.
func (s *solver) close() error {
	if err := s.cast.close(); err != nil {
		return err
	}
	if err := s.swap.close(); err != nil {
		return err
	}
	for _, b := range []*rank.Buffer{s.pivots, s.numbers} {
		if err := b.Free(); err != nil {
			return err
		}
	}
	if err := s.row.close(); err != nil {
		return err
	}
	if err := s.col.close(); err != nil {
		return err
	}
	if s.grid != s.r {
		s.grid.Close()
	}
	return nil
}

// record holds a rank's measurements of one test. Times are picoseconds of lab time.
type record struct {
	Test      int            `json:"test"`
	Start     vtime.Time     `json:"start"`
	End       vtime.Time     `json:"end"`
	Factor    vtime.Duration `json:"factor"` // panel factorisations
	Panels    []castTimes    `json:"panels"`
	Swaps     []swapTimes    `json:"swaps"`
	LU        string         `json:"lu,omitempty"`    // SHA-256 of the local factors
	Error     float64        `json:"error,omitempty"` // ||Ax-b||_oo, rank 0
	Norms     *Norms         `json:"norms,omitempty"` // rank 0
	CastBytes int            `json:"cast_bytes"`      // received in panel broadcasts
	SwapBytes int            `json:"swap_bytes"`      // received in row swaps
}
