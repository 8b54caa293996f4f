// SPDX-License-Identifier: Apache-2.0

package hpl

import (
	"iter"

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
	reqs, err := begin(w.col, w.received(l.in), l.peers)
	if err != nil {
		return err
	}
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
	in                 []leg // rows that a process receives before the roll
	fromTree, fromEven int   // rows of these that come in the spread, and in the spread and the equalisation
	spread, even       []leg // rows that it sends
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
	l.peers = append(peersOf(l.spread), peersOf(l.even)...)
	for s := range w.procs - 1 {
		if right := w.share(nil, w.right(), s); len(right) > 0 { // the others have the same peer
			l.peers = append(l.peers, right[0].peer)
			break
		}
	}
	return l
}

// received are all messages that a process receives: those before the roll, and the shares that come in it. In a large job, a list of
// these would be a twentieth of the memory.
func (w *swapper) received(before []leg) iter.Seq[leg] {
	return func(yield func(leg) bool) {
		for _, l := range before {
			if !yield(l) {
				return
			}
		}
		var one []leg
		for s := range w.procs - 1 {
			one = w.share(one[:0], w.left(), s+1)
			for _, l := range one {
				if !yield(l) {
					return
				}
			}
		}
	}
}

func (w *swapper) left() int  { return (w.me - 1 + w.procs) % w.procs }
func (w *swapper) right() int { return (w.me + 1) % w.procs }

// share appends the message with the share that reached this process the given number of steps of the roll ago, unless that has no
// rows. A step sends one to the right, and receives the one that is sent in the next.
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
