package collective

import (
	"slices"

	"github.com/mcastlab/mcastlab/rank"
)

// transfer is a run of blocks that a rank sends to a peer or receives from it. Ranks are
// places in a list; block i is the one that the rank at place i begins with.
type transfer struct{ peer, lo, hi int }

// round is what a rank sends once it has received all of the round before.
type round struct{ send, recv []transfer }

// exchange brings blocks that are spread over ranks to all of them. Every byte comes to
// a rank once.
//
// Where rounds go to several ranks, nobody must race ahead: what comes early takes a link
// from what others wait for. So a message above one MTU waits until its receiver has come
// to the round and says so by an empty message (MPI's rendezvous), and until those of the
// round before are acknowledged.
type exchange struct {
	r      *rank.Rank
	places []int           // ranks
	bound  func(i int) int // where block i begins in the buffer
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

// run goes through the rounds and returns what may not be acknowledged yet.
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

// meets returns the peers of the transfers that have to wait for their receiver.
func (x *exchange) meets(all []transfer) (peers []int) {
	for _, t := range all {
		if x.inTurn && x.bound(t.hi)-x.bound(t.lo) > x.r.Params().MTU && !slices.Contains(peers, t.peer) {
			peers = append(peers, t.peer)
		}
	}
	return peers
}

// equal divides n bytes into equal blocks, to within a byte.
func equal(n, blocks int) func(i int) int {
	return func(i int) int { return int(int64(i) * int64(n) / int64(blocks)) }
}

// alone is what every rank has when it begins with its own block only.
func alone(int) int { return 1 }

// ringRounds passes each block round the ring, one step per round: in round t a rank
// sends the block of t before it to the next rank. Rank i has the blocks from i to
// i+has(i)-1 already and does not get them again.
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
// radix^k ranks from itself on. It works for any number of ranks. has is as in
// ringRounds.
func disseminationRounds(me, size, radix int, has func(int) int) (rounds []round) {
	for d := 1; d < size; d *= radix {
		var n round
		for v := d; v < min(d*radix, size); v += d {
			// A rank gets the blocks from v to v+d after itself from the rank v after it.
			from, to := (me+v)%size, (me-v+size)%size
			end := min(v+d, size)
			n.recv = append(n.recv, wrapped(from, me+max(v, has(me)), me+end, size)...)
			n.send = append(n.send, wrapped(to, to+max(v, has(to)), to+end, size)...)
		}
		rounds = append(rounds, n)
	}
	return rounds
}

// wrapped returns the transfers of the blocks lo to hi-1, which count on beyond the
// last one.
func wrapped(peer, lo, hi, size int) (all []transfer) {
	for lo < hi {
		end := min(hi, (lo/size+1)*size)
		all = append(all, transfer{peer, lo % size, (end-1)%size + 1})
		lo = end
	}
	return all
}
