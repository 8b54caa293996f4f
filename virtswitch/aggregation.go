// SPDX-License-Identifier: Apache-2.0

package virtswitch

import "github.com/mcastlab/mcastlab/core/wire"

// aggregation is the state of one group's feedback in one switch and the rules by which it changes
// (Cepheus §III-D, CEP-28; Gleam §3.4, GLE-10). It is a value: its methods take path numbers and PSNs,
// and return the feedback for the source. Frames, ports and statistics are the caller's.
//
// A path is one entry of the group's path table. All paths but ackOut are members: they acknowledge
// packets from ackOut. The promise to the source is that ACK(x) means that every member has all packets
// up to x, and NAK(e) that every member has all before e.
type aggregation struct {
	// rules are the switch's. They do not change while the group exists.
	rules Rules

	// ackPSN is AckPSN of each path: the last PSN up to which the path has acknowledged
	// everything. Invariant: an entry never goes back, but for open and for the path of the
	// old source, which onSource sets to aggAckPSN. The slice stands alone because each data
	// packet reads all of it.
	ackPSN []wire.PSN

	// report has each path's latest feedback, except its AckPSN. Invariant: it has the length
	// of ackPSN.
	report []pathReport

	// ackOut is the path that data comes from and feedback leaves by. Its own entries of
	// ackPSN and report have no meaning.
	ackOut int

	// minPath is the member that held the smallest ackPSN when generate, onSource or open
	// looked last. It may lag behind: then another member has the same ackPSN or a larger
	// one. Invariant: no member has an ackPSN smaller than minPath had then, so the minimum
	// cannot move unless minPath acknowledges something (CEP-29).
	minPath int

	// aggAckPSN is AggAckPSN: the last acknowledgement sent to the source. Invariant: no
	// member's ackPSN is before it, unless rules.ResyncOnSwitch is not set. With
	// RulesFixed it is the minimum of the members' ackPSN after each call.
	aggAckPSN wire.PSN

	// pendingNakPSN is MePSN: the smallest PSN that a member has asked for and that has not
	// been passed on. It means something only while nakPending is set. Invariant with
	// RulesFixed: while a NAK is pending some member lacks a packet before it, so it is at
	// least two after aggAckPSN; else it would have been sent or forgotten.
	pendingNakPSN wire.PSN
	nakPending    bool

	// pendingSyndrome is the syndrome of the pending NAK: a sequence NAK or an RNR NAK. Of two for the
	// same PSN the RNR NAK is kept, since it also gives the time to wait.
	pendingSyndrome wire.Syndrome

	// sentNakPSN is the PSN of the last NAK sent to the source. nakOutstanding is set from then
	// on until the source sends that packet, or one before it, again.
	sentNakPSN     wire.PSN
	nakOutstanding bool

	// selective is the selective bit of feedback to the source. Invariant: it is set only if
	// the last acknowledgement of every member had the bit.
	//
	// Members that repeat selectively (IRN, CEP-55) keep packets that arrive out of order, set the bit
	// in each acknowledgement, and list in their NAKs the packets that they have (wire.SACK). If all
	// members do, no member drops packets after a gap, and repeats only the packet asked for. With one
	// member that goes back N the bit is clear and the source repeats everything. The lists are not
	// passed on: the only list true of all members is the intersection of theirs, for which a switch
	// would have to keep one per path, with state that grows with the packets under way. The cumulative
	// minimum is safe always.
	selective bool
}

// pathReport keeps a path's latest feedback, except its AckPSN, which is in ackPSN.
type pathReport struct {
	// msn is the message sequence number of the acknowledgement that set ackPSN. The
	// source gets that of minPath (CEP-32).
	msn uint32

	// lastNakPSN is the PSN of the path's last sequence NAK. repairPending is set until the
	// path acknowledges that packet or a later one. A NAK that comes late may set it for a
	// packet that the path has. Invariant: it is clear after each acknowledgement that is
	// news and not before lastNakPSN, so no NAK is kept until PSNs come round to it again.
	lastNakPSN    wire.PSN
	repairPending bool

	// selective is the selective bit of the path's last acknowledgement: the member keeps
	// packets that arrive out of order.
	selective bool
}

