// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// InputConfig makes a switch queue packets at their ingress, as a virtual cut-through switch does (CYC-18, CYC-19): a packet waits in its
// ingress until the egress is free; those behind it, of the same ingress and priority, wait for it whatever their egress. An egress holds one
// packet, the one it sends. Flow control is PFC on the queue of an ingress. Priorities are strict; the ingresses that want an egress take
// turns.
//
// A packet with several copies leaves its ingress when the last bit of the last copy has been sent. With Together all copies start at one
// instant, when all their egresses are free; without it each starts when its own egress is free. Nothing is reserved meanwhile, so together a
// packet with many copies may wait long.
//
// Marking, weights, the watchdog and the accelerator act on the queues of an egress. With
// input queueing there are none, so these settings have no effect.
//
// With Credits flow control is by credits of one packet in place of PFC, taken literally from the cyclic multicast paper (CYC-18, CYC-19): an
// ingress holds one packet of each lossless priority with RoCE, and its neighbour sends the next at the credit for the last, which is due
// when that has left. An egress then also holds one, which has left its ingress and waits for the credit. The word is a pause frame that
// resumes the priority; it takes no time of the link, but waits for the packet that is being sent. Hosts take packets at any time, also of
// each other where two are back to back. A packet or a credit that a link loses stops the priority of the link for good.
type InputConfig struct {
	Together bool
	Credits  bool
}

// crossbar holds the packets that wait in the ingresses. A lane is the FIFO of one ingress and
// priority; lanes are numbered by priority, then ingress.
type crossbar struct {
	together bool
	lanes    []queue.FIFO[*held]
	wants    []bitset // by egress: lanes whose first packet has a copy for it
	wanted   bitset   // egresses that some lane wants
	leaving  bitset   // lanes whose first packet has started on all its ports
	turn     []int    // by egress: the ingress served last
	fresh    []*held  // packets that the frame being handled has brought
	frames   int      // copies that wait, in all lanes
	peak     int      // most packets that one lane has had
	next     vtime.Time
	spare    []*held
	slots    []outgoing // by egress, with credits: a packet that waits for one; nil without credits
}

// outgoing is a packet in the buffer of an egress.
type outgoing struct {
	f    *wire.Frame // nil: the slot is free
	size int
	prio uint8
	roce bool
}

// held is a packet that waits in its ingress.
type held struct {
	arrival
	copies []onward   // copies that have not started
	owes   bool       // the neighbour gets a credit when the packet leaves
	until  vtime.Time // when the last bit of the copies that have started is sent
}

// onward is a copy and where it goes.
type onward struct {
	port int
	f    *wire.Frame
}

func newCrossbar(c *InputConfig, ports int) *crossbar {
	if c == nil {
		return nil
	}
	x := &crossbar{
		together: c.Together, lanes: make([]queue.FIFO[*held], 8*ports), wants: make([]bitset, ports), wanted: newBitset(ports),
		leaving: newBitset(8 * ports), turn: make([]int, ports), next: vtime.Never,
	}
	for p := range x.wants {
		x.wants[p] = newBitset(8 * ports)
	}
	if c.Credits {
		x.slots = make([]outgoing, ports)
	}
	return x
}

// credited reports whether the neighbour at a port has spent a credit on a frame that comes from there.
func (s *Switch) credited(f *wire.Frame) (prio uint8, yes bool) {
	if s.crossbar.slots == nil || f.Kind() != wire.KindRoCE {
		return 0, false
	}
	prio = s.priority(f)
	return prio, s.obeys>>prio&1 != 0
}

// credit sends the neighbour at a port a credit: the ingress has room again.
func (s *Switch) credit(now vtime.Time, port int, prio uint8) { s.sendPause(now, port, 1<<prio, 0) }

// launch sends the packet in the slot of an egress if it may start at now.
func (s *Switch) launch(now vtime.Time, port int) {
	b, e, p := &s.crossbar.slots[port], &s.eg[port], &s.ports[port]
	if b.f == nil {
		return
	}
	if p.Next() <= now {
		s.settle(now, port) // a credit for the neighbour goes first
	}
	if p.Free() > now || e.paused>>b.prio&1 != 0 {
		return
	}
	p.Commit(b.f, b.size, now)
	b.f = nil
	if b.roce && s.obeys>>b.prio&1 != 0 && !s.hosts.has(port) {
		s.setPaused(port, e.paused|1<<b.prio) // until the neighbour's credit
	}
	if e.pauses() > 0 {
		s.setNext(port)
	}
}

