// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// group is the multicast forwarding table (MFT) of one group (Cepheus §III-B1, CEP-19). The path index
// is port -> path; the path table is split into the aggregation's columns and the rest.
type group struct {
	id          uint32  // McstID
	index       []uint8 // by port: 1 + path, 0 if the port is not in the tree
	path        []path
	aggregation               // its slices are by path, too, and as long as path
	active      bool          // data may pass
	regions     bool          // the table has room for memory regions
	reduce      *reduction    // nil: the group replicates
	forgetAt    vtime.Time    // when the deleted group is forgotten; 0: it is not deleted
	used        vtime.Time    // when a packet of the group came last
	ingress     int           // the only port by which registration packets of the group may come
	attempt     uint32        // number of the registration attempt that the paths belong to
	reroutes    uint64        // Switch.reroutes when that attempt began
	env         wire.Envelope // of feedback that this switch makes
	envFor      envelopeKey
	traffic     uint8 // DSCP and ECN of the data seen last
	cnp         cnpFilter
}

// path is one entry of the path table: an attached host or a neighbouring switch.
type path struct {
	port    int
	host    bool
	ip      uint32 // host only
	qpn     wire.QPN
	regions *regions    // host only: where WRITEs land; nil: at the address that they carry
	bridge  wire.Bridge // data to a host
	nodes   int32       // nodes registered over this path, for Gleam's port load
	cnps    uint32      // congestion notifications from this path, halved with every window
}

type envelopeKey struct {
	dst     uint32
	traffic uint8
	tag     uint32
}

// groupTable finds a group by the low 16 bits of its McstID in two loads.
type groupTable struct {
	page [256]*[256]*group
	n    int
}

func (t *groupTable) get(id uint32) *group {
	if p := t.page[id>>8&0xff]; p != nil {
		return p[id&0xff]
	}
	return nil
}

func (t *groupTable) put(g *group) {
	p := t.page[g.id>>8&0xff]
	if p == nil {
		p = new([256]*group)
		t.page[g.id>>8&0xff] = p
	}
	p[g.id&0xff] = g
	t.n++
}

func (t *groupTable) remove(g *group) {
	t.page[g.id>>8&0xff][g.id&0xff] = nil
	t.n--
}

// each visits all groups in order of their McstID.
func (t *groupTable) each(f func(*group)) {
	for _, p := range t.page {
		if p == nil {
			continue
		}
		for _, g := range p {
			if g != nil {
				f(g)
			}
		}
	}
}

// MFTBytes returns the packed size of one group's table in a switch of the given
// number of ports (CEP-21): a path index of 1 byte and a path table entry of 10 (IP 4,
// QPN 3, AckPSN 3) per port, AggAckPSN 3, AckOutPort 1 and MePSN 3. With memory regions
// (VA 8, R_Key 4) an entry has 12 more. It does not depend on the group's size.
func MFTBytes(ports int, memoryRegions bool) int {
	entry := 10
	if memoryRegions {
		entry += 12
	}
	return ports*(1+entry) + 3 + 1 + 3
}

// GleamTableBytes returns the size of one group's table as Gleam lays it out (GLE-2): an
// entry of 14 bytes (port 1, type 1, IP 4, QPN 4, PSN 4) per port and no index. With memory
// regions an entry has 12 more, as in MFTBytes.
func GleamTableBytes(ports int, memoryRegions bool) int {
	if memoryRegions {
		return (14 + 12) * ports
	}
	return 14 * ports
}

// tableBytes returns the size of one group's table in this switch, by the layout of its rules.
func (s *Switch) tableBytes(memoryRegions bool) int {
	if s.rules.EntryList {
		return GleamTableBytes(len(s.ports), memoryRegions)
	}
	return MFTBytes(len(s.ports), memoryRegions)
}

// handleGroup handles a RoCE packet addressed to a McstID. A packet of an unknown group, or
// from outside the group's tree, is dropped (CEP-27).
func (s *Switch) handleGroup(now vtime.Time, in int, f *wire.Frame, id uint32) {
	g := s.groups.get(id)
	if g == nil {
		s.drop(now, in, f, DropUnknownGroup)
		return
	}
	if g.index[in] == 0 {
		s.drop(now, in, f, DropNotInTree)
		return
	}
	if !g.active {
		s.drop(now, in, f, DropNotActive)
		return
	}
	g.used = now
	op := f.OpCode()
	if s.deferred != nil && s.serve(now, in, f, op) {
		return
	}
	switch {
	case g.reduce != nil:
		s.handleReduce(now, in, f, g)
	case op == wire.OpAcknowledge:
		s.handleFeedback(now, in, f, g)
	case op == wire.OpCNP:
		s.handleCNP(now, in, f, g)
	case op.Service() == wire.RC && (op <= wire.OpWriteOnlyImm || op == wire.OpSendLastInv || op == wire.OpSendOnlyInv):
		s.replicate(now, in, f, g)
	default:
		s.drop(now, in, f, DropGroupOp)
	}
}

