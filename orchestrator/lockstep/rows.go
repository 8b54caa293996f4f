// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lockstep

import (
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator"
)

// release has the nodes destroy what the ranks of a row have left, and lifts the faults of the row unless it
// is the last.
func (r *lockstepRun) release(last bool) error {
	lift := r.timeline.ByRow() && !last
	if lift {
		if err := r.rowEnds(true); err != nil {
			return err
		}
		r.coord.RestFaults()
		r.timeline.EndRow(r.now)
	}
	if err := r.tell(&nodeapi.Order{What: &nodeapi.Order_Release{Release: lift}}); err != nil {
		return err
	}
	if err := r.drain(); err != nil || lift {
		return err
	}
	return r.rowEnds(false)
}

// rowEnds takes down what faults have hit until the end of a row.
func (r *lockstepRun) rowEnds(gone bool) error {
	if len(r.d.Lab.Faults) == 0 {
		return nil
	}
	if err := r.tell(&nodeapi.Order{What: &nodeapi.Order_Look{Look: true}}); err != nil {
		return err
	}
	r.RowEnds(r.faultRows(), gone)
	return nil
}

// faultRows returns the nodes' reports of faults.
func (r *lockstepRun) faultRows() (rows []runner.FaultRow) {
	for _, f := range orchestrator.MergeFaults(r.faultLists()) {
		rows = append(rows, runner.FaultRow{ID: f.Id, Kind: f.Kind, What: f.Text, Seen: f.Seen, Hit: f.Hit})
	}
	return rows
}
