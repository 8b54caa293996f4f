// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// deleteGroup closes the group and passes the packet on. The table stays for a while, so that
// a repeat of the packet finds its way, and so that the McstID is not used again while frames
// of the old group may be under way. The packet ends its attempt and all earlier ones.
func (s *Switch) deleteGroup(now vtime.Time, in int, f *wire.Frame, id, attempt uint32) {
	g := s.groups.get(id)
	switch {
	case g == nil:
		s.drop(now, in, f, DropUnknownGroup)
		return
	case g.index[in] == 0 || g.forgetAt != 0 && in != g.ingress: // a packet that is passed on twice must not go in a circle
		s.drop(now, in, f, DropNotInTree)
		return
	case attempt < g.attempt:
		s.drop(now, in, f, DropNotActive)
		return
	}
	g.attempt = attempt
	if g.forgetAt == 0 {
		s.closeGroup(now, g, now.Add(s.quarantine), "")
	} else {
		g.forgetAt = now.Add(s.quarantine) // the next repeat has to find its way too
	}
	s.flood(now, in, f, g)
}

// closeGroup deletes a group: it passes no data from now on, and is forgotten at the instant until.
func (s *Switch) closeGroup(now vtime.Time, g *group, until vtime.Time, why string) {
	g.active = false
	g.forgetAt = until
	s.unload(g)
	if s.timers.At(timerTombstone) > until {
		s.timers.Set(timerTombstone, until)
	}
	if s.trace != nil {
		s.trace.Trace(now, machine.Event{Kind: machine.EventGroupDeleted, Group: g.id, Text: why})
	}
}

// ageOf returns how long a group may be idle: less if it has not been opened for data.
func (s *Switch) ageOf(g *group) vtime.Duration {
	if g.active {
		return s.groupAge
	}
	return min(s.groupAge, unopenedAge)
}

// Age deletes the groups that have been idle for as long as they may, and returns their number. It
// catches groups whose leader does not delete them, or whose deletion was lost. The switch calls it
// when a group is registered, and drivers may call it. It is not a timer of the switch, since with one
// armed a lab would never come to rest.
func (s *Switch) Age(now vtime.Time) (groups int) {
	if now < s.ageAt || s.groupAge == 0 {
		return 0
	}
	s.ageAt = vtime.Never
	s.groups.each(func(g *group) {
		switch due := g.used.Add(s.ageOf(g)); {
		case g.forgetAt != 0:
		case due > now:
			s.ageAt = min(s.ageAt, due)
		default:
			s.stats.AgedOut++
			groups++
			// The time for which it was idle counts toward its quarantine.
			s.closeGroup(now, g, max(now, g.used.Add(s.quarantine)), "nothing was heard of it for "+now.Sub(g.used).String())
		}
	})
	if groups > 0 {
		s.forgetExpired(now)
	}
	return groups
}

// forgetGroup removes a group and frees the memory of its table.
func (s *Switch) forgetGroup(g *group) {
	s.groups.remove(g)
	s.mftUsed -= s.tableBytes(g.regions)
	if g.reduce != nil {
		s.reductions--
	}
}

// setQuarantine chooses how long the McstID of a deleted group is not used again: longer than
// its packets can wait in a queue that is paused twice in a row, or until a watchdog acts.
func (s *Switch) setQuarantine() {
	s.quarantine = quarantineMin
	for p := range s.ports {
		s.quarantine = max(s.quarantine, 2*s.quanta(p, pauseQuanta))
	}
	if s.watchdogs != nil {
		s.quarantine = max(s.quarantine, s.watchdogConfig.Detect+s.watchdogConfig.Restore)
	}
}

// Quarantine returns how long the switch remembers that a group was deleted.
func (s *Switch) Quarantine() vtime.Duration { return s.quarantine }

// unload subtracts the group from the port loads.
func (s *Switch) unload(g *group) {
	for i := range g.path {
		p := &g.path[i]
		if s.rules.LoadPerNode {
			s.portLoad[p.port] -= p.nodes
		} else {
			s.portLoad[p.port]--
		}
	}
}

// forgetExpired forgets the deleted groups whose quarantine is over, and sets the timer for the
// next.
func (s *Switch) forgetExpired(now vtime.Time) {
	next := vtime.Never
	var due []*group
	s.groups.each(func(g *group) {
		switch {
		case g.forgetAt == 0:
		case g.forgetAt <= now:
			due = append(due, g)
		default:
			next = min(next, g.forgetAt)
		}
	})
	for _, g := range due {
		s.forgetGroup(g)
	}
	s.timers.Stop(timerTombstone)
	if next != vtime.Never {
		s.timers.Set(timerTombstone, next)
	}
}
