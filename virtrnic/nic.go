// SPDX-License-Identifier: Apache-2.0

// Package virtrnic is a RoCEv2 network adapter: the services RC, UC and UD (GEN-1) with their verbs
// (GEN-2), byte-exact on the wire. The names of its calls follow libibverbs; docs/verbs.md lists their
// guarantees.
//
// No part of it has code for in-network multicast (GEN-3): a member of a group has an ordinary queue
// pair whose remote address is the group's. AttachMcast is the verbs' own multicast of UD. The
// extensions are SyncPSN, RegMRAs and AttachUC.
//
// A NIC is a machine.Machine with one port. Its other input is calls of verbs, which take the
// time as an argument, and its other output is completions.
package virtrnic

import (
	"net/netip"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Stack handles the host's other traffic, such as registration and address resolution. It
// sends through NIC.SendFrame.
type Stack interface {
	// HandleFrame takes a frame addressed to the host that is neither RoCE nor PFC.
	HandleFrame(now vtime.Time, f *wire.Frame)
	// HandleTimeout is called at or after NextTimeout.
	HandleTimeout(now vtime.Time)
	NextTimeout() (vtime.Time, bool)
}

// LinkWatcher is a Stack that is notified when the NIC's link is up again.
type LinkWatcher interface{ LinkUp(now vtime.Time) }

// Config describes a NIC: the settings that it shares with the others of its lab, and its own.
type Config struct {
	Settings
	IP uint32
	// Alias is the first of Aliases consecutive addresses that are the NIC's as well: it
	// receives packets that are sent to them.
	Alias   uint32
	Aliases int
	Port    *machine.Port
	Pool    *wire.Pool
	// MTU is the port's MTU, the most a datagram of UD carries; 0: 4096.
	MTU int
	// TrustICRC makes frames carry a flag in place of the ICRC, which saves the time of
	// computing it in large phantom runs.
	TrustICRC bool
	IPv6      bool
	Groups    wire.GroupRange // of the fabric
	// Raw passes RoCE packets to the stack, too. It is for the port of a device that has its
	// queue pairs elsewhere.
	Raw     bool
	VLAN    uint16     // of all packets; 0: untagged
	Classes *[64]uint8 // priorities by DSCP; nil: the upper three bits
	// Lossy has a bit for each priority without PFC: the NIC sends no pause frames for it and
	// ignores those that it gets.
	Lossy uint8
	Keys  prng.Stream // of the random part of memory keys
	Trace machine.Tracer
}

// NIC is the core. Its methods fall into three kinds: those of machine.Machine; the verbs, such
// as CreateQP, PostSend and PollCQ; and the commands of the host around it (SendFrame,
// SendPause, SetStack) and of faults (Stall, SetIntake, SetCarrier, Restart).
//
// The fields that each packet needs are in the first cache lines (TestHotFields): a packet for a group
// reaches hundreds of NICs, none of which is in the cache.
type NIC struct {
	port    *machine.Port
	pool    *wire.Pool
	intake  *intake // nil: arriving frames are taken at once
	qps     []*QP   // by index; nil: free
	ip      uint32
	alias   uint32
	aliases uint32 // number of addresses from alias on that are the NIC's
	vlan    uint16
	ipv6    bool
	raw     bool

	timers vtime.TimerTable
	stack  Stack
	// completions counts the completions and asynchronous events ever produced.
	completions uint64
	// unacked is the number of work requests of UC and UD in send queues. While there are any, the port's next
	// start is a deadline, since they complete when they start (machine: starts are deadlines).
	unacked int32
	// turns is set if packets may be addressed to the NIC itself, and back holds those of them that are on their
	// way back (loopback.go).
	turns   bool
	trust   bool
	credits bool // Settings.Credits
	lossy   uint8

	stats    Stats
	_        [8]byte // tx begins a cache line
	tx       transmit
	mrs      []*MR // by index; nil: free
	window   uint64
	ackEvery uint32
	mtu      int
	digest   uint64 // hash over all completions and their times
	failures uint64 // completions without success

	mac      wire.MAC
	groups   wire.GroupRange
	classes  *[64]uint8
	trace    machine.Tracer
	requests machine.RequestTracer                        // trace, if it takes reports of work requests; else nil
	gsi      func(now vtime.Time, src uint32, mad []byte) // takes management datagrams, or nil
	gsiPSN   wire.PSN

	tables
	// nextVA is the virtual address of the next region of RegMR. Invariant: no such region
	// reaches beyond it, so regions of RegMR never overlap.
	nextVA   uint64
	keys     prng.Stream
	back     queue.FIFO[turned]
	returned func(now vtime.Time, f *wire.Frame) // nil: the NIC takes them itself
	fence    func(q *QP) uint64                  // see SetFence; nil: the NIC's writes are in memory immediately

	// mcast is, by group, the queue pairs attached to it. It is walked only for a sum, whose
	// order cannot show.
	mcast  map[uint32][]*QP
	events queue.FIFO[AsyncEvent]
	// deadEvents is the number of events of queue pairs that are destroyed. Invariant: it counts only
	// those events whose queue pair is gone.
	deadEvents int
	spare      []*extras    // of finished work requests, for the next ones
	scratch    [GRHLen]byte // bytes to be written to memory that are not a frame's payload

	dcqcn *DCQCN // nil: no congestion control
	line  uint64 // rate of the port in bits per second; set only with dcqcn
	irn   *IRN   // nil: go-back-N
	// reordered is the number of request packets that wait for their turn. Invariant: it is the sum
	// over the reorder buffers of all queue pairs.
	reordered int

	chosen map[uint32]*MR // regions by key (RegMRAs); nil: there are none
}

// Timer slots: the end of a received pause, the intake, frames to the NIC itself, then two per queue pair.
const (
	timerPause  = 0
	timerIntake = 1
	timerBack   = 2
	timerQPs    = 3
)

// New returns a NIC.
func New(c Config) *NIC {
	window := uint64(maxOutstanding)
	if c.Window > 0 {
		window = min(window, uint64(c.Window))
	}
	mtu := MaxMTU
	if c.MTU > 0 {
		mtu = min(mtu, c.MTU)
	}
	n := &NIC{
		mtu: mtu, window: window, ip: c.IP,
		alias: c.Alias, aliases: uint32(c.Aliases), mac: wire.HostMAC(c.IP), port: c.Port, pool: c.Pool, ackEvery: uint32(max(1, c.AckEvery)),
		trust: c.TrustICRC, ipv6: c.IPv6, groups: c.Groups, raw: c.Raw, vlan: c.VLAN, classes: c.Classes, lossy: c.Lossy, trace: c.Trace, keys: c.Keys,
		nextVA: 1 << 20, timers: vtime.NewTimerTable(timerQPs),
	}
	n.requests, _ = c.Trace.(machine.RequestTracer)
	if c.IRN != nil {
		irn := *c.IRN
		n.irn = &irn
	}
	n.tx.weights = newWeights(c.Weights)
	n.credits = c.Credits
	if c.Congestion != nil {
		n.line = lineRate(c.Port)
		n.dcqcn = c.Congestion.forLine(n.line)
	}
	return n
}

// SetStack sets the handler of the host's other traffic.
func (n *NIC) SetStack(s Stack) { n.stack = s }

// Stack returns the handler of the host's other traffic, or nil.
func (n *NIC) Stack() Stack { return n.stack }

// Reporter returns who the host is to switches that look at its membership of groups.
func (n *NIC) Reporter() wire.Reporter {
	return wire.Reporter{IP: n.ip, IPv6: n.ipv6, VLAN: n.tag(n.priority(wire.MembershipTraffic))}
}

// IP returns the NIC's address.
func (n *NIC) IP() uint32 { return n.ip }

// LineRate returns the rate of the NIC's port in bits per second.
func (n *NIC) LineRate() uint64 { return lineRate(n.port) }

// lineRate returns a port's rate in bits per second, computed from the time of 2^20 bytes,
// which is exact for all usual rates.
func lineRate(p *machine.Port) uint64 { return 8 << 20 * psPerSecond / uint64(p.Serialize(1<<20)) }

// SetPool makes the NIC take frames from a pool and give them back there, also those that it holds now. No frame may have a
// payload then: a block is put back where it was taken from.
func (n *NIC) SetPool(p *wire.Pool) { n.pool = p }

// Stats returns the NIC's counters.
func (n *NIC) Stats() *Stats { return &n.stats }

// Completions returns the number of completions and asynchronous events ever produced. A caller that
// compares it with an earlier value cheaply finds out that there are new ones.
func (n *NIC) Completions() uint64 { return n.completions }

// Failures returns the number of completions without success ever produced.
func (n *NIC) Failures() uint64 { return n.failures }

// Digest returns a hash over the times and contents of all completions.
func (n *NIC) Digest() uint64 { return n.digest }

// HandleFrame implements machine.Machine.
func (n *NIC) HandleFrame(now vtime.Time, _ int, f *wire.Frame) {
	n.settleBefore(now)
	n.stats.RcvdPkts++
	switch {
	case n.intake != nil && n.holdFrame(now, f):
	case f.Kind() == wire.KindRoCE && !n.raw: // a shortcut past takeFrame for most frames
		n.receive(now, f)
	default:
		n.takeFrame(now, f)
	}
	n.start(now)
}

// HandleTimeout implements machine.Machine.
func (n *NIC) HandleTimeout(now vtime.Time) {
	n.settle(now) // arrivals, starts, timers: starts at now precede timers
	for !n.tx.stalled {
		slot, ok := n.timers.Due(now)
		if !ok {
			break
		}
		if slot < timerQPs {
			n.ownTimer(now, slot)
			continue
		}
		q := n.slots[(slot-timerQPs)/2]
		switch {
		case q == nil:
		case slot == q.timerRTO():
			q.sq.timedOut(now, q)
		default:
			q.sq.rnrOver(now, q)
		}
	}
	if n.stack != nil {
		if at, armed := n.stack.NextTimeout(); armed && at <= now {
			n.stack.HandleTimeout(now)
		}
	}
	n.start(now)
}

// ownTimer serves a timer that is not a queue pair's.
func (n *NIC) ownTimer(now vtime.Time, slot int) {
	switch {
	case slot == timerPause:
		n.pauseExpired(now)
	case slot == timerBack:
		n.takeBack(now)
	case n.intake != nil:
		n.takeDue(now)
	}
}

// NextTimeout implements machine.Machine.
func (n *NIC) NextTimeout() (vtime.Time, bool) {
	at, armed := n.NextOwnTimeout()
	if n.stack != nil {
		if t, ok := n.stack.NextTimeout(); ok && t < at {
			return t, true
		}
	}
	return at, armed
}

// NextOwnTimeout is NextTimeout without the deadlines of the host's other traffic, which packets for queue pairs do not
// change.
func (n *NIC) NextOwnTimeout() (vtime.Time, bool) {
	at, armed := n.timers.Next()
	if n.tx.stalled {
		at, armed = vtime.Never, false
	}
	if (n.unacked > 0 || n.turns) && n.port.Next() < at {
		// Starts are deadlines: a request of UC or UD completes when it starts on the wire, and a packet to the NIC itself
		// comes back by a timer.
		at, armed = n.port.Next(), true
	}
	return at, armed
}

// Settle implements machine.Machine.
func (n *NIC) Settle(until vtime.Time, _ int) { n.settle(until) }

// receive checks a RoCE packet as a NIC does before it touches a queue pair: address
// (family and VLAN included), version, queue pair, service, state, peer, partition, ICRC.
func (n *NIC) receive(now vtime.Time, f *wire.Frame) {
	q, why := n.demux(f)
	if q == nil {
		if why == DropNotMine && wire.IsMulticast(f.DstIP()) && n.mine(f) {
			n.multicast(now, f)
			return
		}
		if why == DropNoQP && n.gsi != nil && f.DestQP() == wire.QPNGSI {
			n.general(now, f)
			return
		}
		n.drop(now, f, why)
		return
	}
	if q.cc != nil && n.congested(now, q, f) {
		return
	}
	if f.OpCode().Is(wire.OpResponse) {
		q.sq.handleResponse(now, q, f)
		return
	}
	switch q.service {
	case wire.RC:
		if q.order != nil && (f.Selective() || q.order.n > 0) {
			n.takeRequest(now, q, f)
			return
		}
		q.rq.handleRequest(now, q, f)
	case wire.UC:
		q.rq.handleUC(now, q, f)
	default:
		q.rq.handleDatagram(now, q, f)
	}
}

// multicast passes a packet to the queue pairs of its service that are attached to its group.
// Each of them that may receive it gets one copy, as rxe does with datagrams.
func (n *NIC) multicast(now vtime.Time, f *wire.Frame) {
	members := n.mcast[f.DstIP()]
	why := DropNoGroup
	switch op := f.OpCode(); {
	case f.Version() != 0:
		why = DropVersion
	case f.DestQP() != wire.QPNMulticast:
		why = DropNoQP
	case op.Service() != wire.UD && op.Service() != wire.UC || !op.Is(wire.OpAssigned):
		why = DropService
	case f.PKey()&0x7fff != 0x7fff:
		why = DropPKey
	case !f.CheckICRC():
		why = DropICRC
	}
	if why != DropNoGroup {
		members = nil
	}
	var last *QP
	own := f.SrcIP() == n.ip
	for _, q := range members {
		switch {
		case own && q.service == wire.UD && !q.hears(f):
			continue
		case q.service != f.OpCode().Service():
			why = DropService
			continue
		case !q.receives() || q.service == wire.UD && f.DETH().QKey != q.attr.QKey:
			why = DropQKey
			continue
		case q.service == wire.UC && f.SrcIP() != q.attr.AV.DGID && f.DstIP() != q.attr.AV.DGID:
			why = DropPeer
			continue
		}
		if last != nil {
			n.stats.Made++
			last.takeMulticast(now, n.pool.Clone(f))
		}
		last = q
	}
	if last == nil {
		n.drop(now, f, why)
		return
	}
	last.takeMulticast(now, f)
}

// takeMulticast handles a packet that came by a multicast group.
func (q *QP) takeMulticast(now vtime.Time, f *wire.Frame) {
	if q.service == wire.UC {
		q.rq.handleUC(now, q, f)
		return
	}
	q.rq.handleDatagram(now, q, f)
}

// receives reports whether the queue pair takes requests.
func (q *QP) receives() bool {
	return q.state == StateRTR || q.state == StateRTS || q.state == StateSQD || q.state == StateSQE
}

// Addr returns the address that stands for ip in the NIC's fabric.
func (n *NIC) Addr(ip uint32) netip.Addr { return wire.AddrIn(n.ipv6, ip) }

// mine reports whether the packet has the address family and the VLAN of the NIC.
func (n *NIC) mine(f *wire.Frame) bool { return f.IPv6() == n.ipv6 && f.VLANID() == n.vlan }

func (n *NIC) demux(f *wire.Frame) (*QP, DropReason) {
	if dst := f.DstIP(); dst != n.ip && dst-n.alias >= n.aliases || !n.mine(f) {
		return nil, DropNotMine
	}
	op, version, pkey, dst := f.Transport()
	if version != 0 {
		return nil, DropVersion
	}
	q := n.qp(dst)
	if q == nil {
		return nil, DropNoQP
	}
	if (op.Service() != q.service || !op.Is(wire.OpAssigned)) && (op != wire.OpCNP || q.cc == nil) {
		return nil, DropService
	}
	switch q.state {
	case StateRTS, StateSQD, StateSQE:
	case StateRTR:
		if op.Is(wire.OpResponse) {
			return nil, DropState
		}
	default:
		return nil, DropState
	}
	if f.SrcIP() != q.attr.AV.DGID && q.service != wire.UD {
		return nil, DropPeer
	}
	if pkey&0x7fff != 0x7fff {
		return nil, DropPKey
	}
	if !f.CheckICRC() {
		return nil, DropICRC
	}
	if q.state == StateRTR && !q.established {
		q.established = true
		n.event(EventCommEst, q)
	}
	return q, 0
}

func (n *NIC) drop(now vtime.Time, f *wire.Frame, why DropReason) {
	n.stats.Drops[why]++
	if n.trace != nil && why != DropDuplicate && why != DropSequence {
		e := machine.Event{Kind: machine.EventDrop, Text: why.String()}
		if f.Kind() == wire.KindRoCE {
			e.QP, e.PSN = f.DestQP(), f.PSN()
		}
		n.trace.Trace(now, e)
	}
	n.pool.Put(f)
}

// consume takes back a frame that has been handled.
func (n *NIC) consume(f *wire.Frame) {
	n.stats.Delivered++
	n.pool.Put(f)
}

// envelope lays out the headers below the BTH of a queue pair's packets. The UDP source port
// is constant per queue pair and differs between them, so that a flow keeps its path and
// flows spread over paths (the kernel's rdma_get_udp_sport).
func (n *NIC) envelope(q *QP) (e wire.Envelope) {
	n.address(&e, q)
	return e
}

// address makes e the envelope of a queue pair's packets.
func (n *NIC) address(e *wire.Envelope, q *QP) {
	n.layOut(e, q, q.attr.AV.TrafficClass)
	e.Connect(q.attr.DestQPN)
}

// layOut makes e the envelope of packets to a queue pair's peer, without the peer's queue pair.
func (n *NIC) layOut(e *wire.Envelope, q *QP, traffic uint8) {
	label := q.attr.AV.FlowLabel & 0xfffff
	if label == 0 {
		v := uint64(q.num) * uint64(q.attr.DestQPN)
		v ^= v >> 20
		v ^= v >> 40
		label = uint32(v & 0xfffff)
	}
	sport := uint16(label&0x3fff^(label&0xfc000)>>14) | 0xc000
	hops := q.attr.AV.HopLimit
	if hops == 0 {
		hops = 64
	}
	e.Lay(&wire.Flow{
		SrcMAC: n.mac, DstMAC: n.neighbour(q.attr.AV.DGID), VLAN: n.tag(n.priority(traffic)), IPv6: n.ipv6, Label: q.attr.AV.FlowLabel,
		Src: n.ip, Dst: q.attr.AV.DGID, Traffic: traffic, TTL: hops, SrcPort: sport, DstPort: wire.PortRoCEv2,
	})
}

// neighbour returns the MAC address of an IP address, which follows from the address plan
// without ARP.
func (n *NIC) neighbour(ip uint32) wire.MAC {
	switch {
	case n.groups.Has(ip):
		return wire.GroupMAC(ip)
	case wire.IsMulticast(ip):
		return wire.MulticastMAC(n.ipv6, ip)
	}
	return wire.HostMAC(ip)
}
