// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// epochs are the groups of the broadcast, one after the other. Each has a number, a McstID and
// queue pairs of its own.
type epochs struct {
	*site

	// begun is the number of the next epoch. Invariant: it is above that of current and of
	// candidate, and the same on all ranks that have acted on the same steps.
	begun int

	// current is the group in use; nil: there is none. Invariant: its registration has ended
	// well, and it was not abandoned.
	current *epoch

	// candidate is the group that is being registered, or waits for its test; nil: there is
	// none, or this rank is not in it.
	candidate *epoch

	// backoff decides when the next group may be tried. It travels in each step, from one source to the
	// next.
	backoff backoff
}

// epoch is one group.
type epoch struct {
	number  int
	members []int // the first of them registers the group
	view    *rank.Rank
	group   *rank.Group
	since   vtime.Time // when the registration began

	// ended reports whether the registration has ended; err is its error.
	ended bool
	err   error

	// abandoned reports whether this rank has left the group. A registration that ends later
	// leaves it once more, as only then there is something to leave.
	abandoned bool
}

// has reports whether a rank is in the group. There may be none.
func (g *epoch) has(i int) bool { return g != nil && slices.Contains(g.members, i) }

// register begins to register a group of these ranks, which becomes the candidate, in place of
// the one there was.
func (e *epochs) register(number int, members []int) error {
	e.drop()
	e.begun = number + 1
	if !slices.Contains(members, e.me()) {
		return nil
	}
	view, err := e.r.Sub(e.key("epoch/%d", number), members)
	if err != nil {
		return err
	}
	view.Survive()
	c := &epoch{number: number, members: members, view: view, group: view.PrepareGroup("tree", 0), since: e.r.Now()}
	e.candidate = c
	e.r.Go("registration", func() error {
		c.err = c.group.Join()
		c.ended = true
		if c.abandoned {
			e.leave(c)
		}
		return nil
	})
	return nil
}

// drop leaves the candidate.
func (e *epochs) drop() {
	e.leave(e.candidate)
	e.candidate = nil
}

// leaveCurrent leaves the group in use.
func (e *epochs) leaveCurrent() {
	e.leave(e.current)
	e.current = nil
}

// leave takes the rank out of a group, if there is one. Afterwards its queue pair is
// destroyed, and all completions have been taken.
func (e *epochs) leave(g *epoch) {
	if g == nil {
		return
	}
	g.abandoned = true
	if e.me() == g.members[0] {
		_ = g.group.Drop() // switches that cannot be reached keep the group, but nothing is sent to it any more
	} else {
		g.group.Abandon()
	}
	rankrun.Of(e.r).LookOver(0, "", []*rank.Rank{g.view}, func() bool { return true })
	if g.ended { // else the rank leaves when the registration ends
		g.view.Close()
	}
}

// promote takes the candidate into use if it is the epoch of that number. It reports whether
// it was.
func (e *epochs) promote(number int) bool {
	if e.candidate == nil || e.candidate.number != number {
		return false
	}
	e.current, e.candidate = e.candidate, nil
	return true
}

// wanted returns the ranks that should form the next group, or nil if no group need be tried.
// fast reports whether a rank that is apart may return to the group.
func (e *epochs) wanted(m *membership, partial bool, fast func(i int) bool) []int {
	members := m.alive
	if partial {
		members = slices.DeleteFunc(slices.Clone(members), func(i int) bool { return m.isApart(i) && !fast(i) })
	}
	if len(members) < 2 || !slices.Contains(members, m.me) || e.current != nil && slices.Equal(e.current.members, members) {
		return nil
	}
	return members
}

// due reports whether a group may be tried now.
func (e *epochs) due(now vtime.Time) bool { return e.candidate == nil && now >= e.backoff.At }

// stuckWindows is the number of windows after which a registration that has not ended is given
// up. The registrar gives up sooner, unless a member never joins.
const stuckWindows = 1000

// readiness is the state of a candidate.
type readiness int

// Readiness of a candidate.
const (
	registering readiness = iota // it may still be registered
	refused                      // it cannot be used
	registered                   // it can be tested
)

// ready returns how far the candidate has come and, if it was refused, why.
func (g *epoch) ready(now vtime.Time, window vtime.Duration) (how readiness, why string) {
	stuck := now > g.since.Add(stuckWindows*window)
	switch {
	case !g.ended && !stuck:
		return registering, ""
	case !g.ended:
		return refused, "its registration does not end"
	case g.err != nil:
		return refused, g.err.Error()
	}
	return registered, ""
}

// sendersMax is the largest number of members that send in a test.
const sendersMax = testWindows

// senders returns the members that send in a test of the group: the source that left the last
// group, this rank, and recent sources. A group that works from one rank may not work from
// another.
func (g *epoch) senders(m *membership, left int) (all []int) {
	add := func(i int) {
		if g.has(i) && !slices.Contains(all, i) && len(all) < sendersMax {
			all = append(all, i)
		}
	}
	add(left)
	add(m.me)
	for _, i := range slices.Backward(m.sources) {
		add(i)
	}
	return all
}
