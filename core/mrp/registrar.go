// SPDX-License-Identifier: Apache-2.0

package mrp

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Member is one member of a group other than its leader.
type Member struct {
	IP     uint32
	QPN    wire.QPN
	Region wire.MRPRegion // destination of WRITEs, if the group has regions
}

// Group describes a group that a leader registers.
type Group struct {
	McstID    uint32
	LeaderQPN wire.QPN
	Members   []Member // all members but the leader
	StartPSN  wire.PSN // PSN of the first data packet
	// Activate adds the second phase, which sends the start PSN to every switch. Without it, by the
	// literal rules of the papers, the group is active once registered and starts at PSN 0.
	Activate bool
	// Regions is set if leaf switches send WRITEs to each member's own region (CEP-25). The leader has
	// a region too, for when another member is the source.
	Regions bool
	Region  wire.MRPRegion // the leader's region
	// Reduce makes the switches add up the data that the members send (wire.ReduceImm). Such a group
	// has no regions.
	Reduce bool
}

// Phase is the state of a group's registration.
type Phase uint8

// Phases. A registration passes them in this order, but Active and Updating may alternate, and any
// phase may be followed by Deleting or, before Active or in Updating, by Failed.
const (
	Unknown     Phase = iota // the host does not lead the group
	Registering              // switches install the members
	Activating               // switches learn the start PSN
	Active                   // the leader may send
	Updating                 // switches learn new regions of an active group
	Deleting                 // switches remove the group
	Deleted                  // all members have confirmed the deletion, or it was given up
	Failed                   // the registration has failed and its remains are being deleted
)

// String returns the name of the phase.
func (p Phase) String() string {
	return [...]string{"unknown", "registering", "activating", "active", "updating", "deleting", "deleted", "failed"}[p]
}

// registration is the registrar's state of one group.
type registration struct {
	Group
	id      uint32
	phase   Phase
	waiting map[uint32]Member // by address: members that have not confirmed the phase
	round   uint8             // generation of the regions
	tries   int               // repeats of the phase's request
	first   uint32            // number of the first attempt, above 0 if the McstID was registered before
	attempt uint32            // number of the present attempt
	anew    bool              // routes have changed, so that another attempt must begin
	retryAt vtime.Time        // when the request is repeated, or vtime.Never
	err     error             // why the registration failed
	left    bool              // the host has left the group, and no program asks for its status any more
}

// deletionsMax is the largest number of repeats of a deletion. The time between them doubles up to
// deletionPauses times the first one. That is less than the time for which switches remember a
// deleted group (virtswitch), because a repeat must be forwarded by switches that have already
// deleted it.
const (
	deletionsMax   = 10
	deletionPauses = 8
)

// Register starts the registration of a group, whose progress Status returns. A McstID can be
// registered again only after Forget. It is an error if the McstID is out of range or registered,
// if there are no members, or if a reduction has regions.
func (a *Agent) Register(now vtime.Time, g Group) error {
	switch {
	case !a.ids.Has(g.McstID):
		return fmt.Errorf("register group %v: address is not in the McstID range %v/16", wire.AddrOf(g.McstID), wire.AddrOf(a.ids.Net()))
	case len(g.Members) == 0:
		return fmt.Errorf("register group %v: no member but the leader", wire.AddrOf(g.McstID))
	case g.Reduce && g.Regions:
		return fmt.Errorf("register group %v: a reduction has no regions", wire.AddrOf(g.McstID))
	case a.find(g.McstID) != nil:
		return fmt.Errorf("register group %v: registered before", wire.AddrOf(g.McstID))
	}
	r := &registration{Group: g, id: g.McstID, first: a.begun[g.McstID], attempt: a.begun[g.McstID]}
	r.Members = slices.Clone(g.Members) // Update changes the regions
	i, _ := slices.BinarySearchFunc(a.led, r.id, func(r *registration, id uint32) int { return cmp.Compare(r.id, id) })
	a.led = slices.Insert(a.led, i, r)
	a.enter(now, r, Registering)
	return nil
}

