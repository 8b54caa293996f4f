package virtswitch

import (
	"slices"

	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// InputConfig makes a switch queue packets where they come in, as a virtual cut-through
// switch does (CYC-18, CYC-19): a packet waits in its ingress until the egress is free;
// those behind it, of the same ingress and priority, wait for it whatever their egress.
// An egress holds one packet, the one it sends. Flow control is PFC on what waits in an
// ingress. Priorities are strict; the ingresses that want an egress take turns.
//
// A packet with several copies leaves its ingress when the last bit of the last copy has
// been sent. Together says when copies start: all at one instant, when all egresses they
// want are free, or else each when its own is. Nothing is reserved meanwhile, so together
// a packet with many copies may wait long.
//
// Marking, weights, the watchdog and the accelerator look at queues of an egress, which
// this switch has not: they have no effect.
type InputConfig struct {
	Together bool
}

// crossbar is what waits in the ingresses. A lane is the FIFO of one ingress and
// priority; lanes are numbered by priority, then ingress.
type crossbar struct {
	together bool
	lanes    []laneRing
	wants    []bitset // by egress: lanes whose first packet has a copy for it
	wanted   bitset   // egresses that some lane wants
	leaving  bitset   // lanes whose first packet has started on all its ports
	turn     []int    // by egress: the ingress served last
	fresh    []*held  // came with the frame being handled
	frames   int      // copies that wait
	next     vtime.Time
	spare    []*held
}

// laneRing is the FIFO of a lane: a lossless ingress that is paused late holds thousands of packets, which
// must not all move when one leaves.
type laneRing struct {
	ring []*held // a power of two
	head int
	n    int
}

func (l *laneRing) push(h *held) {
	if l.n == len(l.ring) {
		ring := make([]*held, max(4, 2*l.n))
		for i := range l.n {
			ring[i] = l.ring[(l.head+i)&(l.n-1)]
		}
		l.ring, l.head = ring, 0
	}
	l.ring[(l.head+l.n)&(len(l.ring)-1)] = h
	l.n++
}

// first returns the packet that is next to leave, of a lane that has one.
func (l *laneRing) first() *held { return l.ring[l.head] }

func (l *laneRing) pop() *held {
	h := l.ring[l.head]
	l.ring[l.head] = nil
	l.head = (l.head + 1) & (len(l.ring) - 1)
	l.n--
	return h
}

// held is a packet in its ingress.
type held struct {
	arrival
	copies []onward   // that have not started
	until  vtime.Time // when the last bit of those that have started is sent
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
		together: c.Together, lanes: make([]laneRing, 8*ports), wants: make([]bitset, ports), wanted: newBitset(ports),
		leaving: newBitset(8 * ports), turn: make([]int, ports), next: vtime.Never,
	}
	for p := range x.wants {
		x.wants[p] = newBitset(8 * ports)
	}
	return x
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
		x.lanes[lane].push(h)
		x.fresh = append(x.fresh, h)
	}
	a.held.copies = append(a.held.copies, onward{port, f})
	x.frames++
	if x.lanes[lane].first() == a.held {
		x.want(lane, port)
	}
}

func (x *crossbar) want(lane, port int) {
	x.wants[port].set(lane)
	x.wanted.set(port)
}

// unwant notes that the copy of a lane's first packet for a port has left. There is one for
// a port at most: a tree has each port once.
func (x *crossbar) unwant(lane, port int) {
	x.wants[port].clear(lane)
	if x.wants[port].next(0) < 0 {
		x.wanted.clear(port)
	}
}

// crossUntil does what was due by an instant, at the instants when it was.
func (s *Switch) crossUntil(until vtime.Time) {
	for s.crossbar.next <= until {
		s.cross(s.crossbar.next)
	}
}

// admit lets what came with the frame just handled start, and books on the ingress what
// has to wait.
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

// shed drops the copies of a packet that found no room. Its place in the lane goes when
// it is its turn.
func (s *Switch) shed(now vtime.Time, h *held) {
	x := s.crossbar
	lane := int(h.prio)*len(s.ports) + h.in
	first := x.lanes[lane].first() == h
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
// those behind them, and egresses that are free take the next copy. It makes no
// difference how often it is called at one instant.
func (s *Switch) cross(now vtime.Time) {
	x := s.crossbar
	for again := true; again; {
		again = false
		for lane := x.leaving.next(0); lane >= 0; lane = x.leaving.next(lane + 1) {
			if x.lanes[lane].first().until <= now {
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
		x.next = min(x.next, x.lanes[lane].first().until)
	}
	for p := x.wanted.next(0); p >= 0; p = x.wanted.next(p + 1) {
		if free := s.ports[p].Free; free > now {
			x.next = min(x.next, free)
		}
	}
}

// forget drops all that waits and was not to start before now.
func (s *Switch) forget(now vtime.Time) {
	s.crossUntil(now - 1)
	x := s.crossbar
	for i := range x.lanes {
		for l := &x.lanes[i]; l.n > 0; {
			h := l.pop()
			for _, c := range h.copies {
				s.drop(now, h.in, c.f, DropRestart)
			}
		}
	}
	s.crossbar = newCrossbar(&InputConfig{x.together}, len(s.ports))
}

// leave takes a lane's first packet out; the next one is first now.
func (s *Switch) leave(now vtime.Time, lane int) {
	x := s.crossbar
	h := x.lanes[lane].pop()
	x.leaving.clear(lane)
	if h.charged {
		s.release(now, waiter{size: int32(h.size), charge: h.charge})
	}
	x.spare = append(x.spare, h)
	if x.lanes[lane].n == 0 {
		return
	}
	first := x.lanes[lane].first()
	if len(first.copies) == 0 { // it was refused
		x.leaving.set(lane)
	}
	for _, c := range first.copies {
		x.want(lane, c.port)
	}
}

// idle says whether an egress can start a packet of a priority at now.
func (s *Switch) idle(now vtime.Time, port int, prio uint8) bool {
	if s.ports[port].Next <= now {
		s.settle(now, port) // a pause frame goes first
	}
	return s.ports[port].Free <= now && s.eg[port].paused>>prio&1 == 0
}

// choose returns the lane whose first packet starts on an egress at now, or -1: of the
// highest priority that may, the ingress that comes next in turn.
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

// may says whether a lane's first packet may start: with copies that start together, all
// their egresses must be free.
func (s *Switch) may(now vtime.Time, lane int) bool {
	if !s.crossbar.together {
		return true
	}
	h := s.crossbar.lanes[lane].first()
	return !slices.ContainsFunc(h.copies, func(c onward) bool { return !s.idle(now, c.port, h.prio) })
}

// begin starts a lane's copy for an egress, or all its copies.
func (s *Switch) begin(now vtime.Time, lane, port int) {
	x := s.crossbar
	h := x.lanes[lane].first()
	for i := 0; i < len(h.copies); {
		c := h.copies[i]
		if c.port != port && !x.together || s.ports[c.port].Free > now {
			i++
			continue
		}
		h.copies = slices.Delete(h.copies, i, i+1)
		x.frames--
		x.unwant(lane, c.port)
		x.turn[c.port] = h.in
		p := &s.ports[c.port]
		s.stats.Forwarded++
		p.Commit(c.f, h.size, now)
		h.until = max(h.until, p.Free)
		if len(s.eg[c.port].pauses) > 0 {
			s.setNext(c.port)
		}
	}
	if len(h.copies) == 0 {
		x.leaving.set(lane)
	}
}
