// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// Ledger is the account that a coordinator keeps of parts that are processes of their own. It has the instant of
// each part's next event, for the bounds, and it checks each report of a part after a round.
//
// # Why the bounds hold
//
// Part j hands a frame to part i not earlier than d(j, i) after the event that sends it (Far.Delay), and
// D(i, j) is the length of the shortest path (Plan). Let t(i) be Ledger.Next: the earliest of the next event
// that part i has reported, and of the frames and orders that have been sent to it since its grant. A grant
// lets part i handle its events before a bound B(i) = min over j of t(j) + D(i, j).
//
// Claim 1: no part has an event before t(i), and whatever is sent from now on arrives at i at B(i) or later.
// The first half holds at the start, and each report keeps it. An event before t(i) would need a frame or
// an order that the ledger does not know, and all that were sent have been reported by their senders. A
// frame arrives at i by way of other parts, the first of which, j, handles an event of its own, at t(j)
// or later; each hop adds its delay, together D(i, j) or more.
//
// Claim 2: what a part reports after a round is not below
//
//	floor(i) = min(t(i), min over granted neighbours j of t(j) + d(j, i)).
//
// Part i takes the frames that are announced to it when it begins: those of earlier rounds, which are in t(i),
// and, as the neighbours run at the same time, some of this round. Neighbour j handles no event before t(j), so
// these arrive at t(j) + d(j, i) or later. One hop is enough: what j is sent in this round arrives at B(j) or
// later, and j does not handle it before the next. If i has been granted B(i) > t(i), the second term counts for
// nothing, because t(j) + d(j, i) >= B(i). It counts for a part that is granted no event at all and only takes
// frames, because its links are full (Late): its t(i) may be anywhere beyond B(i), and a frame of this
// round may come before it. Links of unlike delays make that frequent.
//
// Claim 3: a frame that part i has sent in a round arrives at t(i) + d(i, k) or later at k. It follows
// from claim 1.
//
// So the checks in Report pass all that an honest part can say. They also stop each lie that could harm
// another part. Harm is a frame that arrives at k before a bound that k has been granted, after k has handled its
// events up to there. While all reports pass, t(i) + D(k, i) is not below a bound that k has been granted: t(i)
// grows, or falls to floor(i), whose second term is an event of j, which counted with the longer path. A
// frame that passes arrives at t(i) + d(i, k) or later, hence not before that bound. So a part that conceals an
// event is found out by a frame of it, or harms nobody. As k may handle such a frame in the very round in which
// it is sent, k refuses what arrives before floor(k) itself, and names the sender (Floor).
//
// TestLedger runs a model of both sides on random graphs, and TestLedgerLies has one part lie.
type Ledger struct {
	parts   []account
	granted []int // of the round
}

// account is the ledger's state of one part.
type account struct {
	name   string
	far    []Far
	behind []int // by port: rounds in which frames were sent to it that it has not taken

	next    vtime.Time // of its own events, as it has reported
	arrives vtime.Time // the first frame or order that it has been sent since its grant
	held    bool       // it has a grant
	from    vtime.Time // t of the part when it was granted
	floor   vtime.Time // the earliest instant that it may report as its next event
}

// Far is the node at the far end of a port, with its delay.
type Far struct {
	Part, Port int

	// Delay is the shortest time from an event here to its effect there, above 0.
	Delay vtime.Duration
}

// behindMax is the number of rounds that may bring frames to a port before the part takes them.
const behindMax = 4

// NewLedger returns the ledger of parts without events. names are for errors; far[i] are the far ends of the
// ports of part i.
func NewLedger(names []string, far [][]Far) *Ledger {
	l := &Ledger{parts: make([]account, len(far))}
	for i := range far {
		l.parts[i] = account{name: names[i], far: far[i], behind: make([]int, len(far[i])), next: vtime.Never, arrives: vtime.Never}
	}
	return l
}