// Update starts to give the leaf switches new regions: the leader's, and the members' in the order
// of Group.Members. It is an error if the group is not active or has no regions. No WRITE may be
// in flight in the group, because it could go to the old or to the new region.
func (a *Agent) Update(now vtime.Time, mcstID uint32, leader wire.MRPRegion, members []wire.MRPRegion) error {
	r := a.find(mcstID)
	switch {
	case r == nil || r.phase != Active || !r.Regions:
		return fmt.Errorf("update regions of group %v: not an active group with regions that this host leads", wire.AddrOf(mcstID))
	case len(members) != len(r.Members):
		return fmt.Errorf("update regions of group %v: %d regions for %d members", wire.AddrOf(mcstID), len(members), len(r.Members))
	}
	r.round++
	r.Region = leader
	for i := range r.Members {
		r.Members[i].Region = members[i]
	}
	a.enter(now, r, Updating)
	return nil
}

// Delete starts to remove a group from the fabric. It may be called in any phase. For a group that
// has failed it continues the deletion that began then. It is an error if this host does not lead
// the group.
func (a *Agent) Delete(now vtime.Time, mcstID uint32) error {
	r := a.find(mcstID)
	if r == nil {
		return fmt.Errorf("delete group %v: not led by this host", wire.AddrOf(mcstID))
	}
	switch r.phase {
	case Deleting, Deleted:
	case Failed:
		a.changes++
		if r.phase = Deleting; len(r.waiting) == 0 {
			r.phase = Deleted
		}
	default:
		a.enter(now, r, Deleting)
	}
	return nil
}

// Forget allows the McstID of a deleted or failed group to be registered again, and does nothing for
// another group. The caller makes sure that no frame of the group is in flight. State that switches
// still have belongs to an earlier attempt and is void.
func (a *Agent) Forget(mcstID uint32) {
	if r := a.find(mcstID); r != nil && (r.phase == Deleted || r.phase == Failed) {
		a.drop(r)
	}
}

// drop removes a registration from the list.
func (a *Agent) drop(r *registration) {
	a.begun[r.id] = r.attempt + 1
	a.led = slices.DeleteFunc(a.led, func(o *registration) bool { return o == r })
	a.rearm()
}

// Status returns the phase of a group and, in phase Failed, the reason. The phase is Unknown if
// this host does not lead the group.
func (a *Agent) Status(mcstID uint32) (Phase, error) {
	r := a.find(mcstID)
	if r == nil {
		return Unknown, nil
	}
	return r.phase, r.err
}

// Led returns a group that this host leads and its phase. The phase is Unknown if this host does
// not lead the group.
func (a *Agent) Led(mcstID uint32) (Group, Phase) {
	if r := a.find(mcstID); r != nil {
		return r.Group, r.phase
	}
	return Group{}, Unknown
}

// enter begins a phase, which no member has confirmed, and sends its request.
func (a *Agent) enter(now vtime.Time, r *registration, p Phase) {
	r.phase, r.tries, r.retryAt = p, 0, vtime.Never
	a.changes++
	if !p.asks() {
		a.rearm()
		return
	}
	r.waiting = make(map[uint32]Member, len(r.Members))
	for _, m := range r.Members {
		r.waiting[m.IP] = m
	}
	a.ask(now, r)
}

// asks reports whether members must confirm the phase.
func (p Phase) asks() bool {
	return p == Registering || p == Activating || p == Updating || p.deletes()
}

// deletes reports whether the phase removes the group from the fabric. That includes Failed,
// because a failed group may be installed in some switches.
func (p Phase) deletes() bool { return p == Deleting || p == Failed }

