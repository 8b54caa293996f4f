// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// TestRows: faults of each row begin at the same times after its start, and those in force when the row
// ends are lifted then, once.
func TestRows(t *testing.T) {
	s, tl := play(t, 0)
	tl.PerRow(
		Spec{ID: LabPrefix + "0", Kind: KindCrash, Window: Window{From: 5}, Nodes: []int{1}},
		Spec{ID: LabPrefix + "1", Kind: KindStall, Window: Window{From: 2, For: 2}, Nodes: []int{2}},
		Spec{ID: LabPrefix + "2", Kind: KindRoom, Window: Window{From: 500}, Nodes: []int{3}},
	)
	tl.Add(0, Spec{ID: LabPrefix + "3", Kind: KindSlowReceiver, Window: Window{From: 3}, Nodes: []int{0}, Rate: 9})
	for row, want := range []string{
		"2 stall 2 true, 3 intake 0 9, 4 stall 2 false, 5 restart 1, 5 carrier 1:0 false, 5 carrier 3:1 false, 105 routes without [1]; " +
			"200 carrier 1:0 true, 200 carrier 3:1 true, 300 routes without []",
		"302 stall 2 true, 304 stall 2 false, 305 restart 1, 305 carrier 1:0 false, 305 carrier 3:1 false, 405 routes without [1]; " +
			"500 carrier 1:0 true, 500 carrier 3:1 true, 600 routes without []",
	} {
		s.lines = nil
		start := vtime.Time(300 * row)
		tl.BeginRow(start)
		s.until(start + 200)
		during := strings.Join(s.lines, ", ")
		s.lines = nil
		tl.EndRow(start + 200)
		s.until(start + 300)
		if got := during + "; " + strings.Join(s.lines, ", "); got != want {
			t.Errorf("row %d: %s\nwant %s", row, got, want)
		}
		if left := tl.List(start + 300); len(left) != 1 || left[0].ID != LabPrefix+"3" || !left[0].On {
			t.Errorf("after row %d there are %v", row, left)
		}
	}
	var none *Timeline
	none.BeginRow(0)
	none.EndRow(0)
	if none.ByRow() || !tl.ByRow() {
		t.Error("a lab without faults has some in each row, or one with them none")
	}
}

// TestCame: a fault came in a row if it was in force at some time of it.
func TestCame(t *testing.T) {
	for _, c := range []struct {
		name             string
		s                Spec
		origin, from, to vtime.Time
		want             bool
	}{
		{"before the row", Spec{Kind: KindLoss, Window: Window{From: 10, For: 5}}, 0, 15, 99, false},
		{"still on", Spec{Kind: KindLoss, Window: Window{From: 10, For: 5}}, 0, 14, 99, true},
		{"to the end", Spec{Kind: KindLoss, Window: Window{From: 10}}, 0, 50, 99, true},
		{"at its last instant", Spec{Kind: KindLoss, Window: Window{From: 10}}, 0, 0, 10, true},
		{"after the row", Spec{Kind: KindLoss, Window: Window{From: 10}}, 0, 0, 9, false},
		{"from the row's start", Spec{Kind: KindLoss, Window: Window{From: 10}}, 100, 100, 109, false},
		{"and reached", Spec{Kind: KindLoss, Window: Window{From: 10}}, 100, 100, 110, true},
		{"between two occurrences", Spec{Kind: KindStall, Window: Window{From: 10, For: 2, Every: 10}}, 0, 12, 19, false},
		{"again", Spec{Kind: KindStall, Window: Window{From: 10, For: 2, Every: 10}}, 0, 12, 20, true},
		{"at once, long ago", Spec{Kind: KindRestart, Window: Window{From: 10}}, 0, 11, 20, false},
		{"at once, now", Spec{Kind: KindRestart, Window: Window{From: 10}}, 0, 10, 20, true},
		{"at once, again", Spec{Kind: KindWipe, Window: Window{From: 10, Every: 7}}, 0, 11, 17, true},
		{"at the end of time", Spec{Kind: KindLoss, Window: Window{From: vtime.Never - 1}}, 100, 100, 1 << 50, false},
		{"never", Spec{Kind: KindStall, Window: Window{From: 10, For: 1, Every: 10, Probability: 1e-12}}, 0, 0, 1000, false},
	} {
		if got := c.s.Came(1, c.origin, c.from, c.to); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
