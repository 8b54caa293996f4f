// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"math/bits"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Pause frames and their timers. The buffer (buffer.go) decides which neighbours to pause; obeyedPause
// (pause.go) and watchdog decide the effect of neighbours' pause frames here.

type pauseFrame struct {
	at vtime.Time // the frame starts at this instant at the earliest
	f  *wire.Frame
}

// xoff pauses a priority of the neighbour.
func (s *Switch) xoff(now vtime.Time, in int, prio uint8) {
	s.buffer.pause(in, prio)
	s.sendPause(now, in, 1<<prio, s.pauseQuanta)
	s.timers.Set(s.timerRefresh(in), now.Add(s.quanta(in, int(s.pauseQuanta))/2))
}

// checkXON resumes the neighbour, which is paused, once its arrivals have drained.
func (s *Switch) checkXON(now vtime.Time, in int, prio uint8) {
	if !s.buffer.mayResume(in, prio) {
		return
	}
	last := s.buffer.resume(in, prio)
	s.sendPause(now, in, 1<<prio, 0)
	if last {
		s.timers.Stop(s.timerRefresh(in))
	}
}

// checkAllXON runs checkXON for every paused queue: with dynamic thresholds, room that one queue
// releases may allow another to resume.
func (s *Switch) checkAllXON(now vtime.Time) {
	for in := s.buffer.pausedPorts.next(0); in >= 0; in = s.buffer.pausedPorts.next(in + 1) {
		for x := s.buffer.paused[in]; x != 0; x &= x - 1 {
			s.checkXON(now, in, uint8(bits.TrailingZeros8(x)))
		}
	}
}

// refreshPause repeats XOFF before the neighbour's pause runs out.
func (s *Switch) refreshPause(now vtime.Time, port int) {
	if x := s.buffer.paused[port]; x != 0 {
		s.sendPause(now, port, x, s.pauseQuanta)
		s.timers.Set(s.timerRefresh(port), now.Add(s.quanta(port, int(s.pauseQuanta))/2))
	}
}

// quanta returns how long n pause quanta last on the port's link.
func (s *Switch) quanta(port, n int) vtime.Duration {
	return s.ports[port].Serialize(n * wire.PauseQuantumBits / 8)
}

// sendPause queues a pause frame pauseGap after its cause, so that results do not depend on
// the order in which ports start frames at one instant. A pause frame that still waits is
// rewritten to the latest state and not followed by another, so an XOFF waits for at most one
// frame, which Headroom relies on.
func (s *Switch) sendPause(now vtime.Time, port int, classes uint8, quanta uint16) {
	e := &s.eg[port]
	if s.trace != nil {
		s.trace.Trace(now, machine.Event{Kind: machine.EventPauseSent, Port: port, Priority: classes, Value: int64(quanta)})
	}
	p := wire.PFC{Src: wire.HostMAC(s.ip)}
	var f *wire.Frame
	if k := e.pauses() - 1; k >= 0 && max(e.rest.pauses[k].at, s.ports[port].Free()) > now {
		f = e.rest.pauses[k].f
		p = f.PFC()
	} else {
		f = s.pool.Get()
		s.stats.Made++
		s.stats.PausesSent++
		rest := e.more()
		rest.pauses = append(rest.pauses, pauseFrame{now.Add(pauseGap), f})
	}
	p.Enable |= classes
	for i := range p.Quanta {
		if classes>>i&1 != 0 {
			p.Quanta[i] = quanta
		}
	}
	f.BuildPFC(p)
	s.setNext(port)
}

func (e *egress) popPause() *wire.Frame {
	q := e.rest.pauses
	f := q[0].f
	e.rest.pauses = append(q[:0], q[1:]...)
	return f
}

// handlePause obeys a pause frame: each class that it names stops for its quanta, or resumes
// if they are zero. It is ignored for priorities without PFC, as 802.1Qbb has it: a class that
// may lose frames must not stop its sender.
func (s *Switch) handlePause(now vtime.Time, port int, f *wire.Frame) {
	h := f.PFC()
	s.absorb(f)
	s.stats.PausesReceived++
	if h.Enable&^s.obeys != 0 {
		s.stats.PausesIgnored++
		h.Enable &= s.obeys
	}
	e, p := &s.eg[port], &s.ports[port]
	if p.Next() < now {
		s.settle(now-1, port)
	}
	for i, q := range h.Quanta {
		if h.Enable>>i&1 == 0 {
			continue
		}
		if s.trace != nil {
			s.trace.Trace(now, machine.Event{Kind: machine.EventPauseReceived, Port: port, Priority: 1 << i, Value: int64(q)})
		}
		if q == 0 {
			s.resume(now, port, 1<<i)
			continue
		}
		e.obeyed().stop(uint8(i), now.Add(s.quanta(port, int(q))))
		storm := s.watchdogs != nil && s.watchdogs[port].stopped(uint8(i))
		if !storm && e.paused>>i&1 == 0 {
			s.setPaused(port, e.paused|1<<i)
			if e.ready>>i&1 != 0 {
				s.watch(now, port, uint8(i))
			}
		}
	}
	s.armPause(port)
	s.setNext(port)
	s.settle(now, port)
}

// resume obeys an XON, or the end of a pause, for classes of a port. A class that the watchdog
// has taken over must stay resumed for a while before it is given back.
func (s *Switch) resume(now vtime.Time, port int, classes uint8) {
	freed := s.eg[port].obeyed().release(classes)
	if s.watchdogs != nil {
		w := &s.watchdogs[port]
		s.armWatchdog(port, w.released(now, freed))
		classes &^= w.storm
	}
	s.unpause(now, port, classes)
}

// unpause lets classes of a port start from now on.
func (s *Switch) unpause(now vtime.Time, port int, classes uint8) {
	e := &s.eg[port]
	if e.ready&^e.paused == 0 {
		e.elig = max(e.elig, now)
	}
	s.setPaused(port, e.paused&^classes)
}

// armPause sets the timer for the first class whose pause runs out.
func (s *Switch) armPause(port int) {
	if first := s.eg[port].obeyed().next(); first == vtime.Never {
		s.timers.Stop(s.timerPause(port))
	} else {
		s.timers.Set(s.timerPause(port), first)
	}
}

// pauseExpired resumes the classes whose pause has run out.
func (s *Switch) pauseExpired(now vtime.Time, port int) {
	s.settle(now, port) // arrivals, starts, timers: starts at now precede timers
	for x := s.eg[port].obeyed().expired(now); x != 0; x &= x - 1 {
		s.resume(now, port, x&-x)
	}
	s.armPause(port)
	s.setNext(port)
	s.settle(now, port)
}
