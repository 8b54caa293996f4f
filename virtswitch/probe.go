// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"math/bits"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// Probe visits the state that data in order and acknowledgements change in the switch. It refuses more complex
// state: pauses, marks, weights, reductions, the crossbar, and frames whose handling is deferred.
func (s *Switch) Probe(p *machine.Probe) {
	switch {
	case s.crossbar != nil || s.deferred != nil || s.lookAside != nil || s.turn != nil:
		p.Refuse("input queues, deferred frames, or weights in a switch")
	case s.queues != nil:
		p.Refuse("a trace of queues")
	case s.buffer.pauses > 0 || s.buffer.alpha > 0:
		p.Refuse("pauses, or dynamic thresholds")
	}
	s.probeStats(p)
	s.timers.Visit(func(at *vtime.Time) { p.Deadline(at, "a timer of a switch") })
	for _, w := range s.waiting {
		p.Same(w, "which ports have frames")
	}
	s.buffer.probe(p)
	for port := range s.eg {
		s.eg[port].probe(p)
		p.Same(uint64(s.eg[port].peak), "the longest queue of a port")
		if int(s.eg[port].peak) > s.ecnFrom {
			p.Refuse("a queue that may be marked")
		}
	}
	s.groups.each(func(g *group) {
		if !p.Ended() {
			g.probe(p)
		}
	})
}

// probeStats visits the counters.
func (s *Switch) probeStats(p *machine.Probe) {
	c := &s.stats
	for _, v := range []*uint64{&c.Received, &c.Forwarded, &c.Cloned, &c.Absorbed, &c.AcksIn, &c.AcksOut} {
		p.Count(v, "a counter of a switch")
	}
	p.Same(c.Made+c.Dropped()+c.PausesSent+c.PausesReceived+c.PausesIgnored+c.NaksIn+c.NaksOut+c.NaksHeld+c.AcksRepeated+c.Filtered+
		c.SourceSwitches+c.Marked+c.PauseStorms+c.Refused+c.AgedOut+c.MRUpdates+c.RETHsRewritten+c.ReducedIn+c.ReducedOut+
		c.CNPsIn+c.CNPsOut, "a counter of what is rare")
	for i := range s.portStats {
		v := &s.portStats[i]
		p.Count(&v.AcksIn, "acknowledgements at a port")
		p.Same(v.NaksIn+v.CNPsIn+v.CNPsFiltered+v.Filtered, "a counter of what is rare at a port")
	}
}

// probe visits the charged bytes. The places of shared charges are names: their holders visit the charges.
func (b *buffer) probe(p *machine.Probe) {
	p.Same(uint64(b.lossyBytes), "what lossy classes have in the buffer")
	p.Same(uint64(b.losslessBytes), "what lossless classes have in the buffer")
	p.Same(uint64(len(b.shared)-len(b.freeIndex)), "how many frames wait at several ports")
	for i := range b.in {
		for _, n := range b.in[i].bytes {
			p.Same(uint64(n), "what is in the buffer of a port")
		}
	}
	for i := range b.shared {
		c := &b.shared[i]
		if c.copies > 0 {
			p.Same(uint64(i), "a place of a shared charge")
			p.Same(uint64(uint32(c.charge))<<32|uint64(uint32(c.size)), "a shared charge")
			p.Same(uint64(c.copies), "how many copies wait")
		}
	}
}

// probe visits the queues of a port.
func (e *egress) probe(p *machine.Probe) {
	if e.paused != 0 || e.discarded != 0 || e.pauses() > 0 {
		p.Refuse("a port that is paused, or pauses")
	}
	p.Past(&e.elig, "when a port had something to send")
	p.Same(uint64(e.ready), "which queues of a port have frames")
	for x := e.ready; x != 0; x &= x - 1 {
		q := e.queue(uint8(bits.TrailingZeros8(x)))
		p.Same(uint64(q.bytes), "how much waits at a port")
		for i := range q.Len() {
			w := q.At(i)
			p.Same(uint64(uint32(w.size))<<32|uint64(uint32(w.charge)), "what waits at a port")
			p.Frame(w.f, true)
		}
	}
}

// probe visits a group. All of its members move, or none.
func (g *group) probe(p *machine.Probe) {
	p.Past(&g.used, "when a group was used")
	p.Same(uint64(g.envFor.dst)<<32|uint64(g.envFor.tag), "the header of feedback")
	p.Same(uint64(g.envFor.traffic)<<8|uint64(g.traffic), "the class of data")
	p.Same(uint64(g.minPath)<<32|uint64(g.ackOut), "who is behind")
	a := &g.aggregation
	moves := p.PSN(&a.aggAckPSN, "what a group has acknowledged")
	for i := range a.ackPSN {
		if member := p.PSN(&a.ackPSN[i], "what a member has acknowledged"); p.Compares() && i != a.ackOut && member != moves {
			p.Refuse("a member that is behind, or ahead")
		}
		r := &a.report[i]
		p.Same(uint64(r.msn), "messages of a member")
		p.Flags("what a member has said", r.selective, r.repairPending)
		if moves && (r.repairPending || r.selective || g.path[i].regions != nil) {
			p.Refuse("a member that asks again, repeats selectively, or has regions")
		}
	}
	p.Same(uint64(a.pendingNakPSN)<<24|uint64(a.sentNakPSN), "a NAK of a group")
	p.Flags("whether a group has a NAK", a.nakPending, a.nakOutstanding, a.selective)
	if moves && (a.nakPending || a.nakOutstanding || a.selective || g.reduce != nil || a.rules.EmitTies || a.rules.TriggerOnEqual) {
		p.Refuse("a group that waits for a packet again, reduces, or whose feedback depends on the order of its members'")
	}
}

// Touched returns the state of the port's transmitter and queues: the time at which it is free, and the
// number of bytes that wait. A caller that compares it before and after a frame finds out whether the frame
// reached the port.
func (s *Switch) Touched(port int) (free vtime.Time, waits int) {
	return s.ports[port].Free(), s.QueuedAt(port)
}
