// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"math"
	"math/bits"

	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// egress holds the queues of one port: a FIFO per priority, and pause frames above all. The priority is
// chosen when a frame starts (schedule.go). It has the size of a cache line.
type egress struct {
	// ready has a bit for each priority with frames. Invariant: it is set if and only if
	// the priority's fifo is not empty.
	ready uint8

	// paused has the priorities that must not start. Invariant: they are those that the
	// neighbour has stopped and that the watchdog has not taken over, and those in discarded.
	paused uint8

	// discarded has the priorities whose frames the watchdog drops. Invariant: none of
	// them is ready.
	discarded uint8

	// prio is the priority of first. Invariant: no frame in others has this priority.
	prio uint8

	// peak is the most bytes that one queue has held, 4 GiB at most.
	peak uint32

	// elig is the instant before which nothing that is ready may start: when the port last
	// went from having nothing to start to having something.
	elig vtime.Time

	first fifo    // most ports have frames of one priority at a time
	rest  *others // nil until it is needed
}

// others holds the rarely used state of a port.
type others struct {
	pauses []pauseFrame // in order of their instants
	fifo   [8]fifo      // by priority
	obeyed obeyedPause
}

// more returns the rarely used state for changes, and makes it if it is missing.
func (e *egress) more() *others {
	if e.rest == nil {
		e.rest = &others{}
	}
	return e.rest
}

// obeyed returns the priorities that the neighbour has paused.
func (e *egress) obeyed() *obeyedPause { return &e.more().obeyed }

// pauses returns the number of pause frames that wait.
func (e *egress) pauses() int {
	if e.rest == nil {
		return 0
	}
	return len(e.rest.pauses)
}

// queue returns the queue of a priority that has frames.
func (e *egress) queue(prio uint8) *fifo {
	if prio == e.prio {
		return &e.first
	}
	return &e.rest.fifo[prio]
}

// claim returns the queue of any priority, for a frame more.
func (e *egress) claim(prio uint8) *fifo {
	if prio != e.prio && e.ready>>prio&1 == 0 && e.ready>>e.prio&1 == 0 {
		e.prio = prio
	}
	if prio == e.prio {
		return &e.first
	}
	return &e.more().fifo[prio]
}

// setPaused sets the priorities of a port that must not start.
func (s *Switch) setPaused(port int, priorities uint8) {
	s.eg[port].paused = priorities
	if priorities == 0 {
		s.stopped.clear(port)
	} else {
		s.stopped.set(port)
	}
}

// waiter is a queued frame.
type waiter struct {
	f      *wire.Frame
	size   int32
	charge int32 // >= 0: ingress<<3 | priority; < 0: ^index of a shared charge
}

// fifo is the queue of one priority.
type fifo struct {
	queue.FIFO[waiter]

	// bytes is the size on the wire of all that waits. Invariant: it is the sum of sizes.
	bytes int
}

// push appends a frame to the queue.
func (q *fifo) push(w waiter) {
	if !q.Place(w) {
		q.Push(w)
	}
	q.bytes += int(w.size)
}

// pop takes the first frame out of the queue, which must not be empty.
func (q *fifo) pop() waiter {
	w := q.Pop()
	q.bytes -= int(w.size)
	return w
}

// queued returns the number of frames that wait at the port, pause frames included.
func (e *egress) queued() int {
	n := e.pauses()
	for x := e.ready; x != 0; x &= x - 1 {
		n += e.queue(uint8(bits.TrailingZeros8(x))).Len()
	}
	return n
}

// arrival is the frame being handled, for the buffer's account. A frame that goes
// out on several ports is charged to its ingress once, when its first copy has to
// wait, until its last waiting copy has started.
type arrival struct {
	size    int
	in      int
	prio    uint8
	shared  bool // more than one copy may be queued
	charged bool
	refused DropReason // why the buffer had no room; valid while dead is set
	dead    bool
	charge  int32
	held    *held // the packet in the crossbar, once a copy waits there; nil without a crossbar
}

// arrived opens the account of the frame that came in last. The account is not returned: it would be copied as soon
// as it has been written, for which the processor waits.
func (s *Switch) arrived(a *arrival, f *wire.Frame, in int) {
	a.size, a.in, a.prio = f.WireLen(), in, s.priority(f)
}

// priority returns the priority of a frame.
func (s *Switch) priority(f *wire.Frame) uint8 {
	if s.classes != nil {
		return s.classes.of(f)
	}
	return priorityOf(f)
}