// replicate sends a data packet to every path but the one it came from (CEP-22),
// leaving out those that have acknowledged it (CEP-33).
func (s *Switch) replicate(now vtime.Time, in int, f *wire.Frame, g *group) {
	from := int(g.index[in]) - 1
	psn := f.PSN()
	if from != g.ackOut && !s.switchSource(now, in, f, g, from) {
		return
	}
	if !f.DecTTL() {
		s.drop(now, in, f, DropTTL)
		return
	}
	g.traffic = f.Traffic()
	g.onData(psn)
	var a arrival
	s.arrived(&a, f, in)
	a.shared = len(g.path) > 2
	last := -1
	for i := range g.ackPSN {
		if i == from {
			continue
		}
		if g.filters(i, psn) {
			s.stats.Filtered++
			s.portStats[g.path[i].port].Filtered++
			continue
		}
		if last >= 0 {
			s.stats.Cloned++
			s.emitData(now, s.pool.Clone(f), g, last, &a)
		}
		last = i
	}
	if last >= 0 {
		s.emitData(now, f, g, last, &a) // the original leaves last, which saves a copy
		return
	}
	if !s.rules.RepeatAck {
		s.absorb(f)
		return
	}
	s.stats.AcksRepeated++
	if s.trace != nil {
		s.trace.Trace(now, machine.Event{Kind: machine.EventAckRepeated, Group: g.id, PSN: g.aggAckPSN, Port: in})
	}
	s.emitFeedback(now, f, g, g.aggAckPSN, wire.SyndromeACK, in)
}

// emitData sends one copy: bridged to the member's connection if the path ends at a host,
// unchanged if it ends at a switch.
func (s *Switch) emitData(now vtime.Time, f *wire.Frame, g *group, i int, a *arrival) {
	p := &g.path[i]
	if p.host {
		if p.regions != nil {
			if ok, why := s.toRegion(f, p, g.ackPSN[i]); !ok {
				s.drop(now, p.port, f, why)
				return
			}
		}
		p.bridge.Apply(f)
	}
	s.out(now, p.port, f, a)
}

// switchSource makes the path that data now comes from the one that feedback leaves by
// (Cepheus §III-E, CEP-41), and reports whether it has. A late packet of the old source is
// dropped instead (CEP-42).
func (s *Switch) switchSource(now vtime.Time, in int, f *wire.Frame, g *group, from int) bool {
	// One wrong bit makes an acknowledgement look like data.
	if !f.CheckICRC() {
		s.drop(now, in, f, DropICRC)
		return false
	}
	old := g.path[g.ackOut].regions
	if !g.onSource(from, f.PSN()) {
		s.drop(now, in, f, DropStaleSource)
		return false
	}
	if old != nil && s.rules.ResyncOnSwitch {
		old.forget()
	}
	g.forgetCNPs()
	s.stats.SourceSwitches++
	if s.trace != nil {
		s.trace.Trace(now, machine.Event{Kind: machine.EventSourceSwitch, Group: g.id, Port: in, PSN: f.PSN()})
	}
	return true
}

// PathState is one path of a group as Groups shows it.
type PathState struct {
	Port   int
	Host   bool
	IP     uint32   // host only
	QPN    wire.QPN // host only
	AckPSN wire.PSN
	// HasRegion means that WRITEs to the path are moved to a region of the member. Region is the one
	// that was registered or announced last, and Versions is the number of announcements that the
	// member has not acknowledged.
	HasRegion bool
	Region    wire.MRPRegion
	Versions  int
}

// GroupState is one group as Groups shows it.
type GroupState struct {
	McstID    uint32
	Active    bool
	Paths     []PathState
	SourceOut int // the port that feedback leaves by
	AggAckPSN wire.PSN
	// PendingNakPSN is the smallest PSN that a member has asked for and that has not been passed
	// on. It means something only if NakPending is set.
	PendingNakPSN wire.PSN
	NakPending    bool
}

// Groups returns the state of all groups in order of their McstID, deleted ones left out.
func (s *Switch) Groups() (all []GroupState) {
	s.groups.each(func(g *group) {
		if g.forgetAt == 0 {
			var v GroupState
			g.state(&v)
			all = append(all, v)
		}
	})
	return all
}

// Resting returns the McstIDs, in order, of deleted groups that are still in quarantine.
func (s *Switch) Resting() (all []uint32) {
	s.groups.each(func(g *group) {
		if g.forgetAt != 0 {
			all = append(all, g.id)
		}
	})
	return all
}

// Group returns the state of one group.
func (s *Switch) Group(mcstID uint32) (v GroupState, ok bool) {
	ok = s.ReadGroup(mcstID, &v)
	return v, ok
}

// ReadGroup fills v with the state of one group and reports whether there is one. It reuses
// the memory of v, for callers that ask often.
func (s *Switch) ReadGroup(mcstID uint32, v *GroupState) bool {
	g := s.groups.get(mcstID)
	if g == nil || g.forgetAt != 0 {
		return false
	}
	g.state(v)
	return true
}

func (g *group) state(v *GroupState) {
	*v = GroupState{
		McstID: g.id, Active: g.active, SourceOut: g.path[g.ackOut].port,
		AggAckPSN: g.aggAckPSN, PendingNakPSN: g.pendingNakPSN, NakPending: g.nakPending, Paths: v.Paths[:0],
	}
	for i, p := range g.path {
		ps := PathState{Port: p.port, Host: p.host, IP: p.ip, QPN: p.qpn, AckPSN: g.ackPSN[i]}
		if r := p.regions; r != nil {
			ps.HasRegion, ps.Region, ps.Versions = true, r.newest(), len(r.versions)
		}
		v.Paths = append(v.Paths, ps)
	}
}

// PortLoad returns the number of groups that use the port (with Rules.LoadPerNode, the number of
// nodes).
func (s *Switch) PortLoad(port int) int { return int(s.portLoad[port]) }
