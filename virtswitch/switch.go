// SPDX-License-Identifier: Apache-2.0

// Package virtswitch is an output-queued Ethernet switch with priority-based flow
// control and the in-network RoCE multicast of Cepheus and Gleam (CEP-2): group
// registration hop by hop, replication with connection bridging, and aggregation of
// feedback so that a group looks to its source like one receiver. It keeps no packets for
// retransmission (CEP-50).
//
// It is a machine.Machine: no clock, socket, goroutine or global. Ports and routing tables are given to
// it; it has no topology.
package virtswitch

import (
	"math"
	"math/bits"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Config describes a switch: the settings that it shares with the others of its lab, and its own.
type Config struct {
	Settings
	IP uint32 // loopback address, the source of the switch's own packets
	// GroupRange is the network of the fabric's McstIDs.
	GroupRange wire.GroupRange
	Ports      []machine.Port // the driver's transmitters, one per port; at most PortsMax
	Pool       *wire.Pool
	FIB        FIB
	Seed       uint64 // of the ECMP hash
	// Up marks the ports that lead to a higher tier; a group's tree then uses at most one of them. nil:
	// the fabric has no tiers.
	Up    []bool
	Hosts []bool // which ports lead to hosts; needed if Input has Credits
	Trace machine.Tracer
	// QueriesRest lets queries for members of programs' groups wait for a packet: the switch has no timer for them.
	QueriesRest bool
	// TrustICRC makes frames that the switch builds carry a flag in place of the ICRC, which
	// saves the time of computing it.
	TrustICRC bool
}

// Switch is the core. Its methods fall into three kinds: the inputs of machine.Machine; the
// commands of faults and of the control plane (command.go) and SetMulticast; and methods that
// only read, such as Stats, Groups, PortLoad, Occupancy and Queued.
type Switch struct {
	// ports are the driver's transmitters, and eg the queues at each. Invariant: they have the same
	// length, which does not change.
	ports []machine.Port
	eg    []egress
	// serving is the deferred item that is being served, or nil. While it is set, out sends over
	// the accelerator's return links. Invariant: it is nil between two inputs.
	serving *deferredItem
	classes *Classes // nil: DefaultClasses
	pool    *wire.Pool
	// fib is the table in use, routes the one that was installed, and noCarrier the set of ports
	// without a carrier. Invariant: fib is routes less the ports in noCarrier.
	fib       FIB
	routes    FIB
	noCarrier bitset
	// reroutes counts the changes of fib. A group keeps the count of its registration, by which a later
	// packet finds out that the routes have changed since.
	reroutes uint64
	seed     uint32
	rules    Rules
	ip       uint32
	// groupRange is the network of McstIDs.
	groupRange wire.GroupRange
	trust      bool
	trace      machine.Tracer
	queues     machine.QueueTracer // trace, if it traces queues; else nil

	buffer buffer
	// pauseQuanta is the pause that an XOFF of this switch asks for.
	pauseQuanta uint16
	obeys       uint8      // priorities that neighbours may pause
	watchdogs   []watchdog // by port; nil: none
	// watchdogConfig is the configuration of all watchdogs.
	watchdogConfig WatchdogConfig
	ecn            *ecnState // nil: nothing is marked
	// ecnFrom is the least Kmin of all ports: no shorter queue is marked anywhere.
	ecnFrom  int
	weighted uint8 // priorities in the weighted round
	quantum  [8]int32
	turn     []turn // by port; nil: no priority is weighted
	// waiting is the set of ports that have a frame to start. Invariant: a port is in it if and
	// only if its Next is not vtime.Never.
	waiting bitset
	// stopped is the set of ports of which a priority must not start. Invariant: it agrees with paused of all egresses.
	stopped bitset
	timers  vtime.TimerTable
	groups  groupTable
	// portLoad is, by port, the number of groups that have it as a path or, with rules.LoadPerNode, the
	// number of nodes. Invariant: it is the sum over all groups that are not deleted.
	portLoad    []int32
	portStats   []PortStats
	groupsMax   int
	groupMemory int // bytes; 0: room for groupsMax
	// groupsRoom is the bound that LimitGroups has set; the lower of it and groupsMax counts.
	groupsRoom int
	// mftUsed is the size of all groups' tables in bytes. Invariant: it is the sum of MFTBytes
	// over all groups, deleted ones that are remembered included; announced versions of
	// regions are not in it.
	mftUsed int
	// reductions is the number of groups that have a table for reductions. Invariant: it is at most
	// ReductionsMax.
	reductions int
	fanOut     int
	groupAge   vtime.Duration
	// ageAt is the earliest instant at which a group may be old enough to be deleted, so that
	// Age need not look before. Invariant: no group reaches its age before it.
	ageAt     vtime.Time
	up        bitset // ports to a higher tier; nil: the fabric has no tiers
	hosts     bitset // ports to hosts, with credits
	cnpWindow vtime.Duration
	// quarantine is the time for which a deleted group is remembered, and its McstID not used again.
	quarantine vtime.Duration
	multicast  []wire.MulticastEntry // in order of address, each address once
	snoop      *snooping             // groups of programs; nil: no report was ever received
	// queriesRest is Config.QueriesRest.
	queriesRest bool

	deferred  *deferredWork // frames whose handling is deferred; nil: none ever is
	lookAside *lookAside    // nil: the switch handles groups itself
	crossbar  *crossbar     // nil: packets wait at their egress

	stats Stats
}

// New returns a switch. It panics if there are no ports or more than PortsMax.
func New(c Config) *Switch {
	n := len(c.Ports)
	if n == 0 || n > PortsMax {
		panic("virtswitch: a switch has 1 to 254 ports")
	}
	s := &Switch{
		ports: c.Ports, eg: make([]egress, n), pool: c.Pool, fib: c.FIB, routes: c.FIB,
		noCarrier: newBitset(n), groupsRoom: math.MaxInt, seed: uint32(c.Seed>>32 ^ c.Seed), rules: c.Rules, ip: c.IP, groupRange: c.GroupRange,
		trust: c.TrustICRC, trace: c.Trace, queriesRest: c.QueriesRest,
		waiting: newBitset(n), stopped: newBitset(n), portLoad: make([]int32, n), portStats: make([]PortStats, n),
		groupsMax: c.Groups, groupMemory: c.GroupMemory, fanOut: c.FanOut, cnpWindow: c.CNPWindow, groupAge: c.GroupAge, ageAt: vtime.Never,
	}
	s.fib.index()
	s.queues, _ = c.Trace.(machine.QueueTracer)
	if s.groupsMax == 0 {
		s.groupsMax = GroupsMax
	}
	s.hosts = newBitset(n)
	for p, host := range c.Hosts {
		if host {
			s.hosts.set(p)
		}
	}
	for p, up := range c.Up {
		if s.up == nil {
			s.up = newBitset(n)
		}
		if up {
			s.up.set(p)
		}
	}
	s.buffer = newBuffer(c.PFC, n, c.Buffer)
	s.obeys, s.pauseQuanta = c.PFC.Lossless|c.PFC.Obey, uint16(c.PFC.Quanta)
	if s.pauseQuanta == 0 {
		s.pauseQuanta = pauseQuanta
	}
	s.setWatchdog(c.Watchdog)
	s.setQuarantine()
	s.setECN(c.ECN)
	s.setWeights(c.Weights)
	s.classes = c.Classes
	s.timers = vtime.NewTimerTable(timerPorts + 2*n)
	if s.watchdogs != nil {
		s.timers.Grow(timerPorts + 3*n)
	}
	s.setDeferred(c.FeedbackDelay, c.LookAside)
	s.crossbar = newCrossbar(c.Input, n)
	return s
}

// Timer slots: one for deleted groups, two per port, one per port for the watchdog, one for
// frames whose handling is deferred, and one for groups of programs.
const (
	timerTombstone = 0
	timerPorts     = 1
)

func (s *Switch) timerPause(port int) int    { return timerPorts + 2*port }
func (s *Switch) timerRefresh(port int) int  { return timerPorts + 2*port + 1 }
func (s *Switch) timerWatchdog(port int) int { return timerPorts + 2*len(s.ports) + port }
func (s *Switch) timerDeferred() int         { return timerPorts + 3*len(s.ports) }

// HandleFrame implements machine.Machine. With a crossbar, starts that were due before now come first,
// and the frame's copies are admitted after them.
func (s *Switch) HandleFrame(now vtime.Time, port int, f *wire.Frame) {
	if s.crossbar == nil {
		s.handle(now, port, f)
		return
	}
	s.crossUntil(now - 1)
	prio, credited := s.credited(f)
	before := len(s.crossbar.fresh)
	s.handle(now, port, f)
	switch fresh := s.crossbar.fresh; {
	case credited && len(fresh) > before:
		fresh[before].owes = true
	case credited: // it ended here
		s.credit(now, port, prio)
	}
	s.admit(now)
}

// handle passes a frame to the handler of its kind.
func (s *Switch) handle(now vtime.Time, port int, f *wire.Frame) {
	s.stats.Received++
	switch f.Kind() {
	case wire.KindRoCE:
		dst := f.DstIP()
		if !s.groupRange.Has(dst) {
			s.forward(now, port, f, dst)
			return
		}
		if s.lookAside != nil {
			s.steer(now, port, f)
			return
		}
		s.handleGroup(now, port, f, dst)
	case wire.KindPFC:
		s.handlePause(now, port, f)
	case wire.KindMRP:
		if s.lookAside != nil && s.groupRange.Has(f.DstIP()) {
			s.steer(now, port, f)
			return
		}
		s.handleMRP(now, port, f)
	default:
		if f.IsMembership() {
			s.handleMembership(now, port, f)
			return
		}
		s.drop(now, port, f, DropForeign)
	}
}

// HandleTimeout implements machine.Machine.
func (s *Switch) HandleTimeout(now vtime.Time) {
	if s.crossbar == nil {
		s.timeout(now)
		return
	}
	s.crossUntil(now)
	s.timeout(now)
	s.admit(now)
}

// timeout serves the timers that are due by now.
func (s *Switch) timeout(now vtime.Time) {
	if s.buffer.pauses > 0 {
		s.settleAll(now)
	}
	for {
		slot, ok := s.timers.Due(now)
		if !ok {
			return
		}
		switch {
		case slot == timerTombstone:
			s.forgetExpired(now)
		case slot == s.timerDeferred():
			s.serveDue(now)
		case slot == s.timerQuery():
			s.queryDue(now)
		case slot >= s.timerWatchdog(0):
			s.watchdogDue(now, slot-s.timerWatchdog(0))
		case slot&1 == timerPorts&1:
			s.pauseExpired(now, (slot-timerPorts)/2)
		default:
			s.refreshPause(now, (slot-timerPorts)/2)
		}
	}
}

// NextTimeout implements machine.Machine. While a neighbour is paused by this switch
// it is the next start of any port, since a start may make room for the neighbour (machine: starts are deadlines).
func (s *Switch) NextTimeout() (vtime.Time, bool) {
	if s.buffer.pauses > 0 || s.crossbar != nil {
		return s.nextStart()
	}
	return s.timers.Next()
}

// nextStart returns the next timer's instant or that of the next start, if that is earlier.
func (s *Switch) nextStart() (vtime.Time, bool) {
	at, armed := s.timers.Next()
	if s.buffer.pauses > 0 {
		for p := s.waiting.next(0); p >= 0; p = s.waiting.next(p + 1) {
			if t := s.ports[p].Next(); t < at {
				at, armed = t, true
			}
		}
	}
	if s.crossbar != nil && s.crossbar.next < at { // a start makes way for the packet behind (machine: starts are deadlines)
		at, armed = s.crossbar.next, true
	}
	return at, armed
}

// Settle implements machine.Machine.
func (s *Switch) Settle(until vtime.Time, port int) { s.settle(until, port) }

// settleAll settles every port that has a frame to start.
func (s *Switch) settleAll(until vtime.Time) {
	for p := s.waiting.next(0); p >= 0; p = s.waiting.next(p + 1) {
		s.settle(until, p)
	}
}

// forward sends a unicast frame toward its destination.
func (s *Switch) forward(now vtime.Time, in int, f *wire.Frame, dst uint32) {
	p := s.fib.next(f, dst, s.seed)
	if p < 0 {
		if isMulticast(dst) {
			s.forwardMulticast(now, in, f, dst)
			return
		}
		s.drop(now, in, f, DropNoRoute)
		return
	}
	if !f.DecTTL() {
		s.drop(now, in, f, DropTTL)
		return
	}
	var c arrival
	s.arrived(&c, f, in)
	s.out(now, p, f, &c)
}

// drop counts a frame as dropped for a reason, traces it, and takes it back.
func (s *Switch) drop(now vtime.Time, port int, f *wire.Frame, why DropReason) {
	s.stats.Drops[why]++
	if s.trace != nil {
		e := machine.Event{Kind: machine.EventDrop, Port: port, Text: why.String()}
		if f.Kind() == wire.KindRoCE {
			e.QP, e.PSN = f.DestQP(), f.PSN()
		}
		s.trace.Trace(now, e)
	}
	s.pool.Put(f)
}

// absorb takes back a frame that has done its work here.
func (s *Switch) absorb(f *wire.Frame) {
	s.stats.Absorbed++
	s.pool.Put(f)
}

// SetPool makes the switch take frames from a pool and give them back there, also those that it holds now. No frame may have a
// payload then: a block is put back where it was taken from.
func (s *Switch) SetPool(p *wire.Pool) { s.pool = p }

// Stats returns the switch's counters.
func (s *Switch) Stats() *Stats { return &s.stats }

// PortStats returns the counters of a port. Like Stats they outlive a restart.
func (s *Switch) PortStats(port int) PortStats { return s.portStats[port] }

// QueuePeak returns the most bytes on the wire that one queue of a port has held, 4 GiB at most. With input
// queueing nothing waits at egresses, and it is 0. Like counters it outlives a restart.
func (s *Switch) QueuePeak(port int) int { return int(s.eg[port].peak) }

// Ports returns the number of ports of the switch.
func (s *Switch) Ports() int { return len(s.eg) }

// traceQueue reports the queue of a port to a tracer that traces queues.
func (s *Switch) traceQueue(now vtime.Time, port int) {
	if s.queues != nil {
		s.queues.TraceQueue(now, port, s.QueuedAt(port))
	}
}

// QueuedAt returns the number of bytes on the wire that wait to be sent by a port. With input queueing
// nothing waits at egresses, and it is 0.
func (s *Switch) QueuedAt(port int) (n int) {
	e := &s.eg[port]
	for x := e.ready; x != 0; x &= x - 1 {
		n += e.queue(uint8(bits.TrailingZeros8(x))).bytes
	}
	return n
}

// PausedAt returns the bit mask of the priorities that the neighbour at a port has paused.
func (s *Switch) PausedAt(port int) uint8 { return s.eg[port].paused }

// Pauses returns the number of pause frames that wait to be sent.
func (s *Switch) Pauses() (n int) {
	for i := range s.eg {
		n += s.eg[i].pauses()
	}
	return n
}

// Stands reports whether nothing moves until a frame arrives: every frame that waits, pause frames
// left out, waits for a neighbour's pause to end, and no watchdog is about to end it.
func (s *Switch) Stands() bool {
	moves := s.deferred != nil && s.deferred.waiting.Len() > 0 || s.crossbar != nil && s.crossbar.next != vtime.Never
	for p := range s.eg {
		e := &s.eg[p]
		moves = moves || e.ready&^e.paused != 0 || s.watchdogs != nil && s.watchdogs[p].watches()
	}
	return !moves
}

// Queued returns the number of frames that wait in the switch, pause frames included.
func (s *Switch) Queued() (n int) {
	for i := range s.eg {
		n += s.eg[i].queued()
	}
	if s.deferred != nil {
		n += s.deferred.waiting.Len()
	}
	if s.crossbar != nil {
		n += s.crossbar.frames
		for _, b := range s.crossbar.slots {
			if b.f != nil {
				n++
			}
		}
	}
	return n
}
