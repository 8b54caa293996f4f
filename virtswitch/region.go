// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// versionBytes is the packed size of one version: PSN 3, VA 8, R_Key 4.
const versionBytes = 15

// regions holds the memory regions into which WRITEs go at one member of a group. A source cannot name
// an address and a key that are right at every member, so it names an offset, and the member's leaf
// puts in address and key, in the packets that have a RETH (CEP-25, CEP-26).
//
// A WRITE lands in the region that MRP registered unless its R_Key refers to an announced one (GLE-8).
// Announcements of outstanding WRITEs are kept, so that a packet that is repeated after the next
// announcement goes to its first place (GLE-15). Once the member has acknowledged an announcement, the
// source repeats nothing before it, so it takes the place of the last settled one.
type regions struct {
	registered wire.MRPRegion
	round      uint8     // generation of registered, which identifies older packets
	settled    version   // the last announcement that the member has acknowledged; valid if announced
	announced  bool      // some announcement has been acknowledged
	versions   []version // announcements that are not acknowledged, in order of PSN
}

// version is the region that the announcement with the PSN named.
type version struct {
	psn wire.PSN
	wire.MRPRegion
}

// within reports whether the announcement lies from the packet first on and before the packet
// write, as the announcement of that WRITE does.
func (v *version) within(first, write wire.PSN) bool {
	return uint32(v.psn-first)&uint32(wire.PSNMask) < uint32(write-first)&uint32(wire.PSNMask)
}

// find returns the region that a WRITE names by its R_Key.
func (r *regions) find(psn wire.PSN, rkey uint32) (m wire.MRPRegion, ok bool) {
	if rkey&wire.MRAnnounced == 0 {
		return r.registered, true
	}
	first := wire.PSN(rkey) & wire.PSNMask
	for i := len(r.versions) - 1; i >= 0; i-- {
		if r.versions[i].within(first, psn) {
			return r.versions[i].MRPRegion, true
		}
	}
	return r.settled.MRPRegion, r.announced && r.settled.within(first, psn)
}

// newest returns the region that was named last.
func (r *regions) newest() wire.MRPRegion {
	switch n := len(r.versions); {
	case n > 0:
		return r.versions[n-1].MRPRegion
	case r.announced:
		return r.settled.MRPRegion
	}
	return r.registered
}

// forget drops all announcements: the path was the source's, and those that it missed
// meanwhile were for the other members.
func (r *regions) forget() { r.announced, r.versions = false, r.versions[:0] }

// settle drops the versions before the last one that the member has acknowledged.
func (r *regions) settle(ack wire.PSN) {
	n := 0
	for n < len(r.versions) && !r.versions[n].psn.After(ack) {
		n++
	}
	if n > 0 {
		r.settled, r.announced = r.versions[n-1], true
		r.versions = r.versions[:copy(r.versions, r.versions[n:])]
	}
}

// announce stores the announcement in the WRITE with the PSN, which may be a repeat and may
// come after later ones. It reports whether there was room, as there always is for a source
// that keeps to MRVersionsMax.
func (r *regions) announce(psn, ack wire.PSN, m wire.MRPRegion) bool {
	if !psn.After(ack) {
		return true // the member has acknowledged it
	}
	if r.versions == nil {
		r.versions = make([]version, 0, wire.MRVersionsMax)
	}
	i := len(r.versions)
	for i > 0 && !psn.After(r.versions[i-1].psn) {
		i--
	}
	if i < len(r.versions) && r.versions[i].psn == psn {
		return true // a repeat
	}
	if len(r.versions) == wire.MRVersionsMax {
		return false
	}
	r.versions = r.versions[:len(r.versions)+1]
	copy(r.versions[i+1:], r.versions[i:])
	r.versions[i] = version{psn, m}
	return true
}

// toRegion replaces the address and key of a WRITE by the member's. If ok is false, the packet
// must not go to the member, for the reason why.
func (s *Switch) toRegion(f *wire.Frame, p *path, ack wire.PSN) (ok bool, why DropReason) {
	r := p.regions
	if len(r.versions) > 0 {
		r.settle(ack)
	}
	op := f.OpCode()
	if !op.Info().RETH {
		return true, 0
	}
	h := f.RETH()
	if h.VA != wire.MRUpdateVA {
		m, ok := r.find(f.PSN(), h.RKey)
		if !ok && f.PSN().After(ack) { // a member that has the packet reads its PSN only
			return false, DropNoRegion
		}
		s.stats.RETHsRewritten++
		f.SetRETH(m.VA+h.VA, m.RKey)
		return true, 0
	}
	// A flipped bit in an announcement would send later WRITEs to a wrong place. Unlike with
	// data, no device behind this switch could detect it.
	b := f.PayloadBytes()
	if op != wire.OpWriteOnly || len(b) == 0 || len(b)%wire.MRUpdateLen != 0 || !f.CheckICRC() {
		return false, DropMalformed
	}
	for len(b) > 0 {
		var u wire.MRUpdate
		u, b, _ = wire.ParseMRUpdate(b) // cannot fail: the length is one of whole records
		if u.IP != p.ip {
			continue
		}
		if !r.announce(f.PSN(), ack, wire.MRPRegion{VA: u.VA, RKey: u.RKey}) {
			return false, DropRegionsFull
		}
		s.stats.MRUpdates++
		break
	}
	f.SetRETH(r.registered.VA, r.registered.RKey)
	return true, 0
}

// putRegions stores the regions of a registration with the paths that end at their hosts.
// out has a port for each record, but -1 for the leader's.
func (s *Switch) putRegions(now vtime.Time, in int, g *group, p wire.MRPPacket, out []int) {
	if p.Flags&wire.MRPMRUpdate == 0 {
		return
	}
	news := int64(0)
	for i, port := range out {
		if i < leaderRecords(p) {
			port = in
		}
		to := &g.path[g.index[port]-1]
		rec := p.Record(i)
		if !to.host || to.ip != rec.IP || to.regions != nil && int8(rec.Flags-to.regions.round) < 0 { // a late one
			continue
		}
		if to.regions == nil {
			to.regions = &regions{}
		}
		if was := to.regions.registered; was != p.Region(i) {
			news++
		}
		to.regions.registered, to.regions.round = p.Region(i), rec.Flags
	}
	if news > 0 && s.trace != nil {
		s.trace.Trace(now, machine.Event{Kind: machine.EventGroupRegions, Group: g.id, Port: in, Value: news})
	}
}

// leaderRecords returns the number of records at the start of a packet that are the leader's own.
func leaderRecords(p wire.MRPPacket) int {
	if p.Flags&wire.MRPMRUpdate != 0 {
		return 1
	}
	return 0
}

// mftBytes returns the packed size of the group's table as it is now.
func (s *Switch) mftBytes(g *group) int {
	n := s.tableBytes(g.regions)
	for i := range g.path {
		if r := g.path[i].regions; r != nil {
			n += versionBytes * len(r.versions)
		}
	}
	return n
}

// MFTBytes returns the packed size of all groups' tables, those that wait to be forgotten
// included (CEP-20).
func (s *Switch) MFTBytes() (n int) {
	s.groups.each(func(g *group) { n += s.mftBytes(g) })
	return n
}
