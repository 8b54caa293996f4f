package runner

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/labspec"
	"github.com/mcastlab/mcastlab/lab"
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

// FaultRow is one fault in a report, with the frames or nodes that it hit.
type FaultRow struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	What string `json:"what"` // as a lab file says it
	Seen uint64 `json:"seen"` // frames it was tried on, or times it occurred
	Hit  uint64 `json:"hit"`
}

func faultRows(all []faults.Status) (rows []FaultRow) {
	for _, s := range all {
		rows = append(rows, FaultRow{s.ID, string(s.Kind), s.Text, s.Seen, s.Hit})
	}
	return rows
}
