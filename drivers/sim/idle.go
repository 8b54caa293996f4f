package sim

import (
	"github.com/mcastlab/mcastlab/core/vtime"
)

// A run ends when no event is left. Faults that recur for ever, and pauses that are renewed for
// ever, would keep it from ending, so a run also ends when the only events to come are those of
// faults. That must be certain: a rank may wait for any message in flight, even for one whose
// work request has completed, because requests of UC and UD complete when their transmission
// starts.

// done reports whether all programs have ended and none of their work is in progress. Pause
// frames and the timers of paused switches do not count, because recurring faults leave some
// at any time.
func (n *Net) done() bool {
	if n.reference != nil || !n.parked(false) || !n.quiet() {
		return false
	}
	return n.pool.Live == n.links.Pauses()
}

// resume schedules the timeline calls that were postponed when the last program had ended.
func (n *Net) resume() {
	postponed := n.postponed
	n.postponed = nil
	for _, schedule := range postponed {
		schedule()
	}
}

// idle reports whether the only events to come are those of faults, which begin and end whether
// or not a program runs. While pause frames or programs are left, the costly part of the check
// is made only after a fault has begun.
func (n *Net) idle() bool {
	if len(n.postponed) > 0 && n.pool.Live == 0 {
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
	return n.parked(true) && !n.registers() && (n.exhausted() || n.stands())
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

// exhausted reports whether no work request is outstanding and no frame is left that could reach
// a program. Pause frames do not count while programs wait, because none of them can wake one;
// once all programs have ended, pause frames must have gone too.
func (n *Net) exhausted() bool {
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
	coming := n.lates
	for i := range n.links.Len() {
		coming += n.links.At(i).InFlight()
	}
	pauses := n.links.Pauses() + n.latePauses
	arrives = coming > pauses
	for i := range n.nodes {
		if nd := &n.nodes[i]; nd.sw != nil {
			pauses += nd.sw.Pauses()
		} else {
			pauses += nd.nic.Pauses()
		}
	}
	return n.pool.Live - pauses, arrives
}

// lull is a period in which faults begin and end and no other event moves a frame or a program.
type lull struct {
	moves  uint64     // Net.moves when the lull began
	frames int        // number of frames that are not pauses; it is the same throughout the lull
	from   vtime.Time // when the lull began
	until  vtime.Time // when the last fault ends that was in force at the start of the lull and has an end
	begins int        // faults that have begun in the lull
	events uint64     // Stats.Events when the lull began
}

// stands decides only after this many faults have begun in a lull, or after this many events.
const (
	lullBegins = 1 << 10
	lullEvents = 1 << 20
)

// stands reports whether all frames and work requests that are left wait for a pause or a stall
// that never ends. It is called when a fault begins.
//
// A frame that stands still may move again when a fault ends. So each fault in force at the start
// of the lull must have ended, and each pause that is not renewed must have arrived and expired,
// without any movement. Two recurring faults may also block a frame in turn, so they must have
// recurred many times. This bound is what a certain end costs: two faults that are absent at the
// same time less often than once in a thousand recurrences are taken for a permanent block.
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

// stands reports whether the node moves no frame unless a fault lets it. That holds for a NIC that
// has been stalled since the given instant or longer.
func (nd *node) stands(since vtime.Time) bool {
	if nd.sw != nil {
		return nd.sw.Stands()
	}
	return nd.nic.Stands() || nd.nic.Stalled() && nd.stalled <= since
}