// ask sends the request of the phase to the members that have not confirmed it.
func (a *Agent) ask(now vtime.Time, r *registration) {
	r.retryAt = now.Add(a.retryAfter)
	if r.phase.deletes() {
		r.retryAt = now.Add(min(a.retryAfter<<r.tries, deletionPauses*a.retryAfter))
	}
	a.rearm()
	h := wire.MRPHeader{Total: 1, LeaderQPN: r.LeaderQPN, Attempt: r.attempt}
	switch r.phase {
	case Activating:
		h.Flags = wire.MRPActivate
		a.send(now, r.id, h, []record{{MRPRecord: wire.MRPRecord{IP: r.id, QPN: wire.QPN(r.StartPSN)}}})
		return
	case Deleting, Failed:
		h.Flags = wire.MRPDelete
		a.send(now, r.id, h, []record{{MRPRecord: wire.MRPRecord{IP: r.id}}})
		return
	}
	a.list(now, r, h)
}

// list sends the list of the members that have not confirmed, in as many packets as it takes. With
// regions each packet begins with the leader's region.
func (a *Agent) list(now vtime.Time, r *registration, h wire.MRPHeader) {
	per := wire.MRPRecordsMax
	if a.v6 {
		per = wire.MRPRecordsMaxIP6
	}
	if r.Reduce {
		h.Flags = wire.MRPReduce
	}
	var first []record
	if r.Regions {
		h.Flags = wire.MRPMRUpdate
		first = []record{{wire.MRPRecord{IP: a.ip, Flags: r.round, QPN: r.LeaderQPN}, r.Region}}
		per = wire.MRPRegionsMax - 1
		if a.v6 {
			per = wire.MRPRegionsMaxIP6 - 1
		}
	}
	if r.attempt > 0 {
		per--
	}
	var records []record
	for _, m := range r.Members {
		if _, waits := r.waiting[m.IP]; waits {
			n := record{MRPRecord: wire.MRPRecord{IP: m.IP, QPN: m.QPN}}
			if r.Regions {
				n.Flags, n.MRPRegion = r.round, m.Region
			}
			records = append(records, n)
		}
	}
	h.Total = uint16((len(records) + per - 1) / per)
	for chunk := range slices.Chunk(records, per) {
		a.send(now, r.id, h, append(first[:len(first):len(first)], chunk...))
		h.Seq++
	}
}

// handleConfirm handles a member's confirmation of the present phase.
func (a *Agent) handleConfirm(now vtime.Time, member uint32, p wire.MRPPacket) {
	r := a.find(p.Record(0).IP)
	if r == nil || p.Flags != r.confirmation() || p.Attempt != r.attempt {
		a.stats.Ignored++
		return
	}
	m, waits := r.waiting[member]
	old := r.Regions && r.listed() && (p.Record(0).Flags != r.round || p.Region(0) != m.Region)
	if !waits || m.QPN != p.Record(0).QPN && !r.phase.deletes() || old {
		a.stats.Ignored++
		return
	}
	delete(r.waiting, member)
	if len(r.waiting) > 0 {
		return
	}
	switch {
	case r.anew && !r.phase.deletes():
		a.beginAnew(now, r)
	case r.phase == Registering && r.Activate:
		a.enter(now, r, Activating)
	case r.phase.deletes():
		a.deleted(now, r)
	default:
		a.enter(now, r, Active)
	}
}

// deleted ends a deletion.
func (a *Agent) deleted(now vtime.Time, r *registration) {
	r.waiting = nil
	if r.phase == Deleting {
		a.enter(now, r, Deleted)
	}
	r.retryAt = vtime.Never
	a.rearm()
	a.forget(r)
}

// forget drops a registration whose deletion is over, if the host has left the group.
func (a *Agent) forget(r *registration) {
	if r.left && (r.phase == Deleted || r.phase == Failed) && len(r.waiting) == 0 {
		a.drop(r)
	}
}

// listed reports whether the packets of the phase list the members.
func (r *registration) listed() bool { return r.phase == Registering || r.phase == Updating }

