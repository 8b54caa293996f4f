// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// Act is something done by hand in a run in virtual time: a fault is added, or faults are removed. It is
// a call of the timeline, and so it may be put off as one that begins a fault.
type Act struct {
	At    vtime.Time      `json:"at"` // lab time, in picoseconds
	ID    string          `json:"id,omitempty"`
	Text  string          `json:"text,omitempty"`  // the fault, as in a lab file
	Fault json.RawMessage `json:"fault,omitempty"` // the fault (Encode), whose times count from At
	Reset *string         `json:"reset,omitempty"` // faults whose id begins so are removed; no fault is added
}

// Apply makes a timeline act. note, which may be nil, is called for each fault when it is added, and when
// it is removed. controllers are the names of the lab's controllers.
func (a *Act) Apply(t *Timeline, g *topo.Graph, controllers []string, note func(now vtime.Time, added bool, text string)) error {
	if note == nil {
		note = func(vtime.Time, bool, string) {}
	}
	if a.Reset != nil {
		t.t.Clock.At(a.At, KeepNot, func(now vtime.Time) {
			for _, id := range t.Remove(now, *a.Reset) {
				note(now, false, id)
			}
		})
		return nil
	}
	s, err := Decode(a.Fault, g, controllers)
	if err != nil {
		return fmt.Errorf("fault %s, added by hand: %w", a.ID, err)
	}
	s.ID, s.Text, s.From = a.ID, a.Text, s.From.Add(vtime.Duration(a.At))
	t.t.Clock.At(a.At, KeepNot, func(now vtime.Time) {
		t.Add(now, s)
		note(now, true, s.ID+": "+s.Text)
	})
	return nil
}
