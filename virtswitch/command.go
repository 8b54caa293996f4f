// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"math"
	"math/bits"
	"slices"

	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// Commands of faults and of the control plane. Nothing here is on the frame path.

// WipeGroups removes all groups, without quarantine, and returns their number.
func (s *Switch) WipeGroups() (groups int) {
	s.groups.each(func(g *group) {
		if g.forgetAt == 0 {
			groups++
			s.unload(g)
		}
	})
	s.groups, s.mftUsed, s.reductions, s.ageAt = groupTable{}, 0, 0, vtime.Never
	s.timers.Stop(timerTombstone)
	return groups
}

// LimitGroups bounds the memory for groups to that of room groups, as if the rest were in use;
// a negative room restores the configured bound. Groups that are registered stay.
func (s *Switch) LimitGroups(room int) {
	s.groupsRoom = room
	if room < 0 {
		s.groupsRoom = math.MaxInt
	}
}

// Restart clears the state that a reboot loses: groups, the state of flow control, and the frames that
// the switch holds. Routes, carriers and counters stay, and so do the pauses of neighbours, since their
// ports keep asking for them. It returns the number of frames lost; they count as dropped.
func (s *Switch) Restart(now vtime.Time) (lost int) {
	before := s.stats.Dropped()
	if s.crossbar != nil {
		s.forget(now)
	}
	s.settleAll(now - 1)
	for p := range s.eg {
		e := &s.eg[p]
		for e.pauses() > 0 {
			s.drop(now, p, e.popPause(), DropRestart)
		}
		for x := e.ready; x != 0; x &= x - 1 {
			for q := e.queue(uint8(bits.TrailingZeros8(x))); q.Len() > 0; {
				s.drop(now, p, q.pop().f, DropRestart)
			}
		}
		fresh, stopped := egress{peak: e.peak}, uint8(0)
		if e.rest != nil {
			fresh.rest, stopped = &others{obeyed: e.rest.obeyed}, e.rest.obeyed.stopped
		}
		*e = fresh
		s.setPaused(p, stopped)
		s.traceQueue(now, p)
		s.timers.Stop(s.timerRefresh(p))
	}
	if s.deferred != nil {
		for _, x := range s.deferred.waiting.All() {
			s.drop(now, int(x.Value.in), x.Value.f, DropRestart)
		}
		s.deferred.waiting, s.deferred.free = queue.Heap[deferredItem]{}, 0
		s.timers.Stop(s.timerDeferred())
	}
	if s.lookAside != nil {
		clear(s.lookAside.there)
		clear(s.lookAside.back)
	}
	s.buffer.reset()
	clear(s.turn)
	for p := range s.watchdogs {
		s.watchdogs[p].reset()
		s.timers.Stop(s.timerWatchdog(p))
	}
	s.WipeGroups()
	clear(s.portLoad)
	for p := range s.ports {
		s.setNext(p)
	}
	s.forgetMemberships(now)
	return int(s.stats.Dropped() - before)
}

// SetCarrier sets whether the link at a port is up. A port without a carrier is in no route,
// and all that its neighbour has paused is resumed.
func (s *Switch) SetCarrier(now vtime.Time, port int, up bool) {
	if up != s.noCarrier.has(port) {
		return
	}
	if s.crossbar != nil {
		s.crossUntil(now - 1)
	}
	if up {
		s.noCarrier.clear(port)
	} else {
		s.noCarrier.set(port)
	}
	s.reroute()
	s.settle(now-1, port)
	s.timers.Stop(s.timerPause(port))
	s.resume(now, port, s.eg[port].obeyed().stopped)
	if x := s.buffer.paused[port]; up && x != 0 { // the neighbour has lost the record that it is paused
		s.sendPause(now, port, x, s.pauseQuanta)
	}
	s.setNext(port)
	s.settle(now, port)
	s.rejoin(now)
	if s.crossbar != nil { // packets that the neighbour had paused may start
		s.cross(now)
	}
}

// SetRoutes replaces the forwarding table.
func (s *Switch) SetRoutes(now vtime.Time, t FIB) {
	s.routes = t
	s.reroute()
	s.rejoin(now)
}

// reroute puts the installed routes into use, without the ports that have no carrier.
func (s *Switch) reroute() {
	t := s.routes.without(s.noCarrier)
	if !t.equal(&s.fib) {
		s.reroutes++
	}
	s.fib = t
	s.fib.index()
}

// without returns the table less the given ports.
func (t FIB) without(ports bitset) FIB {
	if ports.next(0) < 0 {
		return t
	}
	out := FIB{Sets: make([][]uint16, len(t.Sets)), Block: t.Block, Local: slices.Clone(t.Local), Uplinks: slices.Clone(t.Uplinks)}
	for i, p := range out.Uplinks {
		if p >= 0 && ports.has(p) {
			out.Uplinks[i] = noUplink
		}
	}
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
