// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
)

// Inject gives a simulation the lab's faults, nil if there are none. Those of each row wait for
// Timeline.BeginRow.
func Inject(n *sim.Net, l *lab.Lab) (*faults.Timeline, error) {
	specs, err := labspec.Timeline(l, n.Graph())
	if err != nil || len(specs) == 0 {
		return nil, err
	}
	run, row := labspec.Rows(l, specs)
	t := n.NewTimeline(vtime.Duration(l.Switches.Reconverge), run...)
	t.PerRow(row...)
	return t, nil
}

// timelines are the fault timelines of a simulation: that of a whole one, or that of each part of one and of
// their schedule. All have the same faults, each acts on the nodes and links of its own simulation.
type timelines []*faults.Timeline

// byRow reports whether there are faults that begin again with each row.
func (t timelines) byRow() bool { return len(t) > 0 && t[0].ByRow() }

// list returns the state of all faults, each once with the counts of all timelines.
func (t timelines) list(now vtime.Time) (all []faults.Status) {
	for i, one := range t {
		for k, s := range one.List(now) {
			switch {
			case i == 0:
				all = append(all, s)
			case s.Kind.OfFrames():
				all[k].Seen, all[k].Hit = all[k].Seen+s.Seen, all[k].Hit+s.Hit
			default: // every timeline has counted the same times
				all[k].Seen, all[k].Hit = max(all[k].Seen, s.Seen), all[k].Hit+s.Hit
			}
		}
	}
	return all
}

// beginFaults begins the faults of a row.
func (r *simulation) beginFaults() {
	now := r.net.Now()
	if p, parted := r.net.(*sim.Parts); parted {
		p.RestFaults()
	}
	for _, t := range r.faults {
		t.BeginRow(now)
	}
}

// FaultRow is one fault in a report, with the frames or nodes that it hit.
type FaultRow struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	What string `json:"what"` // as in a lab file
	Seen uint64 `json:"seen"` // frames it was tried on, or times it occurred
	Hit  uint64 `json:"hit"`
}

func faultRows(all []faults.Status) (rows []FaultRow) {
	for _, s := range all {
		rows = append(rows, FaultRow{s.ID, string(s.Kind), s.Text, s.Seen, s.Hit})
	}
	return rows
}
