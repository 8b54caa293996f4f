// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"slices"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// Most of a long message without loss repeats with the period of a packet, or of as many packets as one
// acknowledgement is for. Periods are left out if it is certain that the run with them would be the same:
//
//   - The whole state is, after a period, the earlier one up to a shift of instants, PSNs and counters, word by
//     word (machine.Probe). That is checked twice, over two periods.
//   - The second of them has arrivals and starts only: no timer, task, timed call or fault.
//   - Its events at one instant may come in any order (ties.go). Their order follows from the instant.
//   - No number that moves meets one that stays before the periods are over: the last packet of a message, a deadline, an
//     event of another kind, the end of the PSNs.
//
// What the frames of the periods add to the digests of links is computed frame by frame: each is that of the last
// period with another PSN.

// skipper finds periods that repeat.
type skipper struct {
	net    *Net
	probe  machine.Probe
	after  uint64 // no attempt is made before this number of events has been handled
	wait   uint64 // events without an attempt after a failed one
	looked uint64 // places for queue pairs that were searched
	ties   ties
	seen   []passed // the frames that have reached the ends of links in a period
	events []due
	eager  bool   // it is tried again soon; for tests
	why    string // why it was not done the last time
}

// due is an event of the queue. at counts from now if it moves.
type due struct {
	at vtime.Time
	event
}

// passed is a frame that has reached the end of a link.
type passed struct {
	place int
	at    vtime.Time
	f     wire.Repeat
}

const (
	skipFrom    = 256     // packets that a message must have left
	skipWait    = 1 << 13 // events after which it is tried, and then tried again
	skipWaitMax = 1 << 20
	skipLook    = 32      // events at least, for each place for a queue pair that was searched: in a large lab all are misses of the cache
	skipPackets = 192     // of the message that has most left, among which a period is looked for
	skipTries   = 8       // instants that look like the end of a period
	skipHops    = 1 << 23 // whose digests are computed between two calls of Observe
	skipAbreast = 8
)

func newSkipper(n *Net) *skipper { return &skipper{net: n, after: skipWait, wait: skipWait} }

// try looks for a period, and leaves out as many as it can.
func (s *skipper) try() {
	n := s.net
	q, every, looked := s.anchor()
	s.looked += uint64(looked)
	least := max(skipWait, skipLook*uint64(looked))
	switch {
	case q == nil:
		s.after = n.stats.Events + least
		return
	case s.unfit() == "" && s.find(q, every) && s.confirm() && s.leave():
		s.wait = least
	default:
		s.wait = max(least, min(2*s.wait, skipWaitMax))
	}
	if s.eager {
		s.wait = skipWait / 16
	}
	s.after = n.stats.Events + s.wait
}

// anchor returns the queue pair that has most packets left, or nil if it has few, and every, the number of packets
// that each of its acknowledgements covers. looked is the number of places for queue pairs that it has searched.
func (s *skipper) anchor() (most *virtrnic.QP, every, looked int) {
	packets := uint64(skipFrom)
	for i := range s.net.nodes {
		if nic := s.net.nodes[i].nic; nic != nil {
			q, left, places := nic.Remaining()
			looked += places
			if left > packets {
				most, packets = q, left
			}
		}
	}
	return most, max(1, s.net.cfg.NIC.AckEvery), looked
}

// unfit returns the reason why the lab cannot leave out anything now, or an empty text.
func (s *skipper) unfit() string {
	n := s.net
	s.why = ""
	switch {
	case n.observed:
		s.why = "captures"
	case n.lates > 0 || len(n.ready) > 0 || len(n.postponed) > 0 || n.err != nil || n.stuck:
		s.why = "frames that a fault delays, or calls that wait"
	case n.channel != nil && n.channel.coming > 0:
		s.why = "messages of the out-of-band channel"
	case n.links.Pauses() > 0:
		s.why = "pause frames"
	case slices.ContainsFunc(n.fault, func(f faults.Link) bool { return f != nil }):
		s.why = "faults of links"
	}
	return s.why
}

// fail records the reason why nothing is left out, and returns false.
func (s *skipper) fail(why string) bool {
	s.why = why
	return false
}

// instant handles the next event and all others of its instant.
func (s *skipper) instant() bool {
	n := s.net
	for more := true; more; more = n.Next() == n.now {
		if n.err != nil || !n.step() {
			return s.fail("the run has ended")
		}
		if n.stats.Events%observeEvery == 0 {
			n.observe()
		}
	}
	return true
}

// look visits the whole lab.
func (s *skipper) look() { s.net.probe(&s.probe, s) }

// find looks for two instants between which the state has moved by a period.
func (s *skipper) find(q *virtrnic.QP, every int) bool {
	n := s.net
	if n.Next() == n.now && !s.instant() {
		return false
	}
	s.probe.Begin(n.now, n.graph.Groups)
	if s.look(); s.probe.Ended() {
		return s.fail(s.probe.Why())
	}
	sent, queued, live := q.Sent(), n.queue.n, n.pool.Live
	for tries := 0; tries < skipTries; {
		if !s.instant() {
			return false
		}
		packets := int(q.Sent() - sent)
		if packets > skipPackets+2*every {
			return s.fail("no period: " + s.probe.Why())
		}
		if packets == 0 || packets%every != 0 || n.queue.n != queued || n.pool.Live != live {
			continue
		}
		tries++
		s.probe.Compare(n.now, packets)
		if s.look(); s.probe.Equal() {
			return true
		}
	}
	return s.fail("no period: " + s.probe.Why())
}

