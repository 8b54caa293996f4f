// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// The counters and states of a lab in parts are merged from those of its parts: each node and the end
// of each link is in one of them. Between jobs, and in Observe, all of it may be read.

// Graph returns the topology.
func (p *Parts) Graph() *topo.Graph { return p.cfg.Graph }

// Now returns the lab time: that of the end of the last job, or while one runs that of the part which
// is ahead of the others.
func (p *Parts) Now() vtime.Time {
	now := p.now
	for _, n := range p.parts {
		now = max(now, n.now)
	}
	return now
}

// Stats returns the counts so far. Events, Wakes and Timers count those of the parts, which are more
// than those of the whole, because frames that leave a part have events of their own.
func (p *Parts) Stats() (s Stats) {
	for _, n := range p.parts {
		s.Events += n.stats.Events
		s.Hops += n.stats.Hops
		s.AckHops += n.stats.AckHops
		s.Lost += n.stats.Lost
		s.Wakes += n.stats.Wakes
		s.Timers += n.stats.Timers
	}
	s.InTurn = p.inTurn
	return s
}

// Of returns the part that has a node.
func (p *Parts) Of(node int) *Net { return p.parts[p.partOf(node)] }

// partOf returns the number of the part that has a node.
func (p *Parts) partOf(node int) int { return int(p.layout.of[node]) }

// end returns the part in which the link of a transmitter ends.
func (p *Parts) end(port int) *Net { return p.Of(p.layout.far(port)) }

// Ports returns the number of transmitters.
func (p *Parts) Ports() int { return p.layout.ports() }

// PortID returns the number of the transmitter at a node's port.
func (p *Parts) PortID(node, port int) int { return p.layout.port(node, port) }

// Link returns the link behind a transmitter, as the part has it in which it ends.
func (p *Parts) Link(id int) *machine.Link {
	n := p.end(id)
	return n.links.At(n.endOf(id))
}

// LinkStats is Net.LinkStats for the part of the link's end.
func (p *Parts) LinkStats(port int) faults.Counts { return p.end(port).LinkStats(port) }

// Doing returns the last report of progress of the part that has had most, and the number of all.
func (p *Parts) Doing() (what string, steps int) {
	most := 0
	for _, n := range p.parts {
		if steps += n.steps; n.steps > most {
			what, most = n.doing, n.steps
		}
	}
	return what, steps
}

// Waiting returns the most frequent reason for which parked tasks wait, or an empty text if none is
// parked.
func (p *Parts) Waiting() string {
	count := map[string]int{}
	for _, n := range p.parts {
		n.waits(count)
	}
	return rankhost.Commonest(count)
}

// Turns returns Net.Turn of each part. Any goroutine may call it at any time.
func (p *Parts) Turns() (all []func() (number uint64, name string)) {
	for _, n := range p.parts {
		all = append(all, n.Turn)
	}
	return all
}

// Leftover is Net.Leftover of the first part that has something left.
func (p *Parts) Leftover() error {
	for _, n := range p.parts {
		if n.stalled() || n.stuck {
			return nil
		}
	}
	for _, n := range p.parts {
		if err := n.Leftover(); err != nil {
			return err
		}
	}
	return nil
}
