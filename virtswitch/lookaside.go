// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// LookAsideConfig describes an accelerator that is joined to the switch by a few links
// (Cepheus §IV, Fig. 7a). The switch steers frames addressed to a group to it. The frames that
// it makes of them come back over the links and are sent by their ports.
type LookAsideConfig struct {
	Links int            // joining links, each both ways; 0: no accelerator. The prototype has 4.
	Rate  int64          // of each link, in bit/s
	Delay vtime.Duration // of each link, one way
}

// lookAside is the links to the accelerator. Which link a frame takes follows from the port
// that it comes from or goes to, so that the frames of one path stay in order.
type lookAside struct {
	delay    vtime.Duration
	bytePs16 int64
	there    []vtime.Time // by link: when the direction to the accelerator is free
	back     []vtime.Time
}

// deferredItem is a frame whose handling is deferred, and the state to resume it with.
type deferredItem struct {
	f      *wire.Frame
	in     int32 // ingress
	port   int32 // egress; -1: the frame has not been handled yet
	charge int32 // ^index of the shared charge; 0: there is none
	size   int32
	prio   uint8
	served bool // the feedback processor has finished it
}

// deferredWork holds the frames whose handling is deferred, and the feedback processor (CEP-48).
type deferredWork struct {
	waiting queue.Heap[deferredItem] // by instant; items of one instant in the order of postpone
	seq     uint64                   // number of the item postponed last
	delay   vtime.Duration           // time that the feedback processor takes per packet
	free    vtime.Time               // when the feedback processor is free
}

func (s *Switch) setDeferred(feedback vtime.Duration, c LookAsideConfig) {
	if feedback == 0 && c.Links == 0 {
		return
	}
	s.deferred = &deferredWork{delay: feedback}
	s.timers.Grow(s.timerDeferred() + 1)
	if c.Links > 0 {
		s.lookAside = &lookAside{
			delay: c.Delay, bytePs16: machine.BytePs16(c.Rate),
			there: make([]vtime.Time, c.Links), back: make([]vtime.Time, c.Links),
		}
	}
}

// postpone queues an item to be served at an instant.
func (s *Switch) postpone(at vtime.Time, x deferredItem) {
	l := s.deferred
	l.seq++
	l.waiting.Push(at, l.seq, x)
	if at < s.timers.At(s.timerDeferred()) {
		s.timers.Set(s.timerDeferred(), at)
	}
}

// serveDue serves the items that are due by now.
func (s *Switch) serveDue(now vtime.Time) {
	s.settleAll(now) // arrivals, starts, timers: starts at now precede timers
	for s.deferred.waiting.Next() <= now {
		x := s.deferred.waiting.Pop().Value
		if x.port >= 0 {
			s.sendReturned(now, &x)
		} else {
			s.serveDeferred(now, &x)
		}
	}
	if next := s.deferred.waiting.Next(); next != vtime.Never {
		s.timers.Set(s.timerDeferred(), next)
	}
}

// serve passes feedback to the feedback processor, and reports whether it has: there is such a
// processor, and it has not finished this packet yet.
func (s *Switch) serve(now vtime.Time, in int, f *wire.Frame, op wire.OpCode) bool {
	l := s.deferred
	if l.delay == 0 || op != wire.OpAcknowledge && op != wire.OpCNP || s.serving != nil && s.serving.served {
		return false
	}
	if l.waiting.Len() >= deferredMax {
		s.drop(now, in, f, DropProcessorFull)
		return true
	}
	l.free = max(l.free, now).Add(l.delay)
	x := deferredItem{f: f, in: int32(in), port: -1, served: true}
	if s.serving != nil && s.serving.charge != 0 {
		x.charge, x.size, x.prio = s.serving.charge, s.serving.size, s.serving.prio
		s.buffer.shared[^x.charge].copies++
	}
	s.postpone(l.free, x)
	return true
}

// steer sends a frame for a group to the accelerator. The frame stays charged to its ingress until
// the last frame that is made of it has been sent.
func (s *Switch) steer(now vtime.Time, in int, f *wire.Frame) {
	var a arrival
	s.arrived(&a, f, in)
	a.shared = true
	if s.deferred.waiting.Len() >= deferredMax {
		s.drop(now, in, f, DropProcessorFull)
		return
	}
	if s.charge(now, &a); a.dead {
		s.drop(now, in, f, a.refused)
		return
	}
	s.buffer.shared[^a.charge].copies = 1
	at := s.lookAside.cross(s.lookAside.there, in, now, a.size)
	s.postpone(at, deferredItem{f: f, in: int32(in), port: -1, charge: a.charge, size: int32(a.size), prio: a.prio})
}

// cross returns when a frame that takes one of the links now arrives at its other end.
func (l *lookAside) cross(links []vtime.Time, port int, now vtime.Time, size int) vtime.Time {
	free := &links[port%len(links)]
	*free = max(*free, now).Add(vtime.Duration((int64(size)*l.bytePs16 + 1<<15) >> 16))
	return free.Add(l.delay)
}

// serveDeferred handles a frame of a group after its delay.
func (s *Switch) serveDeferred(now vtime.Time, x *deferredItem) {
	s.serving = x
	if x.f.Kind() == wire.KindMRP {
		s.handleMRP(now, int(x.in), x.f)
	} else {
		s.handleGroup(now, int(x.in), x.f, x.f.DstIP())
	}
	s.serving = nil
	if x.charge != 0 {
		s.release(now, waiter{charge: x.charge})
	}
}

// returnFrame sends a frame that the accelerator has made over one of its links. Without an
// accelerator the frame is the feedback processor's, which sends by the port itself.
func (s *Switch) returnFrame(now vtime.Time, port int, f *wire.Frame, a *arrival) {
	x := s.serving
	if s.lookAside == nil {
		s.serving = nil
		s.out(now, port, f, a)
		s.serving = x
		return
	}
	s.buffer.shared[^x.charge].copies++
	at := s.lookAside.cross(s.lookAside.back, port, now, a.size)
	s.postpone(at, deferredItem{f: f, in: int32(a.in), port: int32(port), charge: x.charge, size: int32(a.size), prio: a.prio})
}

// sendReturned sends a frame that has come back from the accelerator by its port. The frame's
// charge ends when it starts.
func (s *Switch) sendReturned(now vtime.Time, x *deferredItem) {
	port := int(x.port)
	s.settle(now, port)
	a := arrival{size: int(x.size), in: int(x.in), prio: x.prio, shared: true, charged: true, charge: x.charge}
	s.enqueue(now, port, x.f, &a)
	s.release(now, waiter{charge: x.charge}) // enqueue holds it once more, unless it dropped the frame
	s.settle(now, port)
}
