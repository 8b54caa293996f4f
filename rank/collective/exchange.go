// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"slices"

	"github.com/mcastlab/mcastlab/rank"
)

// transfer is a run of blocks that a rank sends to a peer or receives from it. Ranks are
// numbered by their place in a list; block i is the one that the rank at place i starts with.
type transfer struct{ peer, lo, hi int }

// round lists the transfers of a rank in one round. A rank sends once it has received everything of the
// round before.
type round struct{ send, recv []transfer }

// exchange distributes blocks that are spread over ranks to all of them. Every byte reaches a
// rank once.
//
// Where rounds go to several ranks no rank may run ahead, because an early message would take
// link capacity from messages that others wait for. A message above one MTU therefore waits
// until its receiver has reached the round, which it announces by an empty message (MPI's
// rendezvous), and until the messages of the round before are acknowledged.
type exchange struct {
	r      *rank.Rank
	places []int           // ranks, by place
	bound  func(i int) int // offset of block i in the buffer
	rounds []round
	inTurn bool // rounds go to several ranks

	b     *rank.Buffer
	recv  [][]*rank.Request // by round
	ready [][]*rank.Request
}

// peers returns the ranks that the exchange needs connections to.
func (x *exchange) peers() (all []int) {
	for _, n := range x.rounds {
		for _, t := range append(n.send[:len(n.send):len(n.send)], n.recv...) {
			all = append(all, x.places[t.peer])
		}
	}
	return all
}

// post posts all receives.
func (x *exchange) post(b *rank.Buffer) error {
	x.b, x.recv, x.ready = b, make([][]*rank.Request, len(x.rounds)), make([][]*rank.Request, len(x.rounds))
	take := func(to *[]*rank.Request, from, off, n int) error {
		q, err := recvFrom(x.r, x.places[from], b, off, n)
		*to = append(*to, q)
		return err
	}
	for i, n := range x.rounds {
		for _, p := range x.meets(n.send) {
			if err := take(&x.ready[i], p, 0, 0); err != nil {
				return err
			}
		}
		for _, t := range n.recv {
			off := x.bound(t.lo)
			if err := take(&x.recv[i], t.peer, off, x.bound(t.hi)-off); err != nil {
				return err
			}
		}
	}
	return nil
}

// run performs the rounds and returns the sends that may not be acknowledged yet.
func (x *exchange) run() (sent []*rank.Request, err error) {
	for i, n := range x.rounds {
		for _, p := range x.meets(n.recv) {
			if err := x.send(&sent, p, 0, 0); err != nil {
				return sent, err
			}
		}
		if err := x.r.Wait(x.ready[i]...); err != nil {
			return sent, err
		}
		for _, t := range n.send {
			off := x.bound(t.lo)
			if err := x.send(&sent, t.peer, off, x.bound(t.hi)-off); err != nil {
				return sent, err
			}
		}
		if err := x.r.Wait(x.recv[i]...); err != nil {
			return sent, err
		}
		if len(x.meets(n.send)) > 0 {
			if err := x.r.Wait(sent...); err != nil {
				return sent, err
			}
			sent = sent[:0]
		}
	}
	return sent, nil
}

func (x *exchange) send(sent *[]*rank.Request, to, off, n int) error {
	q, err := sendTo(x.r, x.places[to], x.b, off, n)
	if err == nil {
		*sent = append(*sent, q)
	}
	return err
}

// meets returns the peers of the transfers that must wait for their receiver.
func (x *exchange) meets(all []transfer) (peers []int) {
	for _, t := range all {
		if x.inTurn && x.bound(t.hi)-x.bound(t.lo) > x.r.MTU() && !slices.Contains(peers, t.peer) {
			peers = append(peers, t.peer)
		}
	}
	return peers
}

// equal divides n bytes into equal blocks, to within a byte.
func equal(n, blocks int) func(i int) int {
	return func(i int) int { return int(int64(i) * int64(n) / int64(blocks)) }
}

// alone has every rank start with one block, its own (the parameter has of the rounds).
func alone(int) int { return 1 }

// ringRounds passes each block round the ring, one step per round: in round t a rank sends the
// block of the rank t before it to the next rank. Rank i already has the blocks from i to
// i+has(i)-1 and does not get them again.
func ringRounds(me, size int, has func(int) int) (rounds []round) {
	prev, next := (me+size-1)%size, (me+1)%size
	for t := range size - 1 {
		var n round
		if size-1-t >= has(next) { // counted from the receiver
			b := (me - t + size) % size
			n.send = []transfer{{next, b, b + 1}}
		}
		if size-1-t >= has(me) {
			b := (prev - t + size) % size
			n.recv = []transfer{{prev, b, b + 1}}
		}
		rounds = append(rounds, n)
	}
	return rounds
}

// disseminationRounds is Bruck's algorithm: after k rounds a rank has the blocks of the
// radix^k ranks from itself on. It works for any number of ranks. has means the same as in
// ringRounds.
func disseminationRounds(me, size, radix int, has func(int) int) (rounds []round) {
	for d := 1; d < size; d *= radix {
		var n round
		for v := d; v < min(d*radix, size); v += d {
			// A rank gets the blocks from v to v+d after itself from the rank that is v after
			// it.
			from, to := (me+v)%size, (me-v+size)%size
			end := min(v+d, size)
			n.recv = append(n.recv, wrapped(from, me+max(v, has(me)), me+end, size)...)
			n.send = append(n.send, wrapped(to, to+max(v, has(to)), to+end, size)...)
		}
		rounds = append(rounds, n)
	}
	return rounds
}

// wrapped returns the transfers of the blocks lo to hi-1, where numbers beyond the last block
// start again at 0.
func wrapped(peer, lo, hi, size int) (all []transfer) {
	for lo < hi {
		end := min(hi, (lo/size+1)*size)
		all = append(all, transfer{peer, lo % size, (end-1)%size + 1})
		lo = end
	}
	return all
}
