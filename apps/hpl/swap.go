// SPDX-License-Identifier: Apache-2.0

package hpl

import (
	"gonum.org/v1/gonum/blas"
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// swapTimes holds the instants of one row swap on one rank.
type swapTimes struct {
	Panel   int        `json:"panel"`
	Columns int        `json:"columns"`
	Begun   vtime.Time `json:"begun"`
	Ended   vtime.Time `json:"ended"` // the rank has U and all acknowledgements
}

// swapper swaps rows in a process column and gathers U on all its processes.
type swapper struct {
	*solver
	u, moved *rank.Buffer         // rows of U in the plan's order; rows of the block that leave it
	group    collective.Algorithm // multicast to the process column
	part     *rank.Buffer         // the rows that one owner sends to the group

	*plan
	n    int // columns
	sent []*rank.Request
	open func(sends []*rank.Request) []*rank.Request // those that are not over
}

func newSwapper(s *solver) (w *swapper, err error) {
	w = &swapper{solver: s, open: rankrun.Of(s.r).Open}
	if w.u, err = s.alloc(s.NB * s.nq); err != nil {
		return nil, err
	}
	if w.moved, err = s.alloc(s.NB * s.nq); err != nil {
		return nil, err
	}
	if s.Swap != SwapMulticast || s.P == 1 {
		return w, nil
	}
	if w.part, err = s.alloc(s.NB * s.nq); err != nil {
		return nil, err
	}
	w.group, err = collective.NewBcast("cepheus", s.col.Rank, collective.Options{Label: "rows", Fallback: s.p.Fallback})
	return w, err
}

func (w *swapper) close() error {
	if w.group != nil {
		if err := w.group.Close(); err != nil {
			return err
		}
		if err := w.part.Free(); err != nil {
			return err
		}
	}
	if err := w.moved.Free(); err != nil {
		return err
	}
	return w.u.Free()
}

// update applies a panel to my columns c0 to c1: swap, solve for U, and subtract L U
// (HPL_pdupdate).
func (s *solver) update(p *panel, c0, c1 int) error {
	n := c1 - c0
	if n == 0 {
		return nil
	}
	u, err := s.swap.run(p, c0, n)
	if err != nil {
		return err
	}
	s.subtract(p, u, c0, n)
	return nil
}

// subtract solves for U and subtracts L U from n columns from c0.
func (s *solver) subtract(p *panel, u []float64, c0, n int) {
	s.work(p.jb*p.jb*n, func() {
		s.blas.Dtrsm(blas.Left, blas.Lower, blas.NoTrans, blas.Unit, p.jb, n, 1, p.l1, p.jb, u, n)
	})
	if s.hasRow(p.k) && s.a != nil {
		first := s.rowsBelow(p.j0)
		for i := range p.jb {
			copy(s.a[(first+i)*s.nq+c0:], u[i*n:(i+1)*n])
		}
	}
	if p.m2 > 0 {
		s.work(2*p.m2*n*p.jb, func() {
			s.blas.Dgemm(blas.NoTrans, blas.NoTrans, p.m2, n, p.jb, -1, p.l2, p.jb, u, n, 1, s.a[(s.mp-p.m2)*s.nq+c0:], s.nq)
		})
	}
}

// run swaps rows in n columns from c0 and returns U, jb x n.
func (w *swapper) run(p *panel, c0, n int) (u []float64, err error) {
	w.plan, w.n, w.sent = w.newPlan(p), n, nil
	w.take(c0)
	t := swapTimes{Panel: p.k, Columns: n, Begun: w.r.Now()}
	if w.P > 1 {
		switch {
		case w.Swap == SwapMulticast:
			err = w.multicast()
		case w.Swap == SwapExchange || w.Swap == SwapMix && n <= w.SwapThreshold:
			err = w.exchange()
		default:
			err = w.long()
		}
		if err == nil {
			err = w.col.Wait(w.sent...)
		}
		if err != nil {
			return nil, err
		}
		w.sent = nil
		w.rec.SwapBytes += (len(w.src) - w.rows(w.me)) * w.n * word
		if w.me > 0 {
			w.rec.SwapBytes += len(w.moves(w.me)) * w.n * word
		}
	}
	t.Ended = w.r.Now()
	w.rec.Swaps = append(w.rec.Swaps, t)
	if w.a == nil {
		return nil, nil
	}
	w.settle(c0)
	u = make([]float64, len(w.src)*n)
	for at, i := range w.order {
		unpack(w.u, at*n, u[int(i)*n:][:n])
	}
	return u, nil
}

// row returns my part of a matrix row of this process row.
func (w *swapper) row(global, c0 int) []float64 {
	at := localOf(global, w.NB, w.P)*w.nq + c0
	return w.a[at : at+w.n]
}

// take copies my rows of U into the buffers and, on the block's process, the rows that leave the
// block. Copying takes no lab time.
func (w *swapper) take(c0 int) {
	if w.a == nil {
		return
	}
	for at := w.start(w.me); at < w.start(w.me+1); at++ {
		pack(w.u, at*w.n, w.row(int(w.src[w.order[at]]), c0))
	}
	if w.me != 0 {
		return
	}
	at := 0
	for _, x := range w.tree[1:] {
		for _, m := range w.moves(int(x)) {
			pack(w.moved, at*w.n, w.row(int(m.from), c0))
			at++
		}
	}
	for _, m := range w.moves(0) { // the block's own rows do not change before U is complete
		copy(w.row(int(m.to), c0), w.row(int(m.from), c0))
	}
}

// settle writes the rows that came from the block to their places.
func (w *swapper) settle(c0 int) {
	if w.me == 0 {
		return
	}
	from, _ := w.leaving(w.me)
	for i, m := range w.moves(w.me) {
		unpack(w.moved, (from+i)*w.n, w.row(int(m.to), c0))
	}
}

// abs returns the process row of a number counted from the block's.
func (w *swapper) abs(x int) int { return (x + w.myRow - w.me + w.P) % w.P }

// rowsOf appends the message with a range of rows of a buffer, unless the range is empty.
func (w *swapper) rowsOf(legs []leg, peer int, b *rank.Buffer, from, to int) []leg {
	if from >= to {
		return legs
	}
	return append(legs, leg{w.abs(peer), b, from * w.n * word, (to - from) * w.n * word})
}

func (w *swapper) send(legs []leg) (err error) {
	w.sent, err = sendAll(w.col.Rank, w.sent, legs)
	return err
}

func peersOf(legs []leg) (peers []int) {
	for _, l := range legs {
		peers = append(peers, l.peer)
	}
	return peers
}

// direct returns the messages that carry the rows which leave the block directly to their processes.
func (w *swapper) direct() (in, out []leg) {
	from, to := w.leaving(w.me)
	if w.me > 0 {
		return w.rowsOf(nil, 0, w.moved, from, to), nil
	}
	for x := 1; x < w.procs; x++ {
		from, to := w.leaving(x)
		out = w.rowsOf(out, x, w.moved, from, to)
	}
	return nil, out
}

// exchange gathers U by recursive doubling (HPL_pdlaswp00). In step i a process and the one whose
// number differs in bit i send each other all rows that they have. A process outside the largest
// hypercube sends its rows to one inside first and receives U at the end.
func (w *swapper) exchange() error {
	var reqs []*rank.Request
	in, out := w.direct()
	stage := [][]leg{out} // the legs to send, and before each: the number of in that must be here
	need := []int{0}
	for _, e := range agreement(w.me, w.procs) {
		give, get := w.held(e.peer, w.me), w.held(w.me, e.peer)
		if e.send {
			var legs []leg
			for _, r := range give {
				legs = w.rowsOf(legs, e.peer, w.u, r.off, r.n)
			}
			stage, need = append(stage, legs), append(need, len(in))
		}
		if e.recv {
			for _, r := range get {
				in = w.rowsOf(in, e.peer, w.u, r.off, r.n)
			}
		}
	}
	var peers []int
	for _, legs := range stage {
		peers = append(peers, peersOf(legs)...)
	}
	reqs, err := begin(w.col, slices.Values(in), peers)
	if err != nil {
		return err
	}
	moved := 0 // messages of in with rows of the block, which are needed only at the end
	if from, to := w.leaving(w.me); w.me > 0 && from < to {
		moved = 1
	}
	for i, legs := range stage {
		if n := need[i]; n > moved {
			if err := w.col.Wait(reqs[moved:n]...); err != nil {
				return err
			}
		}
		if err := w.send(legs); err != nil {
			return err
		}
	}
	return w.col.Wait(reqs...)
}

// span is rows from off up to n of the plan's order.
type span struct{ off, n int }

// held returns the rows that a process has gathered when it exchanges with a peer, and that the
// peer lacks.
func (w *swapper) held(to, from int) []span {
	cube := 1
	for 2*cube <= w.procs {
		cube *= 2
	}
	rows := func(a, b int) span { return span{w.start(min(a, w.procs)), w.start(min(b, w.procs))} }
	switch {
	case from >= cube: // its own rows
		return []span{rows(from, from+1)}
	case to >= cube: // all rows but the peer's own
		return []span{rows(0, to), rows(to+1, w.procs)}
	}
	bit := to ^ from
	base := from &^ (bit - 1)
	return []span{rows(base, base+bit), rows(base+cube, base+bit+cube)}
}

// multicast gathers U by in-network multicast. The processes that have rows of U send them to the
// column's group in turn. The block's process is last, because it first sends the rows that leave
// the block. The time is
//
//	T = about wire(U)/B, for any P and any pivots
//
// plus the time of one change of source per process.
func (w *swapper) multicast() error {
	in, out := w.direct()
	reqs, err := begin(w.col, slices.Values(in), peersOf(out))
	if err != nil {
		return err
	}
	if err := w.send(out); err != nil {
		return err
	}
	for i := range w.procs {
		x := (i + 1) % w.procs
		if w.rows(x) == 0 {
			continue
		}
		n := w.rows(x) * w.n * word
		if x == w.me && w.a != nil {
			copy(w.part.Bytes()[:n], w.u.Bytes()[w.start(x)*w.n*word:])
		}
		if err := w.group.Begin(w.part, n, w.abs(x)); err != nil {
			return err
		}
		if err := w.col.synchronise(); err != nil {
			return err
		}
		if _, err := w.group.Run(); err != nil {
			return err
		}
		if x != w.me && w.a != nil {
			copy(w.u.Bytes()[w.start(x)*w.n*word:], w.part.Bytes()[:n])
		}
	}
	return w.col.Wait(reqs...)
}
