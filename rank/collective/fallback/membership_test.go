// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"slices"
	"testing"
)

// TestMembership: who is lost is in no list any more, who is apart is not served together with the
// others, and a plan replaces the earlier membership.
func TestMembership(t *testing.T) {
	m := newMembership(1, 5)
	if m.lost() || !slices.Equal(m.others(), []int{0, 2, 3, 4}) || len(m.apart) != 0 {
		t.Fatalf("at first: %+v", m)
	}
	m.halted = true
	m.adopt(7, step{Seq: 3, Alive: []int{0, 1, 2, 4}, Apart: []int{2, 4}, Lacking: []int{0, 1}})
	if m.halted || !m.isApart(2) || m.isApart(1) || !slices.Equal(m.together(), []int{0, 1}) {
		t.Errorf("after the plan: %+v", m)
	}
	m.lose(2)
	if m.isApart(2) || slices.Contains(m.alive, 2) || !slices.Equal(m.apart, []int{4}) {
		t.Errorf("after a loss: %+v", m)
	}
	m.adopt(8, step{Seq: 3, Alive: []int{0, 4}})
	if !m.lost() || len(m.apart) != 0 {
		t.Errorf("given up: %+v", m)
	}
}

// TestLacking: a plan lists the ranks that lack its own message, and says nothing of other messages.
func TestLacking(t *testing.T) {
	m := newMembership(0, 3)
	if m.lacking(0) != nil {
		t.Error("without a plan somebody lacks a message")
	}
	m.adopt(1, step{Seq: 4, Alive: m.alive, Lacking: []int{0, 2}})
	if got := m.lacking(4); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("%v lack the message of the plan", got)
	}
	if got := m.lacking(5); got != nil {
		t.Errorf("%v lack the message after it", got)
	}
}

// TestSources: each source is listed once, the latest last.
func TestSources(t *testing.T) {
	m := newMembership(0, 4)
	for _, i := range []int{2, 0, 2, 3, 0} {
		m.sends(i)
	}
	if !slices.Equal(m.sources, []int{2, 3, 0}) {
		t.Errorf("sources %v", m.sources)
	}
}