// feedback is the group's feedback to its source after feedback of one member. If both an ACK and a NAK
// are set, the ACK goes first.
type feedback struct {
	ack, nak bool
	ackPSN   wire.PSN
	nakPSN   wire.PSN
	syndrome wire.Syndrome // the NAK's
	held     bool          // a NAK was held back, since the source has been asked for its PSN (HoldRepeatedNak)
}

// addPath appends a path that has acknowledged nothing: its AckPSN is before PSN 0 until open sets the
// group's start PSN.
func (a *aggregation) addPath() {
	a.ackPSN = append(a.ackPSN, wire.PSNMask)
	a.report = append(a.report, pathReport{})
}

// open makes start the PSN of the first packet, which path 0 is to bring unless another
// path does.
func (a *aggregation) open(start wire.PSN) {
	a.aggAckPSN = start.Add(-1)
	for i := range a.ackPSN {
		a.ackPSN[i] = a.aggAckPSN
	}
	a.ackOut = 0
	a.minPath = a.smallest()
}

// smallest returns the member with the smallest ackPSN, the first of equals (CEP-30). Nobody is before aggAckPSN, so
// the first member that has acknowledged no more ends the search.
func (a *aggregation) smallest() int {
	min, least := -1, a.aggAckPSN
	for i, psn := range a.ackPSN {
		if i == a.ackOut || min >= 0 && !least.After(psn) {
			continue
		}
		min, least = i, psn
		if psn == a.aggAckPSN && a.rules.ResyncOnSwitch {
			break
		}
	}
	return min
}

// onSource makes path the one that data comes from, beginning with the packet psn
// (Cepheus §III-E, CEP-41), and reports whether it has. If every member has that packet, it
// is a late one of an old source, and nothing changes.
func (a *aggregation) onSource(path int, psn wire.PSN) bool {
	if a.rules.ResyncOnSwitch {
		if !psn.After(a.aggAckPSN) {
			return false
		}
		// The old source has everything that was acknowledged, since it sent it.
		a.ackPSN[a.ackOut] = a.aggAckPSN
		a.nakPending, a.nakOutstanding = false, false
	}
	a.ackOut = path
	a.minPath = a.smallest()
	a.agree()
	return true
}

// onData takes note that the source has sent the packet psn, perhaps again. It ends the time in which
// NAKs for that packet are held back (CEP-54): a member that asks now lacks the packet again.
func (a *aggregation) onData(psn wire.PSN) {
	if a.nakOutstanding && !psn.After(a.sentNakPSN) {
		a.nakOutstanding = false
	}
}

// filters reports whether the packet psn is kept from a path because the path has
// acknowledged it (CEP-33).
func (a *aggregation) filters(path int, psn wire.PSN) bool {
	return a.rules.FilterRetransmits && !psn.After(a.ackPSN[path])
}

// onSelective takes note of the selective bit of feedback from a path.
func (a *aggregation) onSelective(path int, selective bool) {
	if a.report[path].selective != selective {
		a.report[path].selective = selective
		a.agree()
	}
}

// agree sets selective if every member's last acknowledgement had the bit. A member that has
// acknowledged nothing yet does not have it.
func (a *aggregation) agree() {
	a.selective = true
	for i := range a.report {
		a.selective = a.selective && (i == a.ackOut || a.report[i].selective)
	}
}

// onAck takes an acknowledgement of everything up to psn from a member.
func (a *aggregation) onAck(path int, psn wire.PSN, msn uint32) feedback {
	a.acknowledge(path, psn, msn)
	if a.triggers(path, psn) {
		return a.generate()
	}
	return feedback{}
}