// Next returns the instant of the next event of a part, vtime.Never if it has none.
func (l *Ledger) Next(part int) vtime.Time {
	return min(l.parts[part].next, l.parts[part].arrives)
}

// Sent notes that something that is no frame has been sent to a part and arrives at an instant, vtime.Never if
// it is no event.
func (l *Ledger) Sent(part int, at vtime.Time) {
	l.parts[part].arrives = min(l.parts[part].arrives, at)
}

// Grant notes that a part takes all that it has been sent, in the round to come.
func (l *Ledger) Grant(part int) {
	a := &l.parts[part]
	a.from, a.arrives = l.Next(part), vtime.Never
	clear(a.behind)
	a.held = true
	l.granted = append(l.granted, part)
}

// Allow lets a part that has a grant begin something at an instant, which may be before its next event. No part may have
// handled an event there, nor use its grant beyond.
func (l *Ledger) Allow(part int, at vtime.Time) {
	l.parts[part].from = min(l.parts[part].from, at)
}

// Late reports whether a part has to take its arrived frames in the next round, or its links run over.
func (l *Ledger) Late(part int) bool {
	for _, rounds := range l.parts[part].behind {
		if rounds >= behindMax {
			return true
		}
	}
	return false
}

// Granted returns the parts that have a grant, in the order of their grants.
func (l *Ledger) Granted() []int { return l.granted }

// From returns the instant before which a part that has a grant handles no event.
func (l *Ledger) From(part int) vtime.Time { return l.parts[part].from }

// Run begins a round: all grants have been made.
func (l *Ledger) Run() {
	for _, i := range l.granted {
		l.parts[i].floor = l.parts[i].from
	}
	for _, j := range l.granted {
		a := &l.parts[j]
		for _, f := range a.far {
			i := &l.parts[f.Part]
			i.floor = min(i.floor, a.from.Add(f.Delay))
		}
	}
}

// Floor returns the earliest instant that a part with a grant may report as its next event. The part also takes
// no frame that arrives before.
func (l *Ledger) Floor(part int) vtime.Time { return l.parts[part].floor }

// Report records a part's report after a round: its next event, and the arrival of the first frame that it has
// sent on each port, vtime.Never if it has sent none. The error names the impossible value.
func (l *Ledger) Report(part int, next vtime.Time, first func(port int) vtime.Time) error {
	a := &l.parts[part]
	if a.next = next; next < a.floor {
		return fmt.Errorf("node %s says that its next event is at %v, and can have none before %v", a.name, next, a.floor)
	}
	for p, f := range a.far {
		at := first(p)
		if at == vtime.Never {
			continue
		}
		to := &l.parts[f.Part]
		if soonest := a.from.Add(f.Delay); at < soonest {
			return fmt.Errorf("node %s says that a frame arrives at %s at %v, and can have sent none that arrives before %v", a.name, to.name, at, soonest)
		}
		to.arrives = min(to.arrives, at)
		to.behind[f.Port]++
	}
	return nil
}

// Check reports, by an error, that something a part has sent on the out-of-band channel arrives before it can.
func (l *Ledger) Check(part int, at vtime.Time, delay vtime.Duration) error {
	if soonest := l.parts[part].from.Add(delay); at < soonest {
		return fmt.Errorf("it says that a request arrives at %v, and can have sent none that arrives before %v", at, soonest)
	}
	return nil
}

// End ends a round: all parts that had a grant have reported.
func (l *Ledger) End() {
	for _, i := range l.granted {
		l.parts[i].held = false
	}
	l.granted = l.granted[:0]
}

// Horizon returns an instant before which no part does anything any more, also in the midst of a round.
func (l *Ledger) Horizon() vtime.Time {
	at := vtime.Never
	for i := range l.parts {
		if at = min(at, l.Next(i)); l.parts[i].held {
			at = min(at, l.parts[i].from)
		}
	}
	return at
}
