// SPDX-License-Identifier: Apache-2.0

package vtime

// TimerTable holds the deadlines of one machine, one per slot. It never fires by
// itself: the machine reports Next as its deadline and asks Due when called.
//
// Next is a lower bound. Setting a deadline later than it was (as every acknowledgement does to a
// retransmission timer) leaves Next alone and costs nothing; the price is one early call of the
// machine, which finds nothing due and moves on.
type TimerTable struct {
	at    []Time
	floor Time
}

// NewTimerTable returns a table of n slots, none armed.
func NewTimerTable(n int) TimerTable {
	t := TimerTable{floor: Never}
	t.Grow(n)
	return t
}

// Grow adds slots until there are n.
func (t *TimerTable) Grow(n int) {
	for len(t.at) < n {
		t.at = append(t.at, Never)
	}
}

// Shrink removes the slots from n on.
func (t *TimerTable) Shrink(n int) { t.at = t.at[:n] }

// Move gives a slot the deadline of another one, which is disarmed.
func (t *TimerTable) Move(from, to int) {
	t.at[to] = t.at[from]
	t.at[from] = Never
}

// Len returns the number of slots, Armed the number of armed ones.
func (t *TimerTable) Len() int { return len(t.at) }

// Armed returns the number of armed slots.
func (t *TimerTable) Armed() (n int) {
	for _, at := range t.at {
		if at != Never {
			n++
		}
	}
	return n
}

// Set arms the slot for instant at, replacing an earlier deadline.
func (t *TimerTable) Set(slot int, at Time) {
	t.at[slot] = at
	if at < t.floor {
		t.floor = at
	}
}

// Stop disarms the slot.
func (t *TimerTable) Stop(slot int) { t.at[slot] = Never }

// At returns the slot's deadline, or Never.
func (t *TimerTable) At(slot int) Time { return t.at[slot] }

// Visit calls visit with the deadline of each slot, and then with the lower bound of Next. It may change them.
func (t *TimerTable) Visit(visit func(at *Time)) {
	for i := range t.at {
		visit(&t.at[i])
	}
	visit(&t.floor)
}

// Next returns an instant not later than the earliest deadline; armed is false if
// no slot can be armed.
func (t *TimerTable) Next() (at Time, armed bool) { return t.floor, t.floor != Never }

// Due disarms and returns the lowest slot whose deadline is not after now. Call it
// until ok is false; only then is Next exact again.
func (t *TimerTable) Due(now Time) (slot int, ok bool) {
	if t.floor > now {
		return 0, false
	}
	next := Never
	for i, at := range t.at {
		if at <= now {
			t.at[i] = Never
			return i, true
		}
		if at < next {
			next = at
		}
	}
	t.floor = next
	return 0, false
}
