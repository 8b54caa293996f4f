package hpl

import (
	"slices"

	"github.com/mcastlab/mcastlab/rank"
)

// long is HPL's spread-roll (HPL_pdlaswp01, BAS-6). With U bytes and P processes:
//
//	spread    the rows that leave the block go down a binomial tree: (P-1)/P U at most
//	equalise  neighbouring shares of U are made equal: e (P-1)/P U, where e is 0 if the
//	          pivots come from all processes in equal shares, and 1 if all are in the block
//	roll      P-1 steps, in each of which the newest share goes to the next process:
//	          (P-1)/P U
func (w *swapper) long() error {
	l := w.longLegs()
	reqs, err := begin(w.col, l.in, l.peers)
	if err != nil {
		return err
	}
	l.in, l.peers = nil, nil
	if err := w.col.Wait(reqs[:l.fromTree]...); err != nil {
		return err
	}
	for i := range l.spread { // in order, because a larger subtree must pass its rows on sooner
		if err := w.send(l.spread[i : i+1]); err != nil {
			return err
		}
		if err := w.col.Wait(w.sent[i]); err != nil {
			return err
		}
	}
	if err := w.send(l.even); err != nil {
		return err
	}
	if err := w.col.Wait(reqs[l.fromTree:l.fromEven]...); err != nil {
		return err
	}
	return w.roll(reqs[l.fromEven:])
}

// longLegs are the messages of spread-roll.
type longLegs struct {
	in                 []leg // all that a process receives
	fromTree, fromEven int   // how many of these come in the spread, and in that and the equalisation
	spread, even       []leg // what it sends
	peers              []int // whom it sends to
}

func (w *swapper) longLegs() *longLegs {
	me, l := w.me, &longLegs{}
	here := int(w.place[me])
	tree := binomial(here, w.procs)
	if tree.parent >= 0 {
		l.in = w.rowsOf(l.in, int(w.tree[tree.parent]), w.moved, w.before(here), w.before(tree.end))
	}
	l.fromTree = len(l.in)
	for _, c := range tree.children {
		l.spread = w.rowsOf(l.spread, int(w.tree[c]), w.moved, w.before(c), w.before(binomial(c, w.procs).end))
	}
	for x := range w.procs {
		if x == me {
			continue
		}
		l.even = w.rowsOf(l.even, x, w.u, max(w.start(me), w.target(x)), min(w.start(me+1), w.target(x+1)))
		l.in = w.rowsOf(l.in, x, w.u, max(w.start(x), w.target(me)), min(w.start(x+1), w.target(me+1)))
	}
	l.fromEven = len(l.in)
	shares := min(len(w.src), w.procs) // those that have rows
	l.in = slices.Grow(l.in, shares)
	l.peers = slices.Grow(append(peersOf(l.spread), peersOf(l.even)...), len(l.in)+2*shares)
	var out []leg
	for s := range w.procs - 1 {
		out, l.in = w.share(out[:0], w.right(), s), w.share(l.in, w.left(), s+1)
		l.peers = append(l.peers, peersOf(out)...)
	}
	return l
}

func (w *swapper) left() int  { return (w.me - 1 + w.procs) % w.procs }
func (w *swapper) right() int { return (w.me + 1) % w.procs }

// share appends the message with the share that reached this process so many steps of the roll ago, unless that has no rows. A step
// sends one to the right, and receives the one that is sent in the next.
func (w *swapper) share(legs []leg, peer, steps int) []leg {
	x := (w.me - steps + w.procs) % w.procs
	return w.rowsOf(legs, peer, w.u, w.target(x), w.target(x+1))
}

// roll passes the shares on; reqs are its receives.
func (w *swapper) roll(reqs []*rank.Request) error {
	var out []leg
	for s := range w.procs - 1 {
		out = w.share(out[:0], w.right(), s)
		if err := w.send(out); err != nil {
			return err
		}
		n := len(w.share(out[:0], w.left(), s+1))
		if err := w.col.Wait(reqs[:n]...); err != nil {
			return err
		}
		// What is over is not kept: in a large job, these requests would be a tenth of the memory.
		clear(reqs[:n])
		reqs, w.sent = reqs[n:], w.open(w.sent)
	}
	return nil
}
