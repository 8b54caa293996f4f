// Package virtswitch is an output-queued Ethernet switch with priority-based flow
// control and the in-network RoCE multicast of Cepheus and Gleam: group registration
// hop by hop, replication with connection bridging, and aggregation of feedback so
// that a group looks to its source like one receiver.
//
// It is a machine.Machine: no clock, socket, goroutine or global. Ports and routing
// tables are given to it; it knows no topology.
package virtswitch

import (
	"math"

	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// Config describes a switch.
type Config struct {
	IP     uint32         // loopback address, the source of what the switch itself sends
	Ports  []machine.Port // the driver's transmitters, one per port; at most PortsMax
	Pool   *wire.Pool
	FIB    FIB
	Seed   uint64 // of the ECMP hash
	Buffer int    // shared packet buffer in bytes
	PFC    PFCConfig
	ECN    ECNConfig
	// Watchdog looks after priorities that neighbours pause without end.
	Watchdog WatchdogConfig
	// Classes maps frames to priorities; nil: DefaultClasses.
	Classes *Classes
	// Weights are the shares of priorities that are scheduled in a weighted round, below
	// the strict ones; 0: strict. At equal rules the higher number goes first.
	Weights [8]uint8
	Rules   Rules
	Groups  int // most groups registered at once, 0: GroupsMax; one with regions takes the room of two or three (MFTBytes)
	FanOut  int // most paths a group may leave by, the source's not counted; 0: no limit (CEP-49)
	// GroupAge is how long nothing may be heard of a group before it is taken for forgotten
	// (Age); 0: for ever.
	GroupAge vtime.Duration
	// CNPWindow is the window of the CNP filter (CEP-43), in which counts halve; 0: every
	// CNP is passed on.
	CNPWindow vtime.Duration
	// FeedbackDelay is the time that feedback of groups takes in a processor of its own,
	// one packet after the other (CEP-48); 0: none.
	FeedbackDelay vtime.Duration
	// LookAside makes groups the business of an accelerator beside the switch (CEP-45).
	LookAside LookAsideConfig
	// Input makes packets wait where they come in; nil: where they go out.
	Input *InputConfig
	// Up says which ports lead to a higher tier; a group's tree then uses at most one of
	// them. nil: the fabric has no tiers.
	Up    []bool
	Trace machine.Tracer
	// TrustICRC makes frames the switch builds carry a flag in place of the ICRC.
	TrustICRC bool
}

// Switch is the core. Its methods fall into three kinds: machine.Machine's inputs; the
// commands of faults and of the control plane (command.go) and SetMulticast; Stats, Groups, PortLoad,
// Occupancy and Queued, which only look.
type Switch struct {
	ports   []machine.Port
	eg      []egress
	ret     *lateItem // what is served late: an accelerator's output goes over its return links
	classes *Classes  // nil: the usual ones
	in      []ingress
	pool    *wire.Pool
	fib     FIB    // routes without the ports in dark
	routes  FIB    // as they were installed
	dark    bitset // ports whose link is not there
	// reroutes is how often fib has changed.
	reroutes uint64
	seed     uint32
	rules    Rules
	ip       uint32
	trust    bool
	trace    machine.Tracer

	buffer    buffer
	pfc       pfcState
	dog       *watchdog // nil: none
	ecn       *ecnState // nil: nothing is marked
	ecnFrom   int       // queue length above which some port may mark
	weighted  uint8     // priorities in the weighted round
	quantum   [8]int32
	turn      []turn // by port; nil: no weights
	waiting   bitset // ports with Next set
	timers    vtime.TimerTable
	groups    groupTable
	portLoad  []int32 // groups (or, as Gleam has it, nodes) that use each port
	groupsMax int
	// groupsRoom bounds them beyond that, for a while.
	groupsRoom int
	mftUsed    int // bytes of all tables, versions not counted
	// reductions is how many groups have a table for reductions.
	reductions int
	fanOut     int
	groupAge   vtime.Duration
	ageAt      vtime.Time // no group is too old before
	up         bitset     // ports to a higher tier; nil: no tiers
	cnpWindow  vtime.Duration
	// quarantine is how long a deleted group is remembered.
	quarantine vtime.Duration
	multicast  []Multicast // in order of address

	late      *lateWork  // nil: nothing is served later
	lookAside *lookAside // nil: groups are served here
	crossbar  *crossbar  // nil: packets wait at their egress

	stats Stats
}

// New returns a switch. It panics if there are no ports or more than PortsMax.
func New(c Config) *Switch {
	n := len(c.Ports)
	if n == 0 || n > PortsMax {
		panic("virtswitch: a switch has 1 to 254 ports")
	}
	s := &Switch{
		ports: c.Ports, eg: make([]egress, n), in: make([]ingress, n), pool: c.Pool, fib: c.FIB, routes: c.FIB,
		dark: newBitset(n), groupsRoom: math.MaxInt, seed: uint32(c.Seed>>32 ^ c.Seed), rules: c.Rules, ip: c.IP, trust: c.TrustICRC, trace: c.Trace,
		waiting: newBitset(n), portLoad: make([]int32, n),
		groupsMax: c.Groups, fanOut: c.FanOut, cnpWindow: c.CNPWindow, groupAge: c.GroupAge, ageAt: vtime.Never,
	}
	if s.groupsMax == 0 {
		s.groupsMax = GroupsMax
	}
	for p, up := range c.Up {
		if s.up == nil {
			s.up = newBitset(n)
		}
		if up {
			s.up.set(p)
		}
	}
	s.pfc = newPFCState(c.PFC, n, c.Buffer)
	s.buffer = buffer{limit: c.Buffer, lossyMax: c.Buffer - s.pfc.reserved(), pool: c.Buffer - s.pfc.reserved()}
	s.setWatchdog(c.Watchdog)
	s.setQuarantine()
	s.setECN(c.ECN)
	s.setWeights(c.Weights)
	s.classes = c.Classes
	s.timers = vtime.NewTimerTable(timerPorts + 2*n)
	if s.dog != nil {
		s.timers.Grow(timerPorts + 3*n)
	}
	s.setLate(c.FeedbackDelay, c.LookAside)
	s.crossbar = newCrossbar(c.Input, n)
	return s
}

// Timer slots: one for deleted groups, two per port, one per port for the watchdog, and
// one for what is served later.
const (
	timerTombstone = 0
	timerPorts     = 1
)

func (s *Switch) timerPause(port int) int    { return timerPorts + 2*port }
func (s *Switch) timerRefresh(port int) int  { return timerPorts + 2*port + 1 }
func (s *Switch) timerWatchdog(port int) int { return timerPorts + 2*len(s.ports) + port }
func (s *Switch) timerLate() int             { return timerPorts + 3*len(s.ports) }

// HandleFrame implements machine.Machine.
func (s *Switch) HandleFrame(now vtime.Time, port int, f *wire.Frame) {
	if s.crossbar == nil {
		s.handle(now, port, f)
		return
	}
	s.crossUntil(now - 1)
	s.handle(now, port, f)
	s.admit(now)
}

func (s *Switch) handle(now vtime.Time, port int, f *wire.Frame) {
	s.stats.Received++
	switch f.Kind() {
	case wire.KindRoCE:
		dst := f.DstIP()
		if !wire.IsGroup(dst) {
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
		if s.lookAside != nil && wire.IsGroup(f.DstIP()) {
			s.steer(now, port, f)
			return
		}
		s.handleMRP(now, port, f)
	default:
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

func (s *Switch) timeout(now vtime.Time) {
	if s.pfc.xoffs > 0 {
		s.settleAll(now)
	}
	for {
		slot, ok := s.timers.Due(now)
		if !ok {
			return
		}
		switch {
		case slot == timerTombstone:
			s.buryGroups(now)
		case slot == s.timerLate():
			s.lateDue(now)
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
// it is the next start of any port, since a start may make room for the neighbour (R5).
func (s *Switch) NextTimeout() (vtime.Time, bool) {
	at, armed := s.timers.Next()
	if s.pfc.xoffs > 0 {
		for p := s.waiting.next(0); p >= 0; p = s.waiting.next(p + 1) {
			if t := s.ports[p].Next; t < at {
				at, armed = t, true
			}
		}
	}
	if s.crossbar != nil && s.crossbar.next < at { // a start makes way for the packet behind (R5)
		at, armed = s.crossbar.next, true
	}
	return at, armed
}

// Settle implements machine.Machine.
func (s *Switch) Settle(until vtime.Time, port int) { s.settle(until, port) }

func (s *Switch) settleAll(until vtime.Time) {
	for p := s.waiting.next(0); p >= 0; p = s.waiting.next(p + 1) {
		s.settle(until, p)
	}
}

// forward sends a unicast frame toward its destination.
func (s *Switch) forward(now vtime.Time, in int, f *wire.Frame, dst uint32) {
	p, set := s.fib.lookup(dst)
	if p < 0 {
		switch len(set) {
		case 0:
			if isMulticast(dst) {
				s.forwardMulticast(now, in, f, dst)
				return
			}
			s.drop(now, in, f, DropNoRoute)
			return
		case 1:
			p = int(set[0])
		default:
			p = int(set[ecmp(f, s.seed, len(set))])
		}
	}
	if !f.DecTTL() {
		s.drop(now, in, f, DropTTL)
		return
	}
	c := s.arrived(f, in)
	s.out(now, p, f, &c)
}

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

// Stats returns what was counted so far.
func (s *Switch) Stats() *Stats { return &s.stats }

// Queued returns the frames waiting in the switch.
func (s *Switch) Queued() (n int) {
	for i := range s.eg {
		n += s.eg[i].queued()
	}
	if s.late != nil {
		n += len(s.late.heap)
	}
	if s.crossbar != nil {
		n += s.crossbar.frames
	}
	return n
}