// confirmation returns the flags of a confirmation of the phase, or 0 if it needs none.
func (r *registration) confirmation() wire.MRPFlags {
	switch {
	case r.listed() && r.Regions:
		return wire.MRPConfirm | wire.MRPMRUpdate
	case r.phase == Registering && r.Reduce:
		return wire.MRPConfirm | wire.MRPReduce
	case r.phase == Registering:
		return wire.MRPConfirm
	case r.phase == Activating:
		return wire.MRPConfirm | wire.MRPActivate
	case r.phase.deletes():
		return wire.MRPConfirm | wire.MRPDelete
	}
	return 0
}

// handleError handles a switch's refusal of a registration. The registration fails, and the entries of
// other switches are deleted. If the reason is changed routes, another attempt begins instead, when the
// request would be repeated or the phase is complete. Until then the routes may change again.
func (a *Agent) handleError(now vtime.Time, p wire.MRPPacket) {
	rec := p.Record(0)
	r := a.find(rec.IP)
	why := wire.MRPErrorReason(rec.Flags)
	switch {
	case r == nil || p.Attempt != r.attempt:
		a.stats.Ignored++
	case why == wire.MRPErrRoutes && (r.phase == Registering || r.phase == Activating):
		r.anew = true
	case !r.listed():
		a.stats.Ignored++
	default:
		a.fail(now, r, fmt.Errorf("register group %v: %v", wire.AddrOf(r.id), why))
	}
}

// beginAnew begins another attempt of the registration. The paths that switches have installed so
// far may not form a tree, and would not with newer paths added.
func (a *Agent) beginAnew(now vtime.Time, r *registration) {
	r.anew = false
	if int(r.attempt-r.first) == a.retriesMax {
		a.fail(now, r, fmt.Errorf("group %v, %v: routes have changed in each of %d attempts", wire.AddrOf(r.id), r.phase, a.retriesMax+1))
		return
	}
	r.attempt++
	a.stats.Repeats++
	a.enter(now, r, Registering)
}

func (a *Agent) fail(now vtime.Time, r *registration, err error) {
	r.err = err
	a.enter(now, r, Failed)
}

// HandleTimeout implements virtrnic.Stack. It repeats requests that are not confirmed, and gives
// up after the largest number of repeats.
func (a *Agent) HandleTimeout(now vtime.Time) {
	for _, r := range slices.Clone(a.led) { // the loop may drop registrations
		if r.retryAt > now {
			continue
		}
		if r.anew && !r.phase.deletes() {
			a.beginAnew(now, r)
			continue
		}
		most := a.retriesMax
		if r.phase.deletes() {
			most = deletionsMax
		}
		if r.tries++; r.tries > most {
			a.giveUp(now, r)
			continue
		}
		a.stats.Repeats++
		a.ask(now, r)
	}
}

// giveUp ends a phase that not all members confirm. A deletion counts as done. Switches that it
// has not reached keep the group until they age it out, which only costs them table space, because
// its McstID is not used again.
func (a *Agent) giveUp(now vtime.Time, r *registration) {
	if r.phase.deletes() {
		a.stats.DeletionsGivenUp++
		a.deleted(now, r)
		return
	}
	silent := make([]uint32, 0, len(r.waiting))
	for ip := range r.waiting { // sorted below
		silent = append(silent, ip)
	}
	slices.Sort(silent)
	a.fail(now, r, fmt.Errorf("group %v, %v: %d of %d members did not confirm, %v first",
		wire.AddrOf(r.id), r.phase, len(silent), len(r.Members), wire.AddrIn(a.v6, silent[0])))
}

// NextTimeout implements virtrnic.Stack.
func (a *Agent) NextTimeout() (vtime.Time, bool) { return a.next, a.next != vtime.Never }

// rearm sets next after a change of some retryAt.
func (a *Agent) rearm() {
	a.next = vtime.Never
	for _, r := range a.led {
		a.next = min(a.next, r.retryAt)
	}
}
