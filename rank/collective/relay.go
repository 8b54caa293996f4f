// SPDX-License-Identifier: Apache-2.0

package collective

import "github.com/mcastlab/mcastlab/rank"

// shape is the shape of a tree: it returns the rank that a rank receives from and those that
// it passes the message on to, in that order. Ranks count from the root; the parent of the
// root is -1.
type shape func(me, size int, o Options) (parent int, children []int)

// relay passes a message down one tree, or a share of it down each of several. A rank
// passes a slice on once it has all of it.
//
// A message above one MTU that is not sliced goes to the next child when the previous
// send is complete: with all at once, fair sharing between queue pairs would make any
// tree a star. One that fits a packet goes to all children at once, and so do slices.
type relay struct {
	r      *rank.Rank
	o      Options
	shapes []shape

	b       *rank.Buffer
	streams []stream
}

// stream is a relay's work for its share of the message down one tree.
type stream struct {
	parent   int // rank number, not relative to the root; -1 at the root
	children []int
	pieces   []piece
	recv     []*rank.Request
	next     int  // index of the next piece to pass on
	inTurn   bool // a child must acknowledge a piece before the next child is served
}

// piece is a part of the message.
type piece struct{ off, n int }

func newRelay(shapes ...shape) func(*rank.Rank, *Options) (Algorithm, error) {
	return func(r *rank.Rank, o *Options) (Algorithm, error) { return &relay{r: r, o: *o, shapes: shapes}, nil }
}

// cut divides n bytes into at least one and at most s pieces of whole packets, all of equal
// size except the last. An empty message is one empty piece.
func cut(n, s, mtu int) []piece {
	packets := max(1, (n+mtu-1)/mtu)
	s = max(1, min(s, packets))
	size := (packets + s - 1) / s * mtu
	pieces := make([]piece, 0, s)
	for off := 0; ; off += size {
		if off+size >= n {
			return append(pieces, piece{off, n - off})
		}
		pieces = append(pieces, piece{off, size})
	}
}

// shares divides a message among the trees in whole packets; if there are too few packets the
// last trees get none. With one receiver there is one tree, because two would share a
// connection.
func (t *relay) shares(n int) []piece {
	return cut(n, min(len(t.shapes), t.r.Size()-1), t.r.MTU())
}

// Begin implements Algorithm.
func (t *relay) Begin(b *rank.Buffer, n, root int) error {
	t.b, t.streams = b, t.streams[:0]
	for i, share := range t.shares(n) {
		if err := t.begin(t.shapes[i], share, root); err != nil {
			return err
		}
	}
	return nil
}

func (t *relay) begin(f shape, share piece, root int) error {
	s := t.open(f, share, root)
	// Parents connect first, so no cycle of ranks waits for each other.
	if s.parent >= 0 {
		for _, p := range s.pieces {
			q, err := recvFrom(t.r, s.parent, t.b, p.off, p.n)
			if err != nil {
				return err
			}
			s.recv = append(s.recv, q)
		}
	}
	return connectAll(t.r, s.children)
}

// open adds the stream of a tree, and returns it. What it needs is not on the stack while the rank waits for its peers.
func (t *relay) open(f shape, share piece, root int) *stream {
	mtu := t.r.MTU()
	t.streams = append(t.streams, stream{parent: -1, pieces: cut(share.n, t.o.Slices, mtu)})
	s := &t.streams[len(t.streams)-1]
	s.inTurn = len(s.pieces) == 1 && share.n > mtu
	parent, children := f(relative(t.r, root), t.r.Size(), t.o)
	for _, c := range children {
		s.children = append(s.children, absolute(t.r, root, c))
	}
	for i := range s.pieces {
		s.pieces[i].off += share.off
	}
	if parent >= 0 {
		s.parent = absolute(t.r, root, parent)
	}
	return s
}

// Run implements Algorithm.
func (t *relay) Run() (at Times, err error) {
	at.Received = t.r.Now()
	var sent []*rank.Request
	for {
		s, err := t.take()
		if err != nil {
			return at, err
		}
		if s == nil {
			break
		}
		if s.parent >= 0 {
			at.Received = t.r.Now()
		}
		p := s.pieces[s.next]
		s.next++
		for _, c := range s.children {
			q, err := sendTo(t.r, c, t.b, p.off, p.n)
			if err != nil {
				return at, err
			}
			sent = append(sent, q)
			if s.inTurn && len(s.children) > 1 {
				if err := t.r.Wait(q); err != nil {
					return at, err
				}
			}
		}
	}
	err = t.r.Wait(sent...)
	at.Done = t.r.Now()
	return at, err
}

// take waits for the next piece of any stream and returns the stream; nil means that no piece
// is left. At the root the streams take turns.
func (t *relay) take() (*stream, error) {
	var open *stream // the stream that has passed on the fewest pieces
	count := 0
	for i := range t.streams {
		if s := &t.streams[i]; s.next < len(s.pieces) {
			count++
			if open == nil || s.next < open.next {
				open = s
			}
		}
	}
	switch {
	case count == 0 || open.parent < 0:
		return open, nil
	case count == 1:
		return open, t.r.Wait(open.recv[open.next])
	}
	reqs := make([]*rank.Request, len(t.streams))
	for i := range t.streams {
		if s := &t.streams[i]; s.next < len(s.pieces) {
			reqs[i] = s.recv[s.next]
		}
	}
	i, err := t.r.WaitAny(reqs...)
	return &t.streams[i], err
}

// Close implements Algorithm.
func (t *relay) Close() error { return nil }
