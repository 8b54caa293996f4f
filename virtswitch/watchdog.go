package virtswitch

import (
	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/vtime"
)

// WatchdogConfig sets the PFC watchdog up, which frees the fabric of a neighbour that
// pauses without end (Guo et al., SIGCOMM 2016, §4.3; SONiC's pfcwd).
type WatchdogConfig struct {
	// Detect is how long a priority of a port must be paused, with frames waiting and
	// without a break, to be taken for stuck; 0: no watchdog. A break is an XON or a pause
	// that ran out.
	Detect vtime.Duration
	// Restore is how long the neighbour must then let the priority go for things to be as
	// before.
	Restore vtime.Duration
	// Forward makes a stuck priority ignore pauses. Otherwise its frames are dropped:
	// those that wait, and those that come.
	Forward bool
}

// watchdog is what it knows of every port.
type watchdog struct {
	WatchdogConfig
	due [][8]vtime.Time // by port and priority: when it is stuck, or, in a storm, when that is over
}

func (s *Switch) setWatchdog(c WatchdogConfig) {
	if c.Detect == 0 {
		return
	}
	s.dog = &watchdog{WatchdogConfig: c, due: make([][8]vtime.Time, len(s.ports))}
	for p := range s.dog.due {
		for i := range s.dog.due[p] {
			s.dog.due[p][i] = vtime.Never
		}
	}
}

// watch starts the watchdog's clock: from now on the priority is paused with frames
// waiting.
func (s *Switch) watch(now vtime.Time, port int, prio uint8) {
	if s.dog != nil {
		s.setDue(port, prio, now.Add(s.dog.Detect))
	}
}

func (s *Switch) setDue(port int, prio uint8, at vtime.Time) {
	s.dog.due[port][prio] = at
	if slot := s.timerWatchdog(port); at < s.timers.At(slot) {
		s.timers.Set(slot, at)
	}
}

// stormPaused notes that the neighbour stops a priority the watchdog has taken over: it
// stays as it is. It returns false for any other.
func (s *Switch) stormPaused(port int, prio uint8) bool {
	if s.eg[port].storm>>prio&1 == 0 {
		return false
	}
	s.dog.due[port][prio] = vtime.Never
	return true
}

// watchdogDue acts on the priorities of a port whose time has come.
func (s *Switch) watchdogDue(now vtime.Time, port int) {
	s.settle(now, port) // R2: what starts at now goes before timers
	first := vtime.Never
	for prio, at := range s.dog.due[port] {
		switch {
		case at > now:
			first = min(first, at)
		case s.eg[port].storm>>prio&1 == 0:
			s.dog.due[port][prio] = vtime.Never
			s.beginStorm(now, port, uint8(prio))
		default:
			s.dog.due[port][prio] = vtime.Never
			s.endStorm(now, port, uint8(prio))
		}
	}
	if first != vtime.Never {
		s.timers.Set(s.timerWatchdog(port), first)
	}
	s.setNext(port)
	s.settle(now, port)
}

// beginStorm takes a stuck priority over.
func (s *Switch) beginStorm(now vtime.Time, port int, prio uint8) {
	e := &s.eg[port]
	e.storm |= 1 << prio
	s.stats.PauseStorms++
	if s.trace != nil {
		s.trace.Trace(now, machine.Event{Kind: machine.EventPauseStorm, Port: port, Priority: 1 << prio})
	}
	if s.dog.Forward {
		s.unpause(now, port, 1<<prio)
		return
	}
	q := &e.fifo[prio]
	for q.n > 0 {
		w := q.pop()
		s.release(now, w)
		s.drop(now, port, w.f, DropWatchdog)
	}
	e.ready &^= 1 << prio
}

// endStorm gives the priority back to flow control.
func (s *Switch) endStorm(now vtime.Time, port int, prio uint8) {
	e := &s.eg[port]
	e.storm &^= 1 << prio
	s.unpause(now, port, 1<<prio)
	if s.trace != nil {
		s.trace.Trace(now, machine.Event{Kind: machine.EventPauseStormOver, Port: port, Priority: 1 << prio})
	}
}
