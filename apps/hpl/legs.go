// SPDX-License-Identifier: Apache-2.0

package hpl

import (
	"iter"
	"slices"

	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// leg is a message to or from a process: n bytes of a buffer from off.
type leg struct {
	peer   int
	buf    *rank.Buffer
	off, n int
}

func (l *leg) send(c *rank.Rank) (*rank.Request, error) {
	conn, err := c.Connect(l.peer)
	if err != nil {
		return nil, err
	}
	return conn.Send(l.buf, l.off, l.n)
}

// line is the view of a row or a column of the grid, with a barrier over the fabric, which is part of
// the measured time.
type line struct {
	*rank.Rank
	barrier collective.Algorithm
	apart   *rank.Rank // view of the barrier, whose connections carry nothing else
	nothing *rank.Buffer
}

// pairsFrom is the number of ranks of a job from which on its lines have the barrier with fewer connections: a job of
// 128 x 128 has 28 queue pairs a rank for barriers with the other, a quarter of its memory.
const pairsFrom = 4096

// newLine returns the view of some ranks. All of them must call it.
func newLine(r *rank.Rank, name string, members []int) (l *line, err error) {
	l = &line{}
	if l.Rank, err = r.Sub(name, members); err != nil {
		return nil, err
	}
	if l.apart, err = r.Sub(name+"/barrier", members); err != nil {
		return nil, err
	}
	if l.nothing, err = r.Alloc(0, rank.MemoryPhantom); err != nil {
		return nil, err
	}
	l.barrier = collective.NewBarrier(l.apart)
	if r.Size() >= pairsFrom {
		l.barrier = collective.NewPairBarrier(l.apart)
	}
	return l, l.barrier.Begin(l.nothing, 0, 0)
}

// synchronise waits until all processes of the line have called it.
func (l *line) synchronise() error {
	_, err := l.barrier.Run()
	return err
}

// close releases the objects that newLine has made, once all processes of the line have ended.
func (l *line) close() error {
	if err := l.barrier.Close(); err != nil {
		return err
	}
	l.apart.Sync()
	l.apart.Close()
	l.Close()
	return l.nothing.Free()
}

// begin connects the process to its peers, posts receives, and waits until all processes of the
// view have done so, so that every later message finds a receive. The messages of one peer are
// received in the order in which the peer sends them. It goes over them twice, and keeps none.
func begin(c *line, in iter.Seq[leg], peers []int) ([]*rank.Request, error) {
	n, all := 0, slices.Clone(peers)
	for l := range in {
		if end := len(all); end == 0 || all[end-1] != l.peer {
			all = append(all, l.peer)
		}
		n++
	}
	for _, p := range inOrder(c.ID(), all) {
		if _, err := c.Connect(p); err != nil {
			return nil, err
		}
	}
	reqs := make([]*rank.Request, 0, n)
	for l := range in {
		conn, err := c.Connect(l.peer)
		if err != nil {
			return nil, err
		}
		q, err := conn.Recv(l.buf, l.off, l.n)
		if err != nil {
			return nil, err
		}
		reqs = append(reqs, q)
	}
	return reqs, c.synchronise()
}

// inOrder puts the peers of a process in the order in which it connects to them. All processes
// make the connections of the view in the same order, that of (lower end, higher end), so that they cannot deadlock.
func inOrder(me int, peers []int) []int {
	slices.SortFunc(peers, func(a, b int) int {
		if d := min(a, me) - min(b, me); d != 0 {
			return d
		}
		return max(a, me) - max(b, me)
	})
	return slices.Compact(peers)
}

// branch is a process's place in a binomial tree over processes numbered from the root.
type branch struct {
	parent   int   // -1 at the root
	children []int // the largest subtree first
	end      int   // the subtree has the numbers from the process's own up to end
}

func binomial(me, procs int) branch {
	span := 1
	b := branch{parent: -1}
	if me == 0 {
		for span < procs {
			span *= 2
		}
	} else {
		span = me & -me
		b.parent = me - span
	}
	b.end = min(me+span, procs)
	for c := span / 2; c > 0; c /= 2 {
		if me+c < procs {
			b.children = append(b.children, me+c)
		}
	}
	return b
}

// sendAll posts the sends of all legs and appends them to those in sent.
func sendAll(c *rank.Rank, sent []*rank.Request, legs []leg) ([]*rank.Request, error) {
	for i := range legs {
		q, err := legs[i].send(c)
		if err != nil {
			return nil, err
		}
		sent = append(sent, q)
	}
	return sent, nil
}