// out sends a frame by a port: at once if the port is idle, through its queue otherwise.
func (s *Switch) out(now vtime.Time, port int, f *wire.Frame, a *arrival) {
	if s.serving != nil {
		s.returnFrame(now, port, f, a)
		return
	}
	if s.crossbar != nil {
		s.hold(port, f, a)
		return
	}
	p := &s.ports[port]
	if p.Next() < now {
		s.settle(now-1, port)
	}
	if p.Free() <= now {
		// Most ports have nothing to start, which is known without a look at their queues.
		if p.Next() == vtime.Never && !s.stopped.has(port) {
			s.stats.Forwarded++
			p.CommitPacket(f, a.size, now)
			return
		}
		e := &s.eg[port]
		if e.ready&^e.paused == 0 && e.paused>>a.prio&1 == 0 && (e.pauses() == 0 || e.rest.pauses[0].at > now) {
			s.stats.Forwarded++
			p.CommitPacket(f, a.size, now)
			s.setNext(port)
			return
		}
	}
	s.enqueue(now, port, f, a)
}

// enqueue puts a frame into a port's queue.
func (s *Switch) enqueue(now vtime.Time, port int, f *wire.Frame, a *arrival) {
	e := &s.eg[port]
	if e.discarded>>a.prio&1 != 0 {
		s.drop(now, a.in, f, DropWatchdog)
		return
	}
	if !a.charged && !a.dead {
		s.charge(now, a)
	}
	if a.dead {
		s.drop(now, a.in, f, a.refused)
		return
	}
	if a.shared {
		s.buffer.shared[^a.charge].copies++
	}
	if e.ready&^e.paused == 0 {
		e.elig = max(e.elig, now)
	}
	q := e.claim(a.prio)
	if q.bytes > s.ecnFrom && s.ecn.OnArrival {
		s.mark(port, a.prio, f, q.bytes)
	}
	q.push(waiter{f, int32(a.size), a.charge})
	e.peak = max(e.peak, uint32(min(q.bytes, math.MaxUint32)))
	s.traceQueue(now, port)
	if bit := uint8(1) << a.prio; e.ready&bit == 0 {
		e.ready |= bit
		if e.paused&bit != 0 {
			s.watch(now, port, a.prio)
		}
	}
	s.setNext(port)
}

// setNext gives the driver the time at which the port's next frame would start.
func (s *Switch) setNext(port int) {
	e, p := &s.eg[port], &s.ports[port]
	next, _ := e.next(p.Free())
	p.SetNext(next)
	if next == vtime.Never {
		s.waiting.clear(port)
	} else {
		s.waiting.set(port)
	}
}

// next returns when the next frame would start on a transmitter that is free from the given
// instant on, and whether it is a pause frame.
func (e *egress) next(free vtime.Time) (at vtime.Time, pause bool) {
	at = vtime.Never
	if e.ready&^e.paused != 0 {
		at = max(free, e.elig)
	}
	if e.pauses() > 0 {
		if t := max(free, e.rest.pauses[0].at); t <= at {
			return t, true
		}
	}
	return at, false
}

// settle commits the frames that the port has started by the instant until.
func (s *Switch) settle(until vtime.Time, port int) {
	e, p := &s.eg[port], &s.ports[port]
	if p.Next() > until {
		return
	}
	for {
		start, pause := e.next(p.Free())
		if start > until {
			break
		}
		s.stats.Forwarded++
		if pause {
			f := e.popPause()
			size := f.WireLen()
			if s.crossbar != nil && s.crossbar.slots != nil {
				size = 0 // a credit takes no time of the link
			}
			p.Commit(f, size, start)
			continue
		}
		// The highest strict priority that may start goes first, and weighted ones only if no
		// strict one may.
		may := e.ready &^ e.paused
		prio := uint8(bits.Len8(may&^s.weighted) - 1)
		if may&^s.weighted == 0 {
			prio = s.round(port, may)
		}
		q := e.queue(prio)
		w := q.pop()
		s.traceQueue(start, port)
		if q.Len() == 0 {
			e.ready &^= 1 << prio
		}
		if q.bytes > s.ecnFrom && !s.ecn.OnArrival {
			s.mark(port, prio, w.f, q.bytes)
		}
		p.CommitPacket(w.f, int(w.size), start)
		s.release(start, w)
	}
	s.setNext(port)
}
