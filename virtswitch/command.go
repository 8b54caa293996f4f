package virtswitch

import (
	"math"
	"slices"

	"github.com/mcastlab/mcastlab/vtime"
)

// What faults and the control plane tell a switch. None of it is asked about while frames
// are handled.

// WipeGroups forgets every group at once and returns how many there were.
func (s *Switch) WipeGroups() (groups int) {
	s.groups.each(func(g *group) {
		if g.buried == 0 {
			groups++
			s.unload(g)
		}
	})
	s.groups, s.mftUsed, s.reductions, s.ageAt = groupTable{}, 0, 0, vtime.Never
	s.timers.Stop(timerTombstone)
	return groups
}

// LimitGroups leaves room for so many groups at most, as if the rest of the memory were in
// use; negative: as many as were configured. Groups that are registered stay.
func (s *Switch) LimitGroups(room int) {
	s.groupsRoom = room
	if room < 0 {
		s.groupsRoom = math.MaxInt
	}
}

// Restart makes the switch what it was when it was made, but for its routes, carriers and
// counters, and for what its neighbours have paused, which their ports go on saying:
// groups, flow control and the frames it holds are gone. It returns how many frames those
// were; they count as dropped.
func (s *Switch) Restart(now vtime.Time) (lost int) {
	before := s.stats.Dropped()
	if s.crossbar != nil {
		s.forget(now)
	}
	s.settleAll(now - 1)
	for p := range s.eg {
		e := &s.eg[p]
		for len(e.pauses) > 0 {
			s.drop(now, p, e.popPause(), DropRestart)
		}
		for prio := range e.fifo {
			for q := &e.fifo[prio]; q.n > 0; {
				s.drop(now, p, q.pop().f, DropRestart)
			}
		}
		s.eg[p] = egress{stopped: e.stopped, paused: e.stopped}
		s.timers.Stop(s.timerRefresh(p))
	}
	if s.late != nil {
		for _, x := range s.late.heap {
			s.drop(now, int(x.in), x.f, DropRestart)
		}
		s.late.heap, s.late.free = nil, 0
		s.timers.Stop(s.timerLate())
	}
	if s.lookAside != nil {
		clear(s.lookAside.there)
		clear(s.lookAside.back)
	}
	b := &s.buffer
	s.buffer = buffer{limit: b.limit, lossyMax: b.lossyMax, pool: b.pool}
	clear(s.in)
	s.pfc.xoffs = 0
	clear(s.pfc.stopped)
	clear(s.turn)
	if s.dog != nil {
		for p := range s.dog.due {
			for i := range s.dog.due[p] {
				s.dog.due[p][i] = vtime.Never
			}
			s.timers.Stop(s.timerWatchdog(p))
		}
	}
	s.WipeGroups()
	clear(s.portLoad)
	for p := range s.ports {
		s.setNext(p)
	}
	return int(s.stats.Dropped() - before)
}

// SetCarrier says whether the link at a port is there. A port without one is in no route,
// and nothing that its neighbour has paused stays so.
func (s *Switch) SetCarrier(now vtime.Time, port int, up bool) {
	if up != s.dark.has(port) {
		return
	}
	if s.crossbar != nil {
		s.crossUntil(now - 1)
	}
	if up {
		s.dark.clear(port)
	} else {
		s.dark.set(port)
	}
	s.reroute()
	s.settle(now-1, port)
	clear(s.pfc.until[port][:])
	s.timers.Stop(s.timerPause(port))
	s.resume(now, port, s.eg[port].stopped)
	if x := s.in[port].xoff; up && x != 0 { // the neighbour has forgotten
		s.sendPause(now, port, x, s.pfc.quanta)
	}
	s.setNext(port)
	s.settle(now, port)
	if s.crossbar != nil { // what the neighbour had paused may start
		s.cross(now)
	}
}

// SetRoutes installs another forwarding table.
func (s *Switch) SetRoutes(t FIB) {
	s.routes = t
	s.reroute()
}

// reroute takes the routes that are installed into use, but for ports without a carrier.
func (s *Switch) reroute() {
	t := s.routes.without(s.dark)
	if !t.equal(&s.fib) {
		s.reroutes++
	}
	s.fib = t
}

// without returns the table without some ports.
func (t FIB) without(ports bitset) FIB {
	if ports.next(0) < 0 {
		return t
	}
	out := FIB{Sets: make([][]uint16, len(t.Sets)), Block: t.Block, Local: slices.Clone(t.Local)}
	for i, set := range t.Sets {
		for _, p := range set {
			if !ports.has(int(p)) {
				out.Sets[i] = append(out.Sets[i], p)
			}
		}
	}
	for i := range out.Local {
		for h, p := range out.Local[i] {
			if p > 0 && ports.has(int(p)-1) {
				out.Local[i][h] = 0
			}
		}
	}
	return out
}
