// SPDX-License-Identifier: Apache-2.0

// Package mrp is the hosts' side of multicast group registration (Cepheus §III-C, CEP-3, CEP-8). An
// Agent confirms registrations for the members on its host. For the groups that its host leads it is
// also the registrar, which installs a group in the fabric, activates it and deletes it. The paper
// calls the registrar the controller.
//
// Package mrp is a protocol core without I/O. The NIC of the host calls it (virtrnic.Stack).
//
// An Agent keeps these invariants:
//
//   - led is sorted by McstID and holds at most one registration per McstID.
//   - A registration in a phase that members must confirm has a deadline (retryAt) unless all have
//     confirmed, and next is the earliest deadline of all registrations.
//   - While a phase awaits confirmations, waiting holds exactly the members that have not confirmed
//     it in the present attempt. Confirmations of another attempt are ignored.
//   - The attempt numbers of a McstID never repeat on a host until it restarts.
//   - changes grows with every change of a registration's phase.
package mrp

import (
	"cmp"
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Sender sends complete frames and takes ownership of them. A NIC is a Sender.
type Sender interface {
	SendFrame(now vtime.Time, f *wire.Frame)
}

// Config describes an agent.
type Config struct {
	IP     uint32
	IPv6   bool
	Groups wire.GroupRange // of the fabric
	VLAN   *wire.VLAN      // tag of all packets, or nil
	Pool   *wire.Pool
	Sender Sender
	// RetryAfter is the time that the registrar waits for confirmations before it repeats a request,
	// and RetriesMax the number of repeats. 0 selects 10 ms and 5 (CEP-18).
	RetryAfter vtime.Duration
	RetriesMax int
}

// Stats holds the counters of an agent.
type Stats struct {
	Sent, Received uint64 // packets
	Confirmed      uint64 // confirmations sent for members
	Repeats        uint64 // requests that the registrar repeated, new attempts included
	Ignored        uint64 // packets received that concern no group of this host
	// DeletionsGivenUp counts the deletions that not all members have confirmed.
	DeletionsGivenUp uint64

	Fallbacks, Returns, ProbesFailed, MembersLost uint64 // calls of Note, by Turn
}

// Turn is a decision of a host's software about a group whose multicast has failed. The agent only
// counts it.
type Turn uint8

// Turns of the source of a message.
const (
	Fallback    Turn = iota // the source changed to unicast
	Return                  // the source changed back to multicast
	ProbeFailed             // the source tried a newly registered group and did not use it
	MemberLost              // the source gave up a member
)

// Note counts a turn.
func (a *Agent) Note(t Turn) {
	switch t {
	case Fallback:
		a.stats.Fallbacks++
	case Return:
		a.stats.Returns++
	case ProbeFailed:
		a.stats.ProbesFailed++
	case MemberLost:
		a.stats.MembersLost++
	}
}

// traffic is the traffic class of MRP packets, DSCP 48, so that registration does not wait behind
// paused data.
const traffic = 48 << 2

// Agent is the registration agent of one host.
type Agent struct {
	ip         uint32
	v6         bool
	ids        wire.GroupRange // of McstIDs
	vlan       *wire.VLAN
	pool       *wire.Pool
	sender     Sender
	retryAfter vtime.Duration
	retriesMax int

	member  map[uint32]wire.QPN // by McstID: the queue pair that has joined
	proxy   wire.QPN            // queue pair that joins every group which lists it; valid if answers is set
	answers bool                // Answer has been called
	led     []*registration     // groups that this host leads, sorted by McstID
	begun   map[uint32]uint32   // by McstID of a group that this host led and has forgotten: the next attempt
	next    vtime.Time          // earliest retryAt of led, or vtime.Never
	changes uint64              // result of Changes
	stats   Stats
}

// New returns an agent without groups.
func New(c Config) *Agent {
	a := &Agent{
		ip: c.IP, v6: c.IPv6, ids: c.Groups, vlan: c.VLAN, pool: c.Pool, sender: c.Sender,
		retryAfter: c.RetryAfter, retriesMax: c.RetriesMax, member: map[uint32]wire.QPN{}, begun: map[uint32]uint32{}, next: vtime.Never,
	}
	if a.retryAfter == 0 {
		a.retryAfter = 10 * vtime.Millisecond
	}
	if a.retriesMax == 0 {
		a.retriesMax = 5
	}
	return a
}

// SetPool makes the agent take frames from a pool and give them back there.
func (a *Agent) SetPool(p *wire.Pool) { a.pool = p }

// Join makes the agent confirm registrations of a group for a queue pair of this host. The agent
// ignores the packets of groups that no queue pair has joined.
func (a *Agent) Join(mcstID uint32, qpn wire.QPN) { a.member[mcstID] = qpn }

// Answer makes the agent confirm registrations for the queue pair of a device that does not support
// registration, in every group that lists the queue pair.
func (a *Agent) Answer(qpn wire.QPN) { a.proxy, a.answers = qpn, true }

// Leave undoes Join. If this host leads the group, the agent drops the group's state once its
// deletion is over.
func (a *Agent) Leave(mcstID uint32) {
	delete(a.member, mcstID)
	if r := a.find(mcstID); r != nil {
		r.left = true
		a.forget(r)
	}
}

// Groups returns the number of groups that queue pairs of this host have joined, and the number of
// groups that this host leads or is still deleting.
func (a *Agent) Groups() (member, led int) { return len(a.member), len(a.led) }

// Restart drops the state of all groups, as a crash of the host does.
func (a *Agent) Restart() {
	clear(a.member)
	clear(a.begun)
	a.led, a.next = nil, vtime.Never
	a.changes++
}

// Changes returns the number of changes of the phases of led groups. A caller compares it with an
// earlier value to find out whether a phase has changed since.
func (a *Agent) Changes() uint64 { return a.changes }

// Stats returns the counters.
func (a *Agent) Stats() Stats { return a.stats }

// HandleFrame implements virtrnic.Stack. It drops frames that are not registration packets.
func (a *Agent) HandleFrame(now vtime.Time, f *wire.Frame) {
	defer a.pool.Put(f)
	a.stats.Received++
	if f.Kind() != wire.KindMRP || f.Payload() == nil || f.IPv6() != a.v6 {
		a.stats.Ignored++
		return
	}
	p, err := wire.ParseMRP(f.Payload().Bytes())
	if err != nil {
		a.stats.Ignored++
		return
	}
	dst, src := f.DstIP(), f.SrcIP()
	switch {
	case a.ids.Has(dst) && p.Flags&(wire.MRPConfirm|wire.MRPError) == 0:
		a.handleMember(now, dst, src, p)
	case dst == a.ip && p.Flags&wire.MRPConfirm != 0:
		a.handleConfirm(now, src, p)
	case dst == a.ip && p.Flags == wire.MRPError:
		a.handleError(now, p)
	default:
		a.stats.Ignored++
	}
}

// handleMember confirms a request of the leader for this host's member of the group. A
// registration is confirmed only if it lists the member (CEP-17).
func (a *Agent) handleMember(now vtime.Time, id, leader uint32, p wire.MRPPacket) {
	listing := p.Flags&^(wire.MRPMRUpdate|wire.MRPReduce) == 0
	if a.answers && listing && find(p, a.ip, a.proxy) >= 0 {
		a.Join(id, a.proxy)
	}
	qpn, joined := a.member[id]
	at := find(p, a.ip, qpn)
	// A deletion is confirmed even by a host that has not joined the group, because the switches on
	// the path to it have received the deletion.
	if !joined && p.Flags != wire.MRPDelete || listing && at < 0 {
		a.stats.Ignored++
		return
	}
	a.stats.Confirmed++
	h := p.MRPHeader
	h.Flags |= wire.MRPConfirm
	c := record{MRPRecord: wire.MRPRecord{IP: id, QPN: qpn}}
	if p.Flags == wire.MRPMRUpdate { // the confirmation names the confirmed region
		c.Flags, c.MRPRegion = p.Record(at).Flags, p.Region(at)
	}
	a.send(now, leader, h, []record{c})
}

// find returns the index of a queue pair's record in a packet, or -1.
func find(p wire.MRPPacket, ip uint32, qpn wire.QPN) int {
	for i := range p.Len() {
		if r := p.Record(i); r.IP == ip && r.QPN == qpn {
			return i
		}
	}
	return -1
}

// record is one record of a packet. Its region is sent in packets with MRPMRUpdate only.
type record struct {
	wire.MRPRecord
	wire.MRPRegion
}

// send builds and sends one MRP packet.
func (a *Agent) send(now vtime.Time, dst uint32, h wire.MRPHeader, records []record) {
	mac := wire.HostMAC(dst)
	if a.ids.Has(dst) {
		mac = wire.GroupMAC(dst)
	}
	e := wire.NewEnvelope(wire.Flow{
		SrcMAC: wire.HostMAC(a.ip), DstMAC: mac, VLAN: a.vlan, IPv6: a.v6, Src: a.ip, Dst: dst,
		Traffic: traffic, TTL: 64, SrcPort: wire.PortMRP, DstPort: wire.PortMRP,
	})
	f := a.pool.Get()
	f.StartDatagram(&e)
	n := wire.MRPHeaderLen + len(records)*(wire.MRPRecordLen+wire.MRPRegionLen) // at most
	b := a.pool.BlockFor(n)
	buf := h.AppendTo(b.Fill(0))
	for _, r := range records {
		buf = r.MRPRecord.AppendTo(buf)
		if h.Flags&wire.MRPMRUpdate != 0 {
			buf = r.MRPRegion.AppendTo(buf)
		}
	}
	b.Fill(len(buf))
	f.SetPayload(b)
	f.Seal(0, false)
	a.stats.Sent++
	a.sender.SendFrame(now, f)
}

// find returns the registration of a group that this host leads, or nil.
func (a *Agent) find(id uint32) *registration {
	i, ok := slices.BinarySearchFunc(a.led, id, func(r *registration, id uint32) int { return cmp.Compare(r.id, id) })
	if !ok {
		return nil
	}
	return a.led[i]
}
