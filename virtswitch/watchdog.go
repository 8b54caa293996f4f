// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"math/bits"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// WatchdogConfig configures the PFC watchdog, which protects the fabric from a neighbour that
// pauses without end (Guo et al., SIGCOMM 2016, §4.3; SONiC's pfcwd).
type WatchdogConfig struct {
	// Detect is the time for which a priority of a port must be paused, with frames waiting and without
	// a break, to count as stuck; 0: no watchdog. A break is an XON or a pause that ran out.
	Detect vtime.Duration
	// Restore is the time for which the neighbour must then leave the priority unpaused before it is
	// given back to flow control.
	Restore vtime.Duration
	// Forward makes a stuck priority ignore pauses. Otherwise its frames are dropped, those
	// that wait as well as those that come.
	Forward bool
}

// watchdog is the PFC watchdog of one port. It is a value: its methods take the neighbour's pauses and
// resumes, and return the priorities to take over and to give back.
//
// A priority is idle, watched, in a storm, or in a storm and released:
//
//	idle      watch ->     watched
//	watched   released ->  idle          expire -> storm, after Detect
//	storm     released ->  released
//	released  stopped ->   storm         expire -> idle, after Restore
type watchdog struct {
	detect, restore vtime.Duration

	// storm has a bit for each priority that has been taken over.
	storm uint8

	// due is, by priority, when its state changes unless something happens before. It is
	// vtime.Never if the priority is idle, or in a storm that the neighbour has not released.
	due [8]vtime.Time
}

func newWatchdog(c WatchdogConfig) watchdog {
	w := watchdog{detect: c.Detect, restore: c.Restore}
	w.reset()
	return w
}

// reset makes all priorities idle.
func (w *watchdog) reset() {
	w.storm = 0
	for i := range w.due {
		w.due[i] = vtime.Never
	}
}

// watch starts the clock of an idle priority: from now on it is paused with frames
// waiting. It returns when the priority will be due.
func (w *watchdog) watch(now vtime.Time, prio uint8) vtime.Time {
	w.due[prio] = now.Add(w.detect)
	return w.due[prio]
}

// stopped records that the neighbour stops a priority, and reports whether that priority is in a storm,
// which then continues. For any other priority it changes nothing.
func (w *watchdog) stopped(prio uint8) bool {
	if w.storm>>prio&1 == 0 {
		return false
	}
	w.due[prio] = vtime.Never
	return true
}

// released records that the neighbour has resumed priorities that it had stopped. It returns
// when the first storm among them will be over, or vtime.Never.
func (w *watchdog) released(now vtime.Time, priorities uint8) vtime.Time {
	first := vtime.Never
	for x := priorities; x != 0; x &= x - 1 {
		prio := bits.TrailingZeros8(x)
		w.due[prio] = vtime.Never
		if w.storm>>prio&1 != 0 {
			w.due[prio] = now.Add(w.restore)
			first = w.due[prio]
		}
	}
	return first
}

// expire returns the priorities that are due by now: begun are to be taken over, and over are
// to be given back.
func (w *watchdog) expire(now vtime.Time) (begun, over uint8) {
	for prio, at := range w.due {
		if at > now {
			continue
		}
		w.due[prio] = vtime.Never
		bit := uint8(1) << prio
		begun |= bit &^ w.storm
		over |= bit & w.storm
		w.storm ^= bit
	}
	return begun, over
}

// next returns when the first priority is due, or vtime.Never.
func (w *watchdog) next() vtime.Time {
	first := vtime.Never
	for _, at := range w.due {
		first = min(first, at)
	}
	return first
}

// watches reports whether a priority is watched.
func (w *watchdog) watches() bool {
	for prio, at := range w.due {
		if at != vtime.Never && w.storm>>prio&1 == 0 {
			return true
		}
	}
	return false
}

func (s *Switch) setWatchdog(c WatchdogConfig) {
	if c.Detect == 0 {
		return
	}
	s.watchdogConfig, s.watchdogs = c, make([]watchdog, len(s.ports))
	for p := range s.watchdogs {
		s.watchdogs[p] = newWatchdog(c)
	}
}

// watch starts the watchdog's clock for a priority.
func (s *Switch) watch(now vtime.Time, port int, prio uint8) {
	if s.watchdogs != nil {
		s.armWatchdog(port, s.watchdogs[port].watch(now, prio))
	}
}

// armWatchdog sets a port's watchdog timer to an instant, unless it is due before.
func (s *Switch) armWatchdog(port int, at vtime.Time) {
	if slot := s.timerWatchdog(port); at < s.timers.At(slot) {
		s.timers.Set(slot, at)
	}
}

// watchdogDue acts on the priorities of a port whose time has come.
func (s *Switch) watchdogDue(now vtime.Time, port int) {
	s.settle(now, port) // arrivals, starts, timers: starts at now precede timers
	w := &s.watchdogs[port]
	begun, over := w.expire(now)
	for x := begun | over; x != 0; x &= x - 1 {
		prio := uint8(bits.TrailingZeros8(x))
		if begun>>prio&1 != 0 {
			s.beginStorm(now, port, prio)
		} else {
			s.endStorm(now, port, prio)
		}
	}
	if first := w.next(); first != vtime.Never {
		s.timers.Set(s.timerWatchdog(port), first)
	}
	s.setNext(port)
	s.settle(now, port)
}

// beginStorm takes over a stuck priority: it ignores pauses, or its frames are dropped.
func (s *Switch) beginStorm(now vtime.Time, port int, prio uint8) {
	e := &s.eg[port]
	s.stats.PauseStorms++
	if s.trace != nil {
		s.trace.Trace(now, machine.Event{Kind: machine.EventPauseStorm, Port: port, Priority: 1 << prio})
	}
	if s.watchdogConfig.Forward {
		s.unpause(now, port, 1<<prio)
		return
	}
	e.discarded |= 1 << prio
	for q := e.claim(prio); q.Len() > 0; {
		w := q.pop()
		s.release(now, w)
		s.drop(now, port, w.f, DropWatchdog)
	}
	s.traceQueue(now, port)
	e.ready &^= 1 << prio
}

// endStorm gives the priority back to flow control.
func (s *Switch) endStorm(now vtime.Time, port int, prio uint8) {
	s.eg[port].discarded &^= 1 << prio
	s.unpause(now, port, 1<<prio)
	if s.trace != nil {
		s.trace.Trace(now, machine.Event{Kind: machine.EventPauseStormOver, Port: port, Priority: 1 << prio})
	}
}
