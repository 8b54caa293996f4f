package virtswitch

import (
	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// deleteGroup closes the group and passes the packet on. The table stays for a while
// so that a repeat finds its way, and so that the McstID is not used again while
// frames of the old group may be under way. It ends its attempt and those before.
func (s *Switch) deleteGroup(now vtime.Time, in int, f *wire.Frame, id, attempt uint32) {
	g := s.groups.get(id)
	switch {
	case g == nil:
		s.drop(now, in, f, DropUnknownGroup)
		return
	case g.index[in] == 0 || g.buried != 0 && in != g.ingress: // what travels on twice must not go round
		s.drop(now, in, f, DropNotInTree)
		return
	case attempt < g.attempt:
		s.drop(now, in, f, DropNotActive)
		return
	}
	g.attempt = attempt
	if g.buried == 0 {
		s.bury(now, g, now.Add(s.quarantine), "")
	} else {
		g.buried = now.Add(s.quarantine) // the next repeat has to find its way, too
	}
	s.flood(now, in, f, g)
}

// bury closes a group, which is forgotten at an instant.
func (s *Switch) bury(now vtime.Time, g *group, until vtime.Time, why string) {
	g.active = false
	g.buried = until
	s.unload(g)
	if s.timers.At(timerTombstone) > until {
		s.timers.Set(timerTombstone, until)
	}
	if s.trace != nil {
		s.trace.Trace(now, machine.Event{Kind: machine.EventGroupDeleted, Group: g.id, Text: why})
	}
}

// ageOf returns how long a group stays that nothing is heard of.
func (s *Switch) ageOf(g *group) vtime.Duration {
	if g.active {
		return s.groupAge
	}
	return min(s.groupAge, unopenedAge)
}

// Age deletes the groups that nothing has been heard of for as long as they may be idle, and
// returns how many. It is the second net for groups whose leader does not delete them, or
// whose deletion was lost: the switch looks when a group is registered, and drivers may make
// it look. It is no timer of the switch, which would never let the lab come to rest.
func (s *Switch) Age(now vtime.Time) (groups int) {
	if now < s.ageAt || s.groupAge == 0 {
		return 0
	}
	s.ageAt = vtime.Never
	s.groups.each(func(g *group) {
		switch due := g.used.Add(s.ageOf(g)); {
		case g.buried != 0:
		case due > now:
			s.ageAt = min(s.ageAt, due)
		default:
			s.stats.AgedOut++
			groups++
			// Its silence counts as quarantine.
			s.bury(now, g, max(now, g.used.Add(s.quarantine)), "nothing was heard of it for "+now.Sub(g.used).String())
		}
	})
	if groups > 0 {
		s.buryGroups(now)
	}
	return groups
}

// forgetGroup gives back the room of a group's table.
func (s *Switch) forgetGroup(g *group) {
	s.groups.remove(g)
	s.mftUsed -= MFTBytes(len(s.ports), g.regions)
	if g.reduce != nil {
		s.reductions--
	}
}

// setQuarantine chooses how long a McstID is not used again: longer than its packets can
// stand in a queue that is paused twice in a row, or until a watchdog acts.
func (s *Switch) setQuarantine() {
	s.quarantine = quarantineMin
	for p := range s.ports {
		s.quarantine = max(s.quarantine, 2*s.quanta(p, pauseQuanta))
	}
	if s.dog != nil {
		s.quarantine = max(s.quarantine, s.dog.Detect+s.dog.Restore)
	}
}

// unload takes the group out of the port loads.
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

// buryGroups forgets the groups whose time has come.
func (s *Switch) buryGroups(now vtime.Time) {
	next := vtime.Never
	var due []*group
	s.groups.each(func(g *group) {
		switch {
		case g.buried == 0:
		case g.buried <= now:
			due = append(due, g)
		default:
			next = min(next, g.buried)
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
