package sim

import (
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// A run ends when nothing is left to do. Faults that recur for ever, and pauses that are
// renewed for ever, would keep it from ending, so it also ends when nothing can happen any
// more except what faults do. That must be certain, because a rank may wait for any message
// under way, even one whose work request has completed: those of UC and UD complete when they
// start on the wire.

// done reports whether all programs have ended, and nothing that they began is under way.
// Pause frames that faults send do not count, nor do the timers of switches that wait for the
// end of a pause: recurring faults would leave some at any time.
func (n *Net) done() bool {
	if n.reference != nil || !n.parked(false) || !n.quiet() {
		return false
	}
	pauses := 0
	for i := range n.ports {
		for k := range n.ports[i].InFlight() {
			if n.ports[i].Flying(k).Frame.Kind() == wire.KindPFC {
				pauses++
			}
		}
	}
	return n.pool.Live == pauses
}

// resume makes the calls of the timeline happen now that were put back when the last program
// had ended.
func (n *Net) resume() {
	held := n.held
	n.held = nil
	for _, put := range held {
		put()
	}
}

// idle reports whether nothing is left to do but what faults do, which come and go as if
// somebody were there to see it. While they still move pause frames and routes it is asked
// when one begins.
func (n *Net) idle() bool {
	if len(n.held) > 0 && n.pool.Live == 0 {
		return true
	}
	if n.begins+n.ends == 0 || n.reference != nil {
		return false
	}
	if n.queue.n+n.far.len() <= n.begins+n.ends && (n.ends == 0 || n.pool.Live == 0 && n.parked(false)) {
		return true
	}
	if !n.began {
		return false
	}
	n.began = false
	return n.parked(true) && !n.registers() && (n.nothing() || n.stands())
}

// parked reports whether no program runs. If waiting is set, programs that wait for something
// without a deadline do not count as running.
func (n *Net) parked(waiting bool) bool {
	for _, t := range n.tasks {
		if !t.done && (!waiting || t.queued || !t.asleep || t.until != vtime.Never) {
			return false
		}
	}
	return true
}

// quiet reports whether no work request and no registration is in progress.
func (n *Net) quiet() bool { return !n.registers() && n.open() == nil }

// registers reports whether a registration is in progress; every registration ends some time.
func (n *Net) registers() bool {
	for i := range n.nodes {
		if h := n.nodes[i].host; h != nil {
			if _, armed := h.agent.NextTimeout(); armed {
				return true
			}
		}
	}
	return false
}

// nothing reports whether there is nothing that could still come to somebody: no work request,
// and no frame. Programs that are left wait in vain, whatever pauses are under way; without any
// these are waited for.
func (n *Net) nothing() bool {
	if n.open() != nil {
		return false
	}
	if n.parked(false) {
		return n.pool.Live == 0
	}
	frames, _ := n.frames()
	return frames == 0
}

// frames counts the frames that are not pauses, and reports whether any of them is on a link
// or delayed by a fault and so will arrive.
func (n *Net) frames() (frames int, arrives bool) {
	pauses := 0
	for i := range n.ports {
		p := &n.ports[i]
		for k := range p.InFlight() {
			if p.Flying(k).Frame.Kind() == wire.KindPFC {
				pauses++
			} else {
				arrives = true
			}
		}
	}
	for i := range n.late {
		for _, e := range n.late[i].heap {
			if e.what.Kind() == wire.KindPFC {
				pauses++
			} else {
				arrives = true
			}
		}
	}
	for i := range n.nodes {
		if nd := &n.nodes[i]; nd.sw != nil {
			pauses += nd.sw.Pauses()
		} else {
			pauses += nd.nic.Pauses()
		}
	}
	return n.pool.Live - pauses, arrives
}

// lull is a period in which faults begin and end and nothing else happens.
type lull struct {
	moves  uint64 // count of moves when it began
	frames int    // number of frames, which stays the same
	from   vtime.Time
	until  vtime.Time // when all faults that were in force at its start, and have an end, are over
	begins int        // faults that have begun in it
	events uint64     // count of events when it began
}

// A lull has lasted long enough after this many beginnings of faults, or this many events.
const (
	lullBegins = 1 << 10
	lullEvents = 1 << 20
)

// stands reports whether all that is left stands still for good: frames and work requests that
// wait for a pause or a stall to end which does not. It is asked when a fault begins.
//
// What stands still may go on when a fault ends. So each of those that are in force must have
// ended since, and each pause that is not renewed have come and run out, without anything
// moving; and, for what two of them keep from moving in turn, they must have come many times.
// The bound is the price of an end: two that let go at the same time once in a thousand times
// are taken for ones that never do.
func (n *Net) stands() bool {
	frames, arrives := n.frames()
	l := &n.lull
	if l.moves != n.moves || l.frames != frames {
		*l = lull{moves: n.moves, frames: frames, from: n.now, until: max(n.lastEnd, n.now), events: n.stats.Events}
		return false
	}
	l.begins++
	if arrives || n.now <= l.until.Add(n.pauseMax+n.pauseLate) || l.begins < lullBegins && n.stats.Events-l.events < lullEvents {
		return false
	}
	n.stuck = true
	for i := range n.nodes {
		n.stuck = n.stuck && n.nodes[i].stands(l.from)
	}
	return n.stuck
}

// stands reports whether nothing of the node continues by itself. A NIC that has been stalled
// since before the given instant does not.
func (nd *node) stands(since vtime.Time) bool {
	if nd.sw != nil {
		return nd.sw.Stands()
	}
	return nd.nic.Stands() || nd.nic.Stalled() && nd.stalled <= since
}
