// SPDX-License-Identifier: Apache-2.0

package mrp

import "testing"

// TestTurns: each turn is counted by itself.
func TestTurns(t *testing.T) {
	a := New(Config{})
	for i, turn := range []Turn{Fallback, Return, ProbeFailed, MemberLost} {
		for range i + 1 {
			a.Note(turn)
		}
	}
	if s := a.Stats(); s != (Stats{Fallbacks: 1, Returns: 2, ProbesFailed: 3, MembersLost: 4}) {
		t.Errorf("%+v", s)
	}
}
