// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// crossing is a frame on a link between two parts. It belongs to the pool of the part that has sent
// it, which is that of the other one too if both have one worker.
type crossing struct {
	port int
	at   vtime.Time // when it arrives
	f    *wire.Frame
}

// batch holds the frames that one part has sent another in a round.
type batch struct {
	frames []crossing
	first  vtime.Time // when the first of them arrives
}

// crossings hands frames over between parts, a round's at a time, so that parts need no lock. There are
// two sides. In a round every part puts the frames that it sends on the open side. It copies those on
// the other side into frames of its own, which it alone reads, and takes back those frames of its own
// that were copied in the round before. Between parts of one worker frames are handed over as they are.
//
// A round takes time for the batches that hold something, and not for every pair of parts.
//
// Invariant between rounds: the frames on the open side have not been copied, and those on the other
// side have.
type crossings struct {
	side   [2][][]batch // by sender, by receiver
	sent   [2][][]int   // by sender: the receivers for which its batches on a side hold something
	from   [][]int      // by receiver: the senders, in ascending order, of the frames on the side that is not open
	open   int
	worker []int // by part
}

func newCrossings(worker []int) (c crossings) {
	parts := len(worker)
	c.worker, c.from = worker, make([][]int, parts)
	for s := range c.side {
		c.side[s], c.sent[s] = make([][]batch, parts), make([][]int, parts)
		for i := range c.side[s] {
			c.side[s][i] = make([]batch, parts)
		}
	}
	return c
}

// push puts a frame on the open side.
func (c *crossings) push(from, to int, x crossing) {
	b := &c.side[c.open][from][to]
	if len(b.frames) == 0 {
		c.sent[c.open][from] = append(c.sent[c.open][from], to)
		b.first = x.at
	}
	b.frames = append(b.frames, x)
	b.first = min(b.first, x.at)
}

// coming makes next, of each part, the instant when the first frame arrives there that it has not copied, if
// that is earlier.
func (c *crossings) coming(next []vtime.Time) {
	for from, all := range c.sent[c.open] {
		for _, to := range all {
			next[to] = min(next[to], c.side[c.open][from][to].first)
		}
	}
}

// turn opens the other side. Every part must take back its frames there before it sends, and copy the
// frames on the side that was open.
func (c *crossings) turn() {
	for to := range c.from {
		c.from[to] = c.from[to][:0]
	}
	for from, all := range c.sent[c.open] {
		for _, to := range all {
			c.from[to] = append(c.from[to], from)
		}
	}
	c.open = 1 - c.open
}

// land copies the frames that were sent to a part before the last turn.
func (c *crossings) land(to int, n *Net) {
	for _, from := range c.from[to] {
		own := c.worker[from] == c.worker[to]
		for _, x := range c.side[1-c.open][from][to].frames {
			f := x.f
			if !own {
				f = n.pool.Import(f)
			}
			n.Arrive(x.port, x.at, f)
		}
	}
}

// reclaim takes back the frames on the open side that a part has sent.
func (c *crossings) reclaim(from int, pool *wire.Pool) {
	for _, to := range c.sent[c.open][from] {
		b := &c.side[c.open][from][to]
		if c.worker[to] != c.worker[from] {
			for _, x := range b.frames {
				pool.Put(x.f)
			}
		}
		b.frames = b.frames[:0]
	}
	c.sent[c.open][from] = c.sent[c.open][from][:0]
}
