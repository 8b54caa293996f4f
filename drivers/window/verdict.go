// SPDX-License-Identifier: Apache-2.0

package window

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
)

// A run ends when no event is left. Faults that recur for ever, and pauses that are renewed for ever,
// would keep it from ending. So each time a call of the fault timeline is due, the Decider checks the
// contents of all nodes. The call is put off to the next job once it could have no effect, and the run
// is halted once only faults have happened for so long that all remaining waits are for ever. Both must
// be certain: a rank may wait for any message in flight, even for one whose work request has completed,
// because requests of UC and UD complete when their transmission starts.

// Verdict decides over a call of the fault timeline that is due.
type Verdict uint8

// Values of Verdict.
const (
	Make   Verdict = iota // the call is made
	PutOff                // it is made when the next job begins, or later
	Halt                  // it is put off, and the run ends here with whatever is under way
)

// Due is a call that is due, with the timeline's state of the others.
type Due struct {
	At   vtime.Time
	Keep faults.Keep

	// Ends and Always are the numbers of pending calls of the kinds KeepWhile and KeepAlways, the one
	// that is due among them.
	Ends, Always int

	// LastEnd is the end of the last fault that has begun and has an end.
	LastEnd vtime.Time
}

// Census is the contents and waits of nodes after the events before a call that is due. That of a lab
// is the sum of those of its parts (Add).
type Census struct {
	// Awake is set if a task runs or will run by itself, or that a message of the out-of-band channel
	// is under way, which may wake one. The other fields but Moves do not count then.
	Awake   bool
	Waiting int // tasks that have not ended

	Registering bool // a registration is in progress; every registration ends some time
	Open        bool // a work request is outstanding
	Timed       bool // a machine has a deadline, or a frame that it may send
	Movable     bool // a node may move a frame without a fault that begins or ends

	// Frames that exist; of these, those on links or held back by a fault; and those of either that are
	// pause frames. A part of a lab counts the frames that it has sent to others and not those that
	// they have taken, so that its own figures may be below 0.
	Live, Flying, Pauses, FlyingPauses int

	Moves uint64 // arrivals of frames other than pauses, and turns of tasks
	Hops  uint64 // arrivals of frames

	Stalled   vtime.Time     // when the last of the NICs was stalled that are
	PauseMax  vtime.Duration // longest time from the sending of a pause frame to the expiry of its pause
	PauseLate vtime.Duration // longest time by which a fault has delayed a pause frame
}

// Add adds the census of other nodes of the lab.
func (c *Census) Add(o *Census) {
	c.Awake, c.Waiting = c.Awake || o.Awake, c.Waiting+o.Waiting
	c.Registering, c.Open = c.Registering || o.Registering, c.Open || o.Open
	c.Timed, c.Movable = c.Timed || o.Timed, c.Movable || o.Movable
	c.Live, c.Flying = c.Live+o.Live, c.Flying+o.Flying
	c.Pauses, c.FlyingPauses = c.Pauses+o.Pauses, c.FlyingPauses+o.FlyingPauses
	c.Moves, c.Hops = c.Moves+o.Moves, c.Hops+o.Hops
	c.Stalled = max(c.Stalled, o.Stalled)
	c.PauseMax, c.PauseLate = max(c.PauseMax, o.PauseMax), max(c.PauseLate, o.PauseLate)
}

// Decider decides on the calls of a lab's fault timeline. The zero value has decided on none.
type Decider struct {
	moves uint64 // Census.Moves at the last call
	lull  lull
}

// lull is a period in which faults begin and end and no other event moves a frame or a program.
type lull struct {
	moves  uint64     // Census.Moves when the lull began
	frames int        // number of frames that are not pauses; it is the same throughout the lull
	from   vtime.Time // when the lull began
	until  vtime.Time // when the last fault ends that was in force at the start of the lull and has an end
	begins int        // faults that have begun in the lull
	hops   uint64     // Census.Hops when the lull began
}

// A lull is decided on only after this many faults have begun in it, or this many frames have arrived.
const (
	lullBegins = 1 << 10
	lullHops   = 1 << 18
)

// Busy reports whether the call that is due is made whatever the nodes hold: it must be, or a program
// runs, or something has moved since the last call. It is asked once for every call, with the Moves,
// Awake and Waiting of the lab.
func (d *Decider) Busy(due Due, c *Census) bool {
	moved := c.Moves != d.moves
	d.moves = c.Moves
	return due.Keep == faults.KeepAlways || c.Awake || c.Waiting > 0 && moved
}

// Decide decides on a call that is due and for which Busy is false.
func (d *Decider) Decide(due Due, c *Census) Verdict {
	frames := c.Live - c.Pauses
	switch {
	case c.Waiting == 0 && !c.Registering && !c.Open && frames == 0:
		// All programs have ended and none of their work is in progress. Pause frames do not count,
		// because recurring faults leave some at any time.
		return PutOff
	case c.Flying == 0 && !c.Timed && due.Always == 0 && (due.Ends == 0 || c.Waiting == 0 && c.Live == 0):
		return PutOff // nothing is to come but faults
	case c.Waiting > 0 && !c.Registering && !c.Open && frames == 0:
		return PutOff // no pause frame can wake a program
	case due.Keep == faults.KeepNot && !c.Registering && d.stands(due, c, frames):
		return Halt
	}
	return Make
}

// stands reports whether all frames and work requests that are left wait for a pause or a stall that
// never ends. It is asked when a fault is about to begin.
//
// A frame that stands still may move again when a fault ends. So each fault in force at the start of
// the lull must have ended, and each pause that is not renewed must have arrived and expired, without
// any movement. Two recurring faults may also block a frame in turn, so they must have recurred many
// times. This bound is the price of a certain end: two faults that are absent at the same time less
// often than once in a thousand recurrences are taken for a permanent block.
func (d *Decider) stands(due Due, c *Census, frames int) bool {
	l := &d.lull
	if l.moves != c.Moves || l.frames != frames {
		*l = lull{moves: c.Moves, frames: frames, from: due.At, until: max(due.LastEnd, due.At), hops: c.Hops}
		return false
	}
	l.begins++
	if c.Flying > c.FlyingPauses || due.At <= l.until.Add(c.PauseMax+c.PauseLate) || l.begins < lullBegins && c.Hops-l.hops < lullHops {
		return false
	}
	return !c.Movable && c.Stalled <= l.from
}
