// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// order decides which thread of a program runs next, and until when all of them wait. It has no clock, socket or goroutine:
// docs/turns.md describes its states and rules, and TestOrder enumerates them.
//
// Three rules make it fair and let it terminate. Of several threads that may run, the one that has waited longest does. A thread that
// waits for another of its process looks again only after that process has made progress, and a look that finds nothing
// is no progress. Progress without end at one instant takes lab time (freeMoves).
type order struct {
	waiters []*waiter // in the order in which they came
	parks   uint64    // how often a thread has parked
	moves   int       // made since from, at most moveCost ago; lab time that was paid for does not count
	from    vtime.Time
	resume  vtime.Time
	paid    bool // the next move has had its moveCost
}

// Within moveCost of lab time a program makes freeMoves moves at no cost. Each further one takes moveCost, until as much lab time passes for
// another reason: two threads that hand a lock, or a byte in a pipe, to and fro would otherwise keep a third from the end of its sleep for ever.
const (
	freeMoves = 1000
	moveCost  = vtime.Microsecond
)

// waiter is a thread as the order sees it.
type waiter struct {
	process *process
	parked  bool
	look    bool // its condition outside the lab holds
	park    park

	// When it was parked.
	number uint64 // order.parks
	since  vtime.Time
	began  vtime.Time // the first of looks that have found nothing
	seen   news
	moves  uint64 // process.moves
	early  bool   // news of the NIC has shortened its poll
}

// process is the order's state of a process.
type process struct {
	moves uint64 // how often one of its threads has done something that another may wait for
}

// news counts the events at a host that its programs can see.
type news struct {
	events uint64 // sent to programs
	bytes  uint64 // times that bytes came into the memory of programs
	done   uint64 // completions of the NIC
}

// reserve returns the place, among those that wait, of a thread that is about to be started.
func (o *order) reserve() uint64 {
	o.parks++
	return o.parks
}

// enter takes a thread that has begun: it runs when its turn comes. Threads that one thread starts come in any order, so each has the place
// that was reserved when it was started. place 0: it has none yet, and gets the last if none is given to it (next).
func (o *order) enter(x *waiter, place uint64, now vtime.Time, n news) {
	o.waiters = append(o.waiters, x)
	o.parked(x, park{Kind: parkSleep, Flags: parkAgain, Until: uint64(now)}, now, n)
	x.number = place
}

// leave forgets a thread that has ended, which others may have waited for.
func (o *order) leave(x *waiter) {
	o.waiters = slices.DeleteFunc(o.waiters, func(w *waiter) bool { return w == x })
	o.moved(x)
}

// moved notes that a thread has done something that another may wait for.
func (o *order) moved(x *waiter) {
	x.process.moves++
	o.moves++
	o.paid = false
}

// parked notes that a thread waits.
func (o *order) parked(x *waiter, m park, now vtime.Time, n news) {
	if m.Flags&parkAgain == 0 {
		o.moved(x)
		x.began = now
	}
	o.parks++
	x.parked, x.look, x.early = true, false, false
	x.park, x.number, x.since, x.seen, x.moves = m, o.parks, now, n, x.process.moves
}

// next returns the thread that runs next, and why. If there is none, all wait until an instant at the latest.
func (o *order) next(now vtime.Time, n news) (x *waiter, why uint32, until vtime.Time) {
	if now < o.resume {
		return nil, 0, o.resume
	}
	if now.Sub(o.from) > moveCost { // an exchange outside the lab takes a picosecond
		o.moves, o.from = 0, now
	}
	until = vtime.Never
	for _, w := range o.waiters {
		if !w.parked {
			continue
		}
		if w.number == 0 {
			w.number = o.reserve()
		}
		reason := w.due(now, n)
		if reason != 0 && (x == nil || w.number < x.number) {
			x, why = w, reason
		}
		until = min(until, w.until())
	}
	if x != nil && o.moves >= freeMoves && !o.paid {
		o.resume, o.from, o.paid = now.Add(moveCost), o.from.Add(moveCost), true
		return nil, 0, o.resume
	}
	return x, why, until
}

// due returns why a thread may run; 0: it may not.
func (x *waiter) due(now vtime.Time, n news) (why uint32) {
	x.notice(now, n)
	switch {
	case x.look && x.park.Kind == parkOutside:
		return whyOutside
	case x.park.Flags&parkEvents != 0 && x.seen.events != n.events:
		return whyEvent
	case x.park.Kind == parkMemory && (x.seen.bytes != n.bytes || x.moves != x.process.moves):
		return whyTime
	case x.park.Kind == parkBeside && x.moves != x.process.moves:
		return whyTime
	case x.until() <= now:
		return whyTime
	}
	return 0
}

// notice has a thread that polls run when it would have looked next after there was news.
func (x *waiter) notice(now vtime.Time, n news) {
	if x.park.Kind != parkPoll || x.early || n.done == x.seen.done {
		return
	}
	grid := max(x.park.Grid, 1)
	looks := max((uint64(now-x.since)+grid-1)/grid, 1)
	x.early, x.park.Until = true, min(x.park.Until, uint64(x.since)+looks*grid)
}

// until returns when a thread runs at the latest, as far as is known.
func (x *waiter) until() vtime.Time { return vtime.Time(min(x.park.Until, uint64(vtime.Never))) }
