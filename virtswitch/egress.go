package virtswitch

import (
	"math/bits"

	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// egress is what waits at one port: a FIFO per priority, and pause frames above all.
// The priority is chosen when a frame starts (schedule.go).
type egress struct {
	ready   uint8 // priorities with frames
	paused  uint8 // priorities that must not start
	stopped uint8 // priorities the neighbour has stopped; paused, but for the watchdog's
	storm   uint8 // priorities the watchdog has taken over
	elig    vtime.Time
	pauses  []pauseFrame
	fifo    [8]fifo
}

// waiter is a queued frame.
type waiter struct {
	f      *wire.Frame
	size   int32
	charge int32 // >= 0: ingress<<3 | priority; < 0: ^index of a shared charge
}

type fifo struct {
	ring    []waiter // power of two
	head, n uint32
	bytes   int // on the wire
}

func (q *fifo) push(w waiter) {
	if int(q.n) == len(q.ring) {
		ring := make([]waiter, max(8, 2*len(q.ring)))
		for i := range q.n {
			ring[i] = q.ring[(q.head+i)&uint32(len(q.ring)-1)]
		}
		q.ring, q.head = ring, 0
	}
	q.ring[(q.head+q.n)&uint32(len(q.ring)-1)] = w
	q.n++
	q.bytes += int(w.size)
}

func (q *fifo) pop() waiter {
	w := q.ring[q.head&uint32(len(q.ring)-1)]
	q.head = (q.head + 1) & uint32(len(q.ring)-1)
	q.n--
	q.bytes -= int(w.size)
	return w
}

func (e *egress) queued() int {
	n := len(e.pauses)
	for i := range e.fifo {
		n += int(e.fifo[i].n)
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
	refused DropReason // set, with dead, when the buffer had no room
	dead    bool
	charge  int32
	held    *held // queues at the ingress: what has become of the frame
}

func (s *Switch) arrived(f *wire.Frame, in int) arrival {
	a := arrival{size: f.WireLen(), in: in, prio: priorityOf(f)}
	if s.classes != nil {
		a.prio = s.classes.of(f)
	}
	return a
}

// out sends a frame by a port: at once if the port is idle, else through its queue.
func (s *Switch) out(now vtime.Time, port int, f *wire.Frame, a *arrival) {
	if s.ret != nil {
		s.sendBack(now, port, f, a)
		return
	}
	if s.crossbar != nil {
		s.hold(port, f, a)
		return
	}
	e, p := &s.eg[port], &s.ports[port]
	if p.Next < now {
		s.settle(now-1, port)
	}
	if e.ready&^e.paused == 0 && p.Free <= now && e.paused>>a.prio&1 == 0 &&
		(len(e.pauses) == 0 || e.pauses[0].at > now) {
		s.stats.Forwarded++
		p.Commit(f, a.size, now)
		if len(e.pauses) > 0 {
			s.setNext(port)
		}
		return
	}
	s.enqueue(now, port, f, a)
}

// enqueue puts a frame into a port's queue.
func (s *Switch) enqueue(now vtime.Time, port int, f *wire.Frame, a *arrival) {
	e := &s.eg[port]
	if e.storm>>a.prio&1 != 0 && e.paused>>a.prio&1 != 0 {
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
	e.fifo[a.prio].push(waiter{f, int32(a.size), a.charge})
	if bit := uint8(1) << a.prio; e.ready&bit == 0 {
		e.ready |= bit
		if e.paused&bit != 0 {
			s.watch(now, port, a.prio)
		}
	}
	s.setNext(port)
}

// setNext tells the driver when the port's next frame would start.
func (s *Switch) setNext(port int) {
	e, p := &s.eg[port], &s.ports[port]
	next, _ := e.next(p.Free)
	p.SetNext(next)
	if next == vtime.Never {
		s.waiting.clear(port)
	} else {
		s.waiting.set(port)
	}
}

// next returns when the next frame would start on a transmitter free at the given
// time, and whether it is a pause frame.
func (e *egress) next(free vtime.Time) (at vtime.Time, pause bool) {
	at = vtime.Never
	if e.ready&^e.paused != 0 {
		at = max(free, e.elig)
	}
	if len(e.pauses) > 0 {
		if t := max(free, e.pauses[0].at); t <= at {
			return t, true
		}
	}
	return at, false
}

// settle commits what the port would have started by until.
func (s *Switch) settle(until vtime.Time, port int) {
	e, p := &s.eg[port], &s.ports[port]
	if p.Next > until {
		return
	}
	for {
		start, pause := e.next(p.Free)
		if start > until {
			break
		}
		s.stats.Forwarded++
		if pause {
			f := e.popPause()
			p.Commit(f, f.WireLen(), start)
			continue
		}
		// The highest strict priority that may start; only then the weighted ones.
		may := e.ready &^ e.paused
		prio := uint8(bits.Len8(may&^s.weighted) - 1)
		if may&^s.weighted == 0 {
			prio = s.round(port, may)
		}
		q := &e.fifo[prio]
		w := q.pop()
		if q.n == 0 {
			e.ready &^= 1 << prio
		}
		if q.bytes > s.ecnFrom {
			s.mark(port, prio, w.f, q.bytes)
		}
		p.Commit(w.f, int(w.size), start)
		s.release(start, w)
	}
	s.setNext(port)
}
