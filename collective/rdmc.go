package collective

import (
	"fmt"
	"math/bits"

	"github.com/mcastlab/mcastlab/rank"
)

// rdmc is the binomial pipeline of RDMC (Behrens et al., "RDMC: A Reliable RDMA
// Multicast for Large Objects"; BAS-3). The first 2^l ranks stand at the vertices of a
// hypercube, l = floor(log2 N). In step j every vertex sends a block to its neighbour in
// dimension j mod l: the root block j, the others the newest that the neighbour lacks.
// So every link is busy in both directions, and with k blocks all have everything after
// l + k - 1 steps. A rank has one send at a time under way:
//
//	T = (l + k - 2) (S(b, L) + A(L)) + S(b, L)
//
// with blocks of b bytes. Each of the N - 2^l ranks that remain shares a vertex with one
// that receives: in a step one of the two sends for the vertex while the other receives
// for it and gives the first what that lacks. That takes one step more.
type rdmc struct {
	r     *rank.Rank
	block int
	b     *rank.Buffer
	n     int
	root  int
	steps []rdmcSend
	recv  []*rank.Request // by block
}

// rdmcSend is a block that a rank sends to another, counted from the root.
type rdmcSend struct{ to, block int }

func newRDMC(r *rank.Rank, o Options) (Algorithm, error) { return &rdmc{r: r, block: o.Block}, nil }

// Begin implements Algorithm.
func (t *rdmc) Begin(b *rank.Buffer, n, root int) error {
	t.b, t.n, t.root = b, n, root
	k := max(1, (n+t.block-1)/t.block)
	if most := rank.QueueDepth; k > most {
		return fmt.Errorf("%d blocks of %d bytes: a connection takes at most %d, use larger ones", k, t.block, most)
	}
	p := pipeline{t.r.Size(), k, bits.Len(uint(t.r.Size())) - 1}
	me := relative(t.r, root)
	var from []rdmcSend
	t.steps, from = p.plan(me)
	var peers []int
	for _, s := range append(t.steps[:len(t.steps):len(t.steps)], from...) {
		peers = append(peers, absolute(t.r, root, s.to))
	}
	if err := connectAny(t.r, peers); err != nil {
		return err
	}
	t.recv = make([]*rank.Request, k)
	for _, s := range from {
		off, n := t.part(s.block)
		q, err := recvFrom(t.r, absolute(t.r, root, s.to), b, off, n)
		if err != nil {
			return err
		}
		t.recv[s.block] = q
	}
	return nil
}

// part returns where a block is.
func (t *rdmc) part(block int) (off, n int) {
	off = block * t.block
	return off, min(t.block, t.n-off)
}

// Run implements Algorithm.
func (t *rdmc) Run() (at Times, err error) {
	at.Received = t.r.Now()
	var sending []*rank.Request // none or one
	for _, s := range t.steps {
		if err := t.await(s.block, &at); err != nil {
			return at, err
		}
		if err := t.r.Wait(sending...); err != nil {
			return at, err
		}
		off, n := t.part(s.block)
		q, err := sendTo(t.r, absolute(t.r, t.root, s.to), t.b, off, n)
		if err != nil {
			return at, err
		}
		sending = append(sending[:0], q)
	}
	for i := range t.recv {
		if err := t.await(i, &at); err != nil {
			return at, err
		}
	}
	err = t.r.Wait(sending...)
	at.Done = t.r.Now()
	return at, err
}

// await waits for a block that has not come yet.
func (t *rdmc) await(block int, at *Times) error {
	q := t.recv[block]
	if q == nil {
		return nil
	}
	t.recv[block] = nil
	err := t.r.Wait(q)
	at.Received = t.r.Now()
	return err
}

// Close implements Algorithm.
func (t *rdmc) Close() error { return nil }

// pipeline is the schedule of the binomial pipeline: ranks, blocks, dimensions.
type pipeline struct{ size, blocks, dims int }

func (p pipeline) last() int { return p.dims + p.blocks - 2 } // step

// sends returns what a vertex sends in a step, if anything.
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

// place returns the rank on one side of a vertex; side 1 of some is empty, which is ok
// false.
func (p pipeline) place(vertex, side int) (rank int, ok bool) {
	if side == 0 {
		return vertex, true
	}
	rank = 1<<p.dims + vertex - 1
	return rank, vertex > 0 && rank < p.size
}

// turn is what the sides of a vertex do in a step: one sends to the next vertex, and the
// other receives and gives the sender what only it had. So each of them lacks at most
// one of the vertex's blocks.
type turn struct {
	out, in int
	gift    int // block that in gives out; -1: none
}

// turns returns what a vertex does step by step. At the end the sides give each other
// what is left: two turns, one each way, at the same time.
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

// plan returns what a rank sends, in order, and from whom each block comes to it, in
// the order of that connection.
func (p pipeline) plan(me int) (send, recv []rdmcSend) {
	vertex, side := me, 0
	if me >= 1<<p.dims {
		vertex, side = me-1<<p.dims+1, 1
	}
	near := make([][]turn, p.dims)
	for d := range near {
		near[d] = p.turns(vertex ^ 1<<d)
	}
	for step, t := range p.turns(vertex) {
		next := vertex ^ 1<<(step%p.dims)
		if step <= p.last() {
			far := near[step%p.dims][step]
			if _, block, ok := p.sends(vertex, step); ok && t.out == side {
				to, _ := p.place(next, far.in)
				send = append(send, rdmcSend{to, block})
			}
			if _, block, ok := p.sends(next, step); ok && t.in == side && vertex != 0 {
				from, _ := p.place(next, far.out)
				recv = append(recv, rdmcSend{from, block})
			}
		}
		if t.gift >= 0 {
			other, _ := p.place(vertex, 1-side)
			if t.in == side {
				send = append(send, rdmcSend{other, t.gift})
			} else {
				recv = append(recv, rdmcSend{other, t.gift})
			}
		}
	}
	return send, recv
}