// InputPeak returns the most packets that one ingress has held of one priority; 0 with output queues.
func (s *Switch) InputPeak() int {
	if s.crossbar == nil {
		return 0
	}
	return s.crossbar.peak
}

// hold puts a copy of an arriving frame into the frame's ingress.
func (s *Switch) hold(port int, f *wire.Frame, a *arrival) {
	x := s.crossbar
	lane := int(a.prio)*len(s.ports) + a.in
	if a.held == nil {
		h := &held{}
		if n := len(x.spare); n > 0 {
			h, x.spare = x.spare[n-1], x.spare[:n-1]
		}
		*h = held{arrival: arrival{size: a.size, in: a.in, prio: a.prio}, copies: h.copies[:0]}
		a.held = h
		x.lanes[lane].Push(h)
		x.peak = max(x.peak, x.lanes[lane].Len())
		x.fresh = append(x.fresh, h)
	}
	a.held.copies = append(a.held.copies, onward{port, f})
	x.frames++
	if x.lanes[lane].First() == a.held {
		x.want(lane, port)
	}
}

func (x *crossbar) want(lane, port int) {
	x.wants[port].set(lane)
	x.wanted.set(port)
}

// unwant records that the copy of a lane's first packet for a port has left. A packet has at
// most one copy for a port, since a tree has each port once.
func (x *crossbar) unwant(lane, port int) {
	x.wants[port].clear(lane)
	if x.wants[port].next(0) < 0 {
		x.wanted.clear(port)
	}
}

// crossUntil makes all starts that were due by an instant, each at its own instant.
func (s *Switch) crossUntil(until vtime.Time) {
	for s.crossbar.next <= until {
		s.cross(s.crossbar.next)
	}
}

// admit starts the copies of the frame handled last, and charges those that have to wait to its
// ingress.
func (s *Switch) admit(now vtime.Time) {
	x := s.crossbar
	s.cross(now)
	refused := false
	for _, h := range x.fresh {
		if len(h.copies) == 0 {
			continue
		}
		if s.charge(now, &h.arrival); h.dead {
			s.shed(now, h)
			refused = true
		}
	}
	x.fresh = x.fresh[:0]
	if refused {
		s.cross(now)
	}
}

// shed drops the copies of a packet that found no room. Its entry stays in the lane until it
// comes first.
func (s *Switch) shed(now vtime.Time, h *held) {
	x := s.crossbar
	lane := int(h.prio)*len(s.ports) + h.in
	first := x.lanes[lane].First() == h
	for len(h.copies) > 0 {
		c := h.copies[0]
		h.copies = slices.Delete(h.copies, 0, 1)
		x.frames--
		s.drop(now, h.in, c.f, h.refused)
		if first {
			x.unwant(lane, c.port)
		}
	}
	h.until = max(h.until, now)
	if first {
		x.leaving.set(lane)
	}
}

// cross does all that can happen at now: packets whose last bit has been sent make way for
// those behind them, and egresses that are free take the next copy. To call it again at the
// same instant changes nothing.
func (s *Switch) cross(now vtime.Time) {
	x := s.crossbar
	for again := true; again; {
		again = false
		for port := range x.slots {
			s.launch(now, port)
		}
		for lane := x.leaving.next(0); lane >= 0; lane = x.leaving.next(lane + 1) {
			if x.lanes[lane].First().until <= now {
				s.leave(now, lane)
				again = true
			}
		}
		for p := x.wanted.next(0); p >= 0; p = x.wanted.next(p + 1) {
			if lane := s.choose(now, p); lane >= 0 {
				s.begin(now, lane, p)
				again = true
			}
		}
	}
	x.next = vtime.Never
	for lane := x.leaving.next(0); lane >= 0; lane = x.leaving.next(lane + 1) {
		x.next = min(x.next, x.lanes[lane].First().until)
	}
	for p := x.wanted.next(0); p >= 0; p = x.wanted.next(p + 1) {
		if free := s.ports[p].Free(); free > now {
			x.next = min(x.next, free)
		}
	}
	for p := range x.slots {
		if b, free := &x.slots[p], s.ports[p].Free(); b.f != nil && free > now && s.eg[p].paused>>b.prio&1 == 0 {
			x.next = min(x.next, free)
		}
	}
}