// onNak takes a sequence NAK or an RNR NAK from a member. It asks for psn again and
// acknowledges everything before (CEP-35, CEP-39). Of several the smallest is kept.
func (a *aggregation) onNak(path int, psn wire.PSN, syndrome wire.Syndrome, msn uint32) feedback {
	if syndrome == wire.SyndromePSNSequence {
		a.report[path].repairPending, a.report[path].lastNakPSN = true, psn
	}
	a.acknowledge(path, psn.Add(-1), msn)
	smallest := !a.nakPending || !psn.After(a.pendingNakPSN)
	held := false
	if a.nakOutstanding && psn == a.sentNakPSN && a.rules.HoldRepeatedNak {
		smallest, held = false, true // the source has been asked for it already
	}
	if smallest {
		if !a.nakPending || psn != a.pendingNakPSN || syndrome.IsRNR() {
			a.pendingSyndrome = syndrome
		}
		a.pendingNakPSN, a.nakPending = psn, true
	}
	var d feedback
	if smallest && a.rules.NakGenerates || a.triggers(path, psn.Add(-1)) {
		d = a.generate()
	}
	d.held = held
	return d
}

// acknowledge takes note that a path has all packets up to psn. If that is news, the path no
// longer lacks those that it asked for up to psn.
func (a *aggregation) acknowledge(path int, psn wire.PSN, msn uint32) {
	if !psn.After(a.ackPSN[path]) {
		return
	}
	r := &a.report[path]
	a.ackPSN[path], r.msn = psn, msn
	r.repairPending = r.repairPending && r.lastNakPSN.After(psn)
}

// triggers reports whether an acknowledgement up to psn from a path may have moved the
// minimum: only that of the path that holds it can (CEP-29).
func (a *aggregation) triggers(path int, psn wire.PSN) bool {
	return path == a.minPath && (psn.After(a.aggAckPSN) || a.rules.TriggerOnEqual && psn == a.aggAckPSN)
}

// generate returns the feedback that is due now: the minimum of all members as an ACK if it has moved,
// and the pending NAK once every member has everything before it (CEP-29, CEP-36).
func (a *aggregation) generate() (d feedback) {
	a.minPath = a.smallest()
	m := a.ackPSN[a.minPath]
	d.ack, d.ackPSN = m.After(a.aggAckPSN) || a.rules.EmitTies, m
	if m.After(a.aggAckPSN) {
		a.aggAckPSN = m
	}
	if a.selective {
		a.recall(m)
	}
	switch {
	case a.nakPending && m == a.pendingNakPSN.Add(-1):
		d.nak, d.nakPSN, d.syndrome = true, a.pendingNakPSN, a.pendingSyndrome
		a.nakPending = !a.rules.ForgetNak
		a.sentNakPSN, a.nakOutstanding = d.nakPSN, true
	case a.nakPending && a.rules.ForgetStaleNak && !a.pendingNakPSN.After(m):
		a.nakPending = false // every member has passed it, and it would keep later NAKs back
	}
	return d
}

// recall makes the last NAK of minPath the pending one, if it asked for the packet after the minimum m
// and the source has got no NAK for that. A member that repeats selectively asks only once, perhaps
// while another NAK was pending.
func (a *aggregation) recall(m wire.PSN) {
	r := &a.report[a.minPath]
	if next := m.Add(1); r.repairPending && r.lastNakPSN == next && !(a.nakOutstanding && a.sentNakPSN == next) {
		a.pendingNakPSN, a.nakPending, a.pendingSyndrome = next, true, wire.SyndromePSNSequence
	}
}

// onFatal returns the PSN with which a NAK that ends the connection is passed to the source. A NAK
// acknowledges the packets before it, so its PSN is not beyond the first packet that some member lacks
// (CEP-39).
func (a *aggregation) onFatal(psn wire.PSN) wire.PSN {
	if first := a.aggAckPSN.Add(1); psn.After(first) {
		return first
	}
	return psn
}

// msn returns the message sequence number of feedback to the source.
func (a *aggregation) msn() uint32 { return a.report[a.minPath].msn }
