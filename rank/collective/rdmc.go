// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"fmt"
	"math/bits"

	"github.com/mcastlab/mcastlab/rank"
)

// rdmc is the binomial pipeline of RDMC (Behrens et al., "RDMC: A Reliable RDMA Multicast for
// Large Objects"; BAS-3). The first 2^l ranks are the vertices of a hypercube, l = floor(log2
// N). In step j every vertex sends a block to its neighbour in dimension j mod l: the root
// sends block j, the others the newest block that the neighbour lacks. So every link is busy
// in both directions, and all ranks have all k blocks after l + k - 1 steps. A rank has one
// send outstanding at a time:
//
//	T = S(0, L) + (l + k - 2) (S(b, L) + A(L)) + S(b, L) [+ A(L) + S(b, L) if N is not 2^l]
//
// with blocks of b bytes. Each of the N - 2^l remaining ranks shares a vertex with one of the
// first. In each step one of the two sends for the vertex; the other receives for it and gives
// the sender the block that it lacks. That takes one step more.
//
// A block is sent once its receiver has reached the same step, which the receiver announces by
// an empty message, so no two ranks send to one at the same time. After the first step that
// message arrives together with the acknowledgement of the previous block.
type rdmc struct {
	r     *rank.Rank
	block int
	b     *rank.Buffer
	n     int
	root  int
	steps []rdmcStep
	recv  []*rank.Request // by step; nil: none in that step
	ready []*rank.Request
}

// rdmcStep is one step of a rank: the rank that it sends a block to and the rank that it
// receives one from, counted from the root; -1: none.
type rdmcStep struct{ to, block, from, comes int }

func newRDMC(r *rank.Rank, o *Options) (Algorithm, error) { return &rdmc{r: r, block: o.Block}, nil }

// RDMCBlocksMax is the number of blocks that a message can have: for each block there is also an empty
// message that may go to the same queue pair.
const RDMCBlocksMax = rank.QueueDepth / 2