// forget drops every packet that waits and was not due to start before now.
func (s *Switch) forget(now vtime.Time) {
	s.crossUntil(now - 1)
	x := s.crossbar
	for i := range x.lanes {
		for l := &x.lanes[i]; l.Len() > 0; {
			h := l.Pop()
			for _, c := range h.copies {
				s.drop(now, h.in, c.f, DropRestart)
			}
		}
	}
	for p := range x.slots {
		if f := x.slots[p].f; f != nil {
			s.drop(now, p, f, DropRestart)
		}
	}
	s.crossbar = newCrossbar(&InputConfig{x.together, x.slots != nil}, len(s.ports))
}

// leave takes the first packet out of a lane.
func (s *Switch) leave(now vtime.Time, lane int) {
	x := s.crossbar
	h := x.lanes[lane].Pop()
	x.leaving.clear(lane)
	if h.charged {
		s.release(now, waiter{size: int32(h.size), charge: h.charge})
	}
	if h.owes {
		s.credit(now, h.in, h.prio)
	}
	x.spare = append(x.spare, h)
	if x.lanes[lane].Len() == 0 {
		return
	}
	first := x.lanes[lane].First()
	if len(first.copies) == 0 { // it was refused
		x.leaving.set(lane)
	}
	for _, c := range first.copies {
		x.want(lane, c.port)
	}
}

// idle reports whether an egress can start a packet of a priority at now.
func (s *Switch) idle(now vtime.Time, port int, prio uint8) bool {
	if s.ports[port].Next() <= now {
		s.settle(now, port) // a pause frame goes first
	}
	if x := s.crossbar; x.slots != nil {
		return s.ports[port].Free() <= now && x.slots[port].f == nil
	}
	return s.ports[port].Free() <= now && s.eg[port].paused>>prio&1 == 0
}

// choose returns the lane whose first packet starts on an egress at now, or -1. It takes the
// highest priority that has a packet which may start, and of its ingresses the next in turn.
func (s *Switch) choose(now vtime.Time, port int) int {
	x, n := s.crossbar, len(s.ports)
	for prio := 7; prio >= 0; prio-- {
		base := prio * n
		if lane := x.wants[port].next(base); lane < 0 || lane >= base+n || !s.idle(now, port, uint8(prio)) {
			continue
		}
		from := base + x.turn[port] + 1
		for _, part := range [2][2]int{{from, base + n}, {base, from}} {
			for lane := x.wants[port].next(part[0]); lane >= 0 && lane < part[1]; lane = x.wants[port].next(lane + 1) {
				if s.may(now, lane) {
					return lane
				}
			}
		}
	}
	return -1
}

// may reports whether a lane's first packet may start. If its copies start together, all
// their egresses must be free.
func (s *Switch) may(now vtime.Time, lane int) bool {
	if !s.crossbar.together {
		return true
	}
	h := s.crossbar.lanes[lane].First()
	return !slices.ContainsFunc(h.copies, func(c onward) bool { return !s.idle(now, c.port, h.prio) })
}

// begin starts the copy of a lane's first packet for an egress, or all copies if they start
// together.
func (s *Switch) begin(now vtime.Time, lane, port int) {
	x := s.crossbar
	h := x.lanes[lane].First()
	for i := 0; i < len(h.copies); {
		c := h.copies[i]
		if c.port != port && !x.together || s.ports[c.port].Free() > now {
			i++
			continue
		}
		h.copies = slices.Delete(h.copies, i, i+1)
		x.frames--
		x.unwant(lane, c.port)
		x.turn[c.port] = h.in
		p := &s.ports[c.port]
		s.stats.Forwarded++
		if x.slots != nil { // into the egress, as fast as the link takes it
			x.slots[c.port] = outgoing{c.f, h.size, h.prio, c.f.Kind() == wire.KindRoCE}
			h.until = max(h.until, now.Add(p.Serialize(h.size)))
			s.launch(now, c.port)
			continue
		}
		p.Commit(c.f, h.size, now)
		h.until = max(h.until, p.Free())
		if s.eg[c.port].pauses() > 0 {
			s.setNext(c.port)
		}
	}
	if len(h.copies) == 0 {
		x.leaving.set(lane)
	}
}
