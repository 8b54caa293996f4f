package collective

import (
	"fmt"

	"github.com/mcastlab/mcastlab/rank"
)

// chain passes the message along the ranks in order, cut into slices: a relay passes
// a slice on once it has all of it (BAS-2).
//
//	T = sum over hops of (S(M/s, L) - wire(M/s)/B) + (r+s-1) wire(M/s)/B
//
// with s slices, at most one per packet.
type chain struct {
	r      *rank.Rank
	slices int
	b      *rank.Buffer
	pieces []piece
	prev   int // absolute; -1 at the root
	next   int // absolute; -1 at the end
	recv   []*rank.Request
}

// piece is a part of the message.
type piece struct{ off, n int }

func newChain(r *rank.Rank, o Options) (Bcast, error) {
	if o.Slices < 0 {
		return nil, fmt.Errorf("%d slices: need at least 1, or 0 for one per rank", o.Slices)
	}
	s := o.Slices
	if s == 0 {
		s = r.Size()
	}
	return &chain{r: r, slices: s}, nil
}

// cut divides n bytes into at most s pieces of whole packets, of equal size but the
// last. A message of nothing is one piece of nothing.
func cut(n, s, mtu int) []piece {
	packets := max(1, (n+mtu-1)/mtu)
	s = min(s, packets)
	size := (packets + s - 1) / s * mtu
	pieces := make([]piece, 0, s)
	for off := 0; ; off += size {
		if off+size >= n {
			return append(pieces, piece{off, n - off})
		}
		pieces = append(pieces, piece{off, size})
	}
}

// Begin implements Bcast.
func (c *chain) Begin(b *rank.Buffer, n, root int) error {
	c.b, c.prev, c.next, c.recv = b, -1, -1, c.recv[:0]
	c.pieces = cut(n, c.slices, c.r.Params().MTU)
	me := relative(c.r, root)
	if me > 0 {
		c.prev = absolute(c.r, root, me-1)
		for _, p := range c.pieces {
			q, err := recvFrom(c.r, c.prev, b, p.off, p.n)
			if err != nil {
				return err
			}
			c.recv = append(c.recv, q)
		}
	}
	if me+1 < c.r.Size() {
		c.next = absolute(c.r, root, me+1)
		if _, err := c.r.Connect(c.next); err != nil {
			return err
		}
	}
	return nil
}

// Run implements Bcast.
func (c *chain) Run() (t Times, err error) {
	t.Received = c.r.Now()
	var sent []*rank.Request
	for i, p := range c.pieces {
		if c.prev >= 0 {
			if err := c.r.Wait(c.recv[i]); err != nil {
				return t, err
			}
			t.Received = c.r.Now()
		}
		if c.next >= 0 {
			q, err := sendTo(c.r, c.next, c.b, p.off, p.n)
			if err != nil {
				return t, err
			}
			sent = append(sent, q)
		}
	}
	err = c.r.Wait(sent...)
	t.Done = c.r.Now()
	return t, err
}

// Close implements Bcast.
func (c *chain) Close() error { return nil }