// Begin implements Algorithm.
func (t *rdmc) Begin(b *rank.Buffer, n, root int) error {
	t.b, t.n, t.root = b, n, root
	k := max(1, (n+t.block-1)/t.block)
	if most := RDMCBlocksMax; k > most {
		return fmt.Errorf("%d blocks of %d bytes: a connection takes at most %d, use larger ones", k, t.block, most)
	}
	p := pipeline{t.r.Size(), k, bits.Len(uint(t.r.Size())) - 1}
	t.steps = p.plan(relative(t.r, root))
	var peers []int
	for _, s := range t.steps {
		for _, peer := range []int{s.to, s.from} {
			if peer >= 0 {
				peers = append(peers, absolute(t.r, root, peer))
			}
		}
	}
	if err := connectAny(t.r, peers); err != nil {
		return err
	}
	t.recv, t.ready = make([]*rank.Request, len(t.steps)), make([]*rank.Request, len(t.steps))
	for i, s := range t.steps {
		var err error
		if s.to >= 0 {
			if t.ready[i], err = recvFrom(t.r, absolute(t.r, root, s.to), b, 0, 0); err != nil {
				return err
			}
		}
		if s.from >= 0 {
			off, n := t.part(s.comes)
			if t.recv[i], err = recvFrom(t.r, absolute(t.r, root, s.from), b, off, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// part returns the offset and length of a block.
func (t *rdmc) part(block int) (off, n int) {
	off = block * t.block
	return off, min(t.block, t.n-off)
}

// Run implements Algorithm.
func (t *rdmc) Run() (at Times, err error) {
	at.Received = t.r.Now()
	var empty []*rank.Request
	var sending, coming *rank.Request
	for i, s := range t.steps {
		if coming != nil {
			if err := t.r.Wait(coming); err != nil {
				return at, err
			}
			at.Received = t.r.Now()
		}
		if coming = t.recv[i]; coming != nil {
			q, err := sendTo(t.r, absolute(t.r, t.root, s.from), t.b, 0, 0)
			if err != nil {
				return at, err
			}
			empty = append(empty, q)
		}
		if s.to < 0 {
			continue
		}
		if sending != nil {
			if err := t.r.Wait(sending); err != nil {
				return at, err
			}
		}
		if err := t.r.Wait(t.ready[i]); err != nil {
			return at, err
		}
		off, n := t.part(s.block)
		if sending, err = sendTo(t.r, absolute(t.r, t.root, s.to), t.b, off, n); err != nil {
			return at, err
		}
	}
	if coming != nil {
		if err := t.r.Wait(coming); err != nil {
			return at, err
		}
		at.Received = t.r.Now()
	}
	if sending != nil {
		empty = append(empty, sending)
	}
	err = t.r.Wait(empty...)
	at.Done = t.r.Now()
	return at, err
}

// Close implements Algorithm.
func (t *rdmc) Close() error { return nil }

// pipeline is the schedule of the binomial pipeline, in numbers of ranks, blocks and
// dimensions.
type pipeline struct{ size, blocks, dims int }

func (p pipeline) last() int { return p.dims + p.blocks - 2 } // last step

// sends returns the block that a vertex sends in a step, and to whom; ok is false if it sends nothing.
func (p pipeline) sends(vertex, step int) (to, block int, ok bool) {
	d := step % p.dims
	to = vertex ^ 1<<d
	if to == 0 {
		return 0, 0, false
	}
	block = step
	if vertex != 0 {
		turned := (vertex>>d | vertex<<(p.dims-d)) & (1<<p.dims - 1)
		block = step - p.dims + bits.TrailingZeros(uint(turned))
	}
	return to, min(block, p.blocks-1), block >= 0
}

// place returns the rank on one side of a vertex. ok is false if that side, 1, is empty.
func (p pipeline) place(vertex, side int) (rank int, ok bool) {
	if side == 0 {
		return vertex, true
	}
	rank = 1<<p.dims + vertex - 1
	return rank, vertex > 0 && rank < p.size
}

// turn lists the transfers of the two sides of a vertex in a step. One side sends to the next vertex;
// the other receives, and gives the sender the block that only it had. So each side lacks at most one
// of the vertex's blocks.
type turn struct {
	out, in int
	gift    int // block that side in gives to side out; -1: none
}

// turns returns a vertex's turns, one for each step. At the end each side gives the other the block
// that it lacks: two turns, one in each direction, at the same time.
func (p pipeline) turns(vertex int) []turn {
	all := make([]turn, p.last()+1)
	_, pair := p.place(vertex, 1)
	only := [2]int{-1, -1} // block that only one side has
	for step := range all {
		t := turn{gift: -1}
		if pair {
			_, block, ok := p.sends(vertex, step)
			switch {
			case ok && only[0] == block:
			case ok && only[1] == block, only[0] >= 0 && (only[1] < 0 || only[0] < only[1]):
				t.out = 1
			}
			t.in = 1 - t.out
			t.gift, only[t.in] = only[t.in], -1
		}
		if _, block, ok := p.sends(vertex^1<<(step%p.dims), step); ok && pair && vertex != 0 {
			only[t.in] = block
		}
		all[step] = t
	}
	return append(all, turn{in: 1, gift: only[1]}, turn{out: 1, gift: only[0]})
}

// plan returns the steps of a rank.
func (p pipeline) plan(me int) (steps []rdmcStep) {
	vertex, side := me, 0
	if me >= 1<<p.dims {
		vertex, side = me-1<<p.dims+1, 1
	}
	near := make([][]turn, p.dims)
	for d := range near {
		near[d] = p.turns(vertex ^ 1<<d)
	}
	other, _ := p.place(vertex, 1-side)
	for step, t := range p.turns(vertex) {
		s := rdmcStep{to: -1, from: -1}
		if step <= p.last() {
			next := vertex ^ 1<<(step%p.dims)
			far := near[step%p.dims][step]
			if _, block, ok := p.sends(vertex, step); ok && t.out == side {
				s.to, _ = p.place(next, far.in)
				s.block = block
			}
			if _, block, ok := p.sends(next, step); ok && t.in == side && vertex != 0 {
				s.from, _ = p.place(next, far.out)
				s.comes = block
			}
		}
		switch {
		case t.gift < 0:
		case t.in == side:
			s.to, s.block = other, t.gift
		default:
			s.from, s.comes = other, t.gift
		}
		steps = append(steps, s)
	}
	// The last two turns happen in one step.
	x, y := &steps[len(steps)-2], steps[len(steps)-1]
	if y.to >= 0 {
		x.to, x.block = y.to, y.block
	}
	if y.from >= 0 {
		x.from, x.comes = y.from, y.comes
	}
	return steps[:len(steps)-1]
}