// confirm handles another period, records its frames, and reports whether it may repeat.
func (s *skipper) confirm() bool {
	n := s.net
	period, packets := s.probe.Period()
	end := n.now.Add(period)
	s.seen = s.seen[:0]
	s.ties.reset(n)
	for n.Next() <= end {
		k, ok := n.queue.least()
		if !ok {
			return s.fail("the run has ended")
		}
		at, class, id := n.unpack(k)
		if class != classArrival && class != classStart {
			return s.fail("an event that is neither an arrival nor a start")
		}
		if class == classArrival {
			place := n.endOf(id)
			f := n.links.At(place).Flying(0).Frame
			s.seen = append(s.seen, passed{place, at, wire.NewRepeat(f, packets, s.probe.Decremented(f, n.fromSwitch(place)))})
			s.ties.before(at, place, f)
		}
		if !n.step() || n.err != nil {
			return s.fail("the run has ended")
		}
		if class == classArrival && !s.ties.after() {
			return s.fail(s.ties.why)
		}
	}
	if n.now != end {
		return s.fail("the period ends with no event")
	}
	s.probe.Compare(n.now, packets)
	if s.look(); !s.probe.Equal() {
		return s.fail(s.probe.Why())
	}
	return true
}

// leave leaves out as many periods as there is room for, some at a time.
func (s *skipper) leave() bool {
	n := s.net
	period, _ := s.probe.Period()
	room := min(s.probe.Room(), int64(vtime.End-n.now)/int64(period)-1)
	if room < 2 {
		return s.fail("the period comes hardly again")
	}
	hops, each := n.stats.Hops, room
	if !n.cfg.NoDigest {
		each = max(1, skipHops/int64(len(s.seen)+1))
		slices.SortStableFunc(s.seen, func(a, b passed) int { return a.place - b.place })
	}
	n.stats.Skips++
	for left := room; left > 0 && n.err == nil; left -= each {
		each = min(each, left)
		s.extend(each, period)
		n.shift(vtime.Duration(each)*period, func() { s.probe.Advance(each); s.look() })
		n.stats.Periods += uint64(each)
		n.observe()
	}
	n.stats.Skipped += n.stats.Hops - hops
	return true
}

// extend brings the digests of links to the end of the given number of periods: those of a few links
// abreast, because each step of one waits for the step before.
func (s *skipper) extend(periods int64, period vtime.Duration) {
	n := s.net
	if n.cfg.NoDigest {
		return
	}
	for from := 0; from < len(s.seen); {
		to := from
		for links := 0; to < len(s.seen); to++ {
			if to == from || s.seen[to].place != s.seen[to-1].place {
				if links++; links > skipAbreast {
					break
				}
			}
		}
		for range periods {
			for i := from; i < to; i++ {
				x := &s.seen[i]
				x.at = x.at.Add(period)
				n.links.At(x.place).Repeat(x.at, &x.f)
			}
		}
		from = to
	}
}

// shift moves the lab's clock by d, with the events of links. advance moves the state.
func (n *Net) shift(d vtime.Duration, advance func()) {
	keys, before := n.queue.drain(), n.coder
	advance()
	n.now = n.now.Add(d)
	n.queue.last = 0
	n.countFrom(n.now)
	for _, k := range keys {
		at, class, id := before.unpack(k)
		if class == classArrival || class == classStart {
			at = at.Add(d)
		}
		n.schedule(at, class, id)
	}
}

// probe visits the lab.
func (n *Net) probe(p *machine.Probe, s *skipper) {
	c := &n.stats
	for _, v := range []*uint64{&c.Events, &c.Hops, &c.AckHops, &c.Wakes, &n.moves} {
		p.Count(v, "a counter of the loop")
	}
	p.Same(c.Lost+c.Timers, "lost frames, and timers")
	p.Same(uint64(n.pool.Live), "frames")
	p.Same(uint64(n.pool.LiveBlocks), "payloads")
	p.Past(&n.last, "when something happened")
	for i := range n.nodes {
		nd := &n.nodes[i]
		p.Deadline(&nd.armed, "a timer")
		if nd.nic != nil {
			p.Same(nd.host.seen, "news of a host")
			nd.nic.Probe(p)
		} else {
			nd.sw.Probe(p)
		}
		if p.Ended() {
			return
		}
	}
	for i := 0; i < n.links.Len() && !p.Ended(); i++ {
		n.links.At(i).Probe(p, n.fromSwitch(i))
	}
	if !p.Ended() {
		s.probeEvents(p)
	}
}

// fromSwitch reports whether the link at a place begins at a switch.
func (n *Net) fromSwitch(place int) bool { return n.nodes[n.ports[place].node].sw != nil }

// probeEvents visits the queue. Arrivals and starts move; all others stay, and the periods left out end before
// them.
func (s *skipper) probeEvents(p *machine.Probe) {
	n := s.net
	all := s.events[:0]
	n.queue.each(func(k uint64) {
		at, class, id := n.unpack(k)
		if class == classArrival || class == classStart {
			at -= n.now
		} else if p.Compares() {
			p.Until(at)
		}
		all = append(all, due{at, event{class, id}})
	})
	slices.SortFunc(all, func(a, b due) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id))
	})
	s.events = all
	for _, e := range all {
		p.Same(uint64(e.at), "when an event is due")
		p.Same(uint64(e.class)<<32|uint64(e.id), "an event")
	}
	p.Same(uint64(n.far.len()), "events that are far off")
	if p.Compares() && n.far.first() != vtime.Never {
		p.Until(n.far.first())
	}
}
