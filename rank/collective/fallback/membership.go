// SPDX-License-Identifier: Apache-2.0

package fallback

import "slices"

// membership is a rank's view of all ranks of the broadcast. It is the same on all of them once they
// have adopted the same plan; the source changes its own before it publishes the plan.
type membership struct {
	me int

	// alive are the ranks that were not given up, ascending. Invariant: it only shrinks.
	alive []int

	// apart are the ranks that the source serves one by one, outside the group and the
	// overlay. Invariant: all of them are alive.
	apart []int

	// plan is the last one adopted.
	plan plan

	// halted reports whether a stop was acted on whose plan is not here yet. Invariant: while
	// it is set the rank posts no receive of the current message.
	halted bool

	// sources are the ranks that were sources so far, each once, the latest last.
	sources []int

	// unreachable is, by rank, the reason why its adapter could not be reached, or "". Invariant: it
	// never becomes "" again, as the connection of the probes is gone.
	unreachable []string
}

// plan holds the last plan step's decisions about the current message.
type plan struct {
	number  int   // of the step; -1: there was none
	seq     int   // the message that lacking is about
	lacking []int // who takes part in its overlay, the source included; nil: all that are not apart
}

// newMembership returns the membership at the start of a broadcast: all ranks are alive and
// none is apart.
func newMembership(me, size int) membership {
	m := membership{me: me, plan: plan{number: -1}, unreachable: make([]string, size)}
	for i := range size {
		m.alive = append(m.alive, i)
	}
	return m
}

// without returns the ranks of a list that are not among others.
func without(all []int, others ...int) (rest []int) {
	for _, i := range all {
		if !slices.Contains(others, i) {
			rest = append(rest, i)
		}
	}
	return rest
}

// lost reports whether this rank was given up.
func (m *membership) lost() bool { return !slices.Contains(m.alive, m.me) }

// isApart reports whether the source serves a rank one by one.
func (m *membership) isApart(i int) bool { return slices.Contains(m.apart, i) }

// together returns the ranks that the group or an overlay of all serves.
func (m *membership) together() []int { return without(m.alive, m.apart...) }

// others returns the ranks alive but for this one.
func (m *membership) others() []int { return without(m.alive, m.me) }

// sends records that a rank is the source from now on.
func (m *membership) sends(source int) { m.sources = append(without(m.sources, source), source) }

// lose gives a rank up.
func (m *membership) lose(i int) {
	m.alive, m.apart = without(m.alive, i), without(m.apart, i)
}

// adopt takes over the plan of a step.
func (m *membership) adopt(number int, st step) {
	m.alive, m.apart, m.halted = st.Alive, st.Apart, false
	m.plan = plan{number: number, seq: st.Seq, lacking: st.Lacking}
}

// lacking returns the ranks that take part in the overlay of a message according to the plan, or nil if
// the plan has none.
func (m *membership) lacking(seq int) []int {
	if m.plan.seq != seq {
		return nil
	}
	return m.plan.lacking
}
