package virtswitch

import (
	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// LookAsideConfig describes an accelerator that is joined to the switch by a few links
// (Cepheus §IV, Fig. 7a). What is addressed to a group is steered to it; what it makes
// of that comes back and is sent by its port.
type LookAsideConfig struct {
	Links int            // joining links, each both ways; 0: no accelerator. The prototype has 4.
	Rate  int64          // of each, in bit/s
	Delay vtime.Duration // one way
}

// lookAside is the accelerator's links: the one a frame takes follows from the port it
// comes from or goes to, so that frames of one path stay in order.
type lookAside struct {
	delay    vtime.Duration
	bytePs16 int64
	there    []vtime.Time // by link: when it is free
	back     []vtime.Time
}

// lateItem is a frame that is served later: what goes on with it at its time.
type lateItem struct {
	at     vtime.Time
	seq    uint64 // breaks ties
	f      *wire.Frame
	in     int32 // ingress
	port   int32 // where it leaves, or -1: it has to be handled first
	charge int32 // ^index of the shared charge; 0: none
	size   int32
	prio   uint8
	served bool // the feedback processor is done with it
}

// lateWork is a heap of late items by time, and the feedback processor (CEP-48).
type lateWork struct {
	heap  []lateItem
	seq   uint64
	delay vtime.Duration // of the feedback processor per packet
	free  vtime.Time     // when it is
}

func (s *Switch) setLate(feedback vtime.Duration, c LookAsideConfig) {
	if feedback == 0 && c.Links == 0 {
		return
	}
	s.late = &lateWork{delay: feedback}
	s.timers.Grow(s.timerLate() + 1)
	if c.Links > 0 {
		s.lookAside = &lookAside{
			delay: c.Delay, bytePs16: machine.BytePs16(c.Rate),
			there: make([]vtime.Time, c.Links), back: make([]vtime.Time, c.Links),
		}
	}
}

// before orders late items.
func (a *lateItem) before(b *lateItem) bool {
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

// postpone keeps an item until its time.
func (s *Switch) postpone(x lateItem) {
	l := s.late
	l.seq++
	x.seq = l.seq
	l.heap = append(l.heap, x)
	for i := len(l.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !l.heap[i].before(&l.heap[up]) {
			break
		}
		l.heap[i], l.heap[up] = l.heap[up], l.heap[i]
		i = up
	}
	if x.at < s.timers.At(s.timerLate()) {
		s.timers.Set(s.timerLate(), x.at)
	}
}

// pop takes the earliest item.
func (l *lateWork) pop() lateItem {
	x, last := l.heap[0], len(l.heap)-1
	l.heap[0] = l.heap[last]
	l.heap = l.heap[:last]
	for i := 0; ; {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < last; k++ {
			if l.heap[k].before(&l.heap[least]) {
				least = k
			}
		}
		if least == i {
			return x
		}
		l.heap[i], l.heap[least] = l.heap[least], l.heap[i]
		i = least
	}
}

// lateDue serves what is due.
func (s *Switch) lateDue(now vtime.Time) {
	s.settleAll(now) // R2: what starts at now goes before timers
	for len(s.late.heap) > 0 && s.late.heap[0].at <= now {
		x := s.late.pop()
		if x.port >= 0 {
			s.comeBack(now, &x)
		} else {
			s.serveLate(now, &x)
		}
	}
	if len(s.late.heap) > 0 {
		s.timers.Set(s.timerLate(), s.late.heap[0].at)
	}
}

// serve hands feedback to the feedback processor, if there is one that has not seen it.
func (s *Switch) serve(now vtime.Time, in int, f *wire.Frame, op wire.OpCode) bool {
	l := s.late
	if l.delay == 0 || op != wire.OpAcknowledge && op != wire.OpCNP || s.ret != nil && s.ret.served {
		return false
	}
	if len(l.heap) >= lateMax {
		s.drop(now, in, f, DropProcessorFull)
		return true
	}
	l.free = max(l.free, now).Add(l.delay)
	x := lateItem{at: l.free, f: f, in: int32(in), port: -1, served: true}
	if s.ret != nil && s.ret.charge != 0 {
		x.charge, x.size, x.prio = s.ret.charge, s.ret.size, s.ret.prio
		s.buffer.shared[^x.charge].copies++
	}
	s.postpone(x)
	return true
}

// steer sends a frame for a group to the accelerator. It holds its place in the buffer
// until the last of what becomes of it has been sent.
func (s *Switch) steer(now vtime.Time, in int, f *wire.Frame) {
	a := s.arrived(f, in)
	a.shared = true
	if len(s.late.heap) >= lateMax {
		s.drop(now, in, f, DropProcessorFull)
		return
	}
	if s.charge(now, &a); a.dead {
		s.drop(now, in, f, a.refused)
		return
	}
	s.buffer.shared[^a.charge].copies = 1
	at := s.lookAside.cross(s.lookAside.there, in, now, a.size)
	s.postpone(lateItem{at: at, f: f, in: int32(in), port: -1, charge: a.charge, size: int32(a.size), prio: a.prio})
}

// cross returns when a frame has come over one of the joining links.
func (l *lookAside) cross(links []vtime.Time, port int, now vtime.Time, size int) vtime.Time {
	free := &links[port%len(links)]
	*free = max(*free, now).Add(vtime.Duration((int64(size)*l.bytePs16 + 1<<15) >> 16))
	return free.Add(l.delay)
}

// serveLate handles a frame whose time has come.
func (s *Switch) serveLate(now vtime.Time, x *lateItem) {
	s.ret = x
	if x.f.Kind() == wire.KindMRP {
		s.handleMRP(now, int(x.in), x.f)
	} else {
		s.handleGroup(now, int(x.in), x.f, x.f.DstIP())
	}
	s.ret = nil
	if x.charge != 0 {
		s.release(now, waiter{charge: x.charge})
	}
}

// sendBack sends what the accelerator makes over a joining link. Without an accelerator
// it was the feedback processor's, which sends by the port itself.
func (s *Switch) sendBack(now vtime.Time, port int, f *wire.Frame, a *arrival) {
	x := s.ret
	if s.lookAside == nil {
		s.ret = nil
		s.out(now, port, f, a)
		s.ret = x
		return
	}
	s.buffer.shared[^x.charge].copies++
	at := s.lookAside.cross(s.lookAside.back, port, now, a.size)
	s.postpone(lateItem{at: at, f: f, in: int32(a.in), port: int32(port), charge: x.charge, size: int32(a.size), prio: a.prio})
}

// comeBack sends a frame that is back from the accelerator by its port. Its charge ends
// when it starts.
func (s *Switch) comeBack(now vtime.Time, x *lateItem) {
	port := int(x.port)
	s.settle(now, port)
	a := arrival{size: int(x.size), in: int(x.in), prio: x.prio, shared: true, charged: true, charge: x.charge}
	s.enqueue(now, port, x.f, &a)
	s.release(now, waiter{charge: x.charge}) // enqueue holds it once more, unless it dropped the frame
	s.settle(now, port)
}
