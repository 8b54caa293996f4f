// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// PerRow gives the timeline the faults that begin again with each row of a run's results, so that all rows
// meet the same. Their times count from BeginRow.
func (t *Timeline) PerRow(specs ...Spec) { t.perRow = specs }

// ByRow reports whether there are faults of PerRow. Like BeginRow and EndRow it may be called of a nil
// Timeline, which has none.
func (t *Timeline) ByRow() bool { return t != nil && len(t.perRow) > 0 }

// BeginRow adds the faults of PerRow, with the random numbers that they have in every row.
func (t *Timeline) BeginRow(now vtime.Time) {
	if !t.ByRow() {
		return
	}
	for _, s := range t.perRow {
		s.From = s.From.Add(vtime.Duration(now))
		t.Add(now, s)
	}
}

// EndRow removes the faults of PerRow and undoes their effects: links are up, adapters resume, crashed
// nodes restart empty.
func (t *Timeline) EndRow(now vtime.Time) {
	if !t.ByRow() {
		return
	}
	t.RemoveIf(now, func(id string) bool {
		return slices.ContainsFunc(t.perRow, func(s Spec) bool { return s.ID == id })
	})
}

// Came reports whether the fault, whose times count from origin in a lab with the given seed, is on at some
// time between two instants, or occurs then if it has no duration.
func (s *Spec) Came(seed uint64, origin, from, to vtime.Time) bool {
	root := prng.New(seed)
	w := s.Window
	w.From = w.From.Add(vtime.Duration(origin))
	w.Random = root.Derive(timesOf(s.ID))
	if s.Kind.Lasts() && w.On(from) {
		return true
	}
	k := int64(0)
	if w.Every > 0 && from > w.From {
		k = int64((from.Sub(w.From)-1)/w.Every) + 1
	}
	_, at, ok := w.next(k)
	return ok && at >= from && at <= to
}
