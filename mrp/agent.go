// Package mrp is the hosts' side of group registration (Cepheus §III-C, CEP-3, CEP-8): the
// agent that answers for a member, and the registrar on the leader's host that installs a
// group in the fabric and activates or deletes it (the paper calls it controller).
//
// It is a protocol core without I/O, called by the NIC it sits on (virtrnic.Stack).
package mrp

import (
	"cmp"
	"slices"

	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// Sender takes complete frames; a NIC is one.
type Sender interface {
	SendFrame(now vtime.Time, f *wire.Frame)
}

// Config describes an agent.
type Config struct {
	IP     uint32
	IPv6   bool
	VLAN   *wire.VLAN // tag of all packets; nil: none
	Pool   *wire.Pool
	Sender Sender
	// RetryAfter is how long the registrar waits for confirmations before it asks
	// again, RetriesMax how often it does; 0 chooses 10 ms and 5 (CEP-18).
	RetryAfter vtime.Duration
	RetriesMax int
}

// Stats counts what an agent did.
type Stats struct {
	Sent, Received uint64
	Confirmed      uint64 // confirmations sent as a member
	Repeats        uint64 // rounds the registrar had to repeat
	Ignored        uint64 // packets that concern no group of this host
	// DeletionsGivenUp counts those that not all members have confirmed.
	DeletionsGivenUp uint64

	Fallbacks, Returns, ProbesFailed, MembersLost uint64 // by Turn
}

// Turn is what the software of a host has done about a group whose multicast did not work.
// The agent only counts it.
type Turn uint8

// Turns of the source of a message.
const (
	Fallback    Turn = iota // it went over to unicast
	Return                  // it went back to multicast
	ProbeFailed             // it tried a group that was registered again, and did not use it
	MemberLost              // it gave up a member
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

// traffic is DSCP 48: registration does not wait behind paused data.
const traffic = 48 << 2

// Agent is the registration agent of one host.
type Agent struct {
	ip         uint32
	v6         bool
	vlan       *wire.VLAN
	pool       *wire.Pool
	sender     Sender
	retryAfter vtime.Duration
	retriesMax int

	member  map[uint32]wire.QPN // by McstID: the queue pair that joined
	proxy   wire.QPN            // queue pair that joins every group that lists it; valid if answers
	answers bool                // there is a proxy
	led     []*registration     // groups this host leads, by McstID
	begun   map[uint32]uint32   // by McstID: the next attempt, of groups this host led and has forgotten
	next    vtime.Time          // first repeat due
	changes uint64
	stats   Stats
}

// New returns an agent.
func New(c Config) *Agent {
	a := &Agent{
		ip: c.IP, v6: c.IPv6, vlan: c.VLAN, pool: c.Pool, sender: c.Sender,
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

// Join makes the agent answer for a queue pair of this host in a group. Packets of
// groups that nobody joined are ignored.
func (a *Agent) Join(mcstID uint32, qpn wire.QPN) { a.member[mcstID] = qpn }

// Answer makes the agent answer for a queue pair of a device that knows nothing of
// registration: in every group that lists it.
func (a *Agent) Answer(qpn wire.QPN) { a.proxy, a.answers = qpn, true }

// Leave undoes Join. If this host leads the group, its state is forgotten as soon as nothing
// is left to do for it.
func (a *Agent) Leave(mcstID uint32) {
	delete(a.member, mcstID)
	if r := a.find(mcstID); r != nil {
		r.left = true
		a.forget(r)
	}
}

// Groups returns how many groups the agent answers for as a member, and how many this host
// leads or still deletes.
func (a *Agent) Groups() (member, led int) { return len(a.member), len(a.led) }

// Restart makes the agent forget all groups, those it leads too.
func (a *Agent) Restart() {
	clear(a.member)
	clear(a.begun)
	a.led, a.next = nil, vtime.Never
	a.changes++
}

// Changes returns how often the state of a led group has changed. To compare it with an
// earlier value is a cheap way to find out that something has.
func (a *Agent) Changes() uint64 { return a.changes }

// Stats returns what was counted so far.
func (a *Agent) Stats() Stats { return a.stats }

// HandleFrame implements virtrnic.Stack. What is not registration is dropped.
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
	case wire.IsGroup(dst) && p.Flags&(wire.MRPConfirm|wire.MRPError) == 0:
		a.handleMember(now, dst, src, p)
	case dst == a.ip && p.Flags&wire.MRPConfirm != 0:
		a.handleConfirm(now, src, p)
	case dst == a.ip && p.Flags == wire.MRPError:
		a.handleError(now, p)
	default:
		a.stats.Ignored++
	}
}

// handleMember answers the leader for this host's member of the group. Registration
// is answered only if it lists this host (CEP-17).
func (a *Agent) handleMember(now vtime.Time, id, leader uint32, p wire.MRPPacket) {
	listing := p.Flags&^(wire.MRPMRUpdate|wire.MRPReduce) == 0
	if a.answers && listing && find(p, a.ip, a.proxy) >= 0 {
		a.Join(id, a.proxy)
	}
	qpn, joined := a.member[id]
	at := find(p, a.ip, qpn)
	// That a group is to be forgotten is confirmed by those who know nothing of it, too: the
	// switches on the way here have heard it.
	if !joined && p.Flags != wire.MRPDelete || listing && at < 0 {
		a.stats.Ignored++
		return
	}
	a.stats.Confirmed++
	h := p.MRPHeader
	h.Flags |= wire.MRPConfirm
	c := record{MRPRecord: wire.MRPRecord{IP: id, QPN: qpn}}
	if p.Flags == wire.MRPMRUpdate { // says which regions it confirms
		c.Flags, c.MRPRegion = p.Record(at).Flags, p.Region(at)
	}
	a.send(now, leader, h, []record{c})
}

// find returns the record of a queue pair, or -1.
func find(p wire.MRPPacket, ip uint32, qpn wire.QPN) int {
	for i := range p.Len() {
		if r := p.Record(i); r.IP == ip && r.QPN == qpn {
			return i
		}
	}
	return -1
}

// record is one record of a packet; its region is sent with MRPMRUpdate.
type record struct {
	wire.MRPRecord
	wire.MRPRegion
}

// send makes and sends one MRP packet.
func (a *Agent) send(now vtime.Time, dst uint32, h wire.MRPHeader, records []record) {
	mac := wire.HostMAC(dst)
	if wire.IsGroup(dst) {
		mac = wire.GroupMAC(dst)
	}
	e := wire.NewEnvelope(wire.Flow{
		SrcMAC: wire.HostMAC(a.ip), DstMAC: mac, VLAN: a.vlan, IPv6: a.v6, Src: a.ip, Dst: dst,
		Traffic: traffic, TTL: 64, SrcPort: wire.PortMRP, DstPort: wire.PortMRP,
	})
	f := a.pool.Get()
	f.StartDatagram(&e)
	b := a.pool.Block()
	buf := h.AppendTo(b.Fill(wire.BlockCap)[:0])
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

// find returns the led group, or nil.
func (a *Agent) find(id uint32) *registration {
	i, ok := slices.BinarySearchFunc(a.led, id, func(r *registration, id uint32) int { return cmp.Compare(r.id, id) })
	if !ok {
		return nil
	}
	return a.led[i]
}
