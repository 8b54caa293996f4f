// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator"
)

// addFaults applies the faults of the run, and keeps those that come again in each row.
func (r *dilatedRun) addFaults(ctx context.Context) error {
	all, err := r.timeline()
	if err != nil {
		return err
	}
	var run []*nodeapi.Fault
	for i, f := range all {
		if labspec.InRun(r.d.Lab, i) {
			run = append(run, f)
		} else {
			r.perRow = append(r.perRow, f)
		}
	}
	origin := r.clock.Now()
	if err := r.Meet(r.d.Lab, r.d.Graph, origin); err != nil {
		return err
	}
	return r.d.AddFaults(ctx, run, origin)
}

// rowBegins applies the faults of a row. Their times count from now, shortly before the ranks start.
func (r *dilatedRun) rowBegins(ctx context.Context) error {
	now := r.clock.Now()
	r.RowBegins(now)
	return r.d.AddFaults(ctx, r.perRow, now)
}

// rowOver takes down what faults have hit until the end of a row. Unless the row is the last, its faults
// are lifted, and the lab has the time to drain.
func (r *dilatedRun) rowOver(ctx context.Context, last bool) error {
	if len(r.d.Lab.Faults) == 0 {
		return nil
	}
	lift := len(r.perRow) > 0 && !last
	if lift {
		if err := r.d.AwaitAgents(ctx); err != nil { // the end of an agent-crash is that of its process
			return err
		}
	}
	rows, err := r.faultRows(ctx)
	if err != nil {
		return err
	}
	if r.RowEnds(rows, lift); !lift {
		return nil
	}
	var ids []string
	for _, f := range r.perRow {
		ids = append(ids, f.Id)
	}
	if err := liftFaults(ctx, r.d, ids); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(r.clock.Wall(r.drains())):
		return nil
	}
}

// drains returns the lab time after which nothing is left of the row's faults: switches have the routes of
// the whole fabric again, and pauses have run out.
func (r *dilatedRun) drains() (d vtime.Duration) {
	for _, f := range r.perRow {
		switch k := faults.Kind(f.Kind); {
		case k == faults.KindLinkDown || k.Kills():
			d = max(d, vtime.Duration(r.d.Lab.Switches.Reconverge))
		case k == faults.KindPause || k == faults.KindPauseStorm:
			for i := range r.d.Graph.Links {
				d = max(d, faults.FullPause(r.d.Graph.Links[i].Rate))
			}
		}
	}
	return d
}

// faultRows returns what the lab's faults have hit so far, and those added by hand.
func (r *dilatedRun) faultRows(ctx context.Context) (rows []runner.FaultRow, err error) {
	all, err := r.d.Faults(ctx)
	for _, f := range all {
		rows = append(rows, runner.FaultRow{ID: f.Id, Kind: f.Kind, What: f.Text, Seen: f.Seen, Hit: f.Hit})
	}
	return rows, err
}

// liftFaults removes the faults with the given ids from all nodes.
func liftFaults(ctx context.Context, d *orchestrator.Deployed, ids []string) error {
	return d.Each(func(i int) error {
		if _, err := d.Nodes[i].ResetFaults(ctx, &nodeapi.ResetRequest{Ids: ids}); err != nil {
			return fmt.Errorf("lift the row's faults at node %s: %w", d.Nodes[i].Name, err)
		}
		return nil
	})
}

// row runs a workload, or a row of one, with its faults.
func (r *dilatedRun) row(ctx context.Context, w runner.Workload, last bool) error {
	if err := r.rowBegins(ctx); err != nil {
		return err
	}
	return r.Measure(w, r.clock.Now, func(emit func(int, []byte)) error {
		if err := r.ranks(ctx, w, emit); err != nil {
			return err
		}
		return r.rowOver(ctx, last)
	})
}

// ranks runs the ranks of a workload: in the nodes, or as programs of this server at them.
func (r *dilatedRun) ranks(ctx context.Context, w runner.Workload, emit func(int, []byte)) error {
	if k, is := r.d.Lab.Workloads[w.Of].Chosen().Kind.(apps.HostPrograms); is {
		return r.hostPrograms(ctx, w, k.HostProgram(), emit)
	}
	return r.job(ctx, w, emit, r.step)
}

// hostPrograms runs a program of this server at each rank of a workload. Their exit codes are results, and
// what keeps them from being started is an error.
func (r *dilatedRun) hostPrograms(ctx context.Context, w runner.Workload, p apps.HostProgram, emit func(int, []byte)) error {
	defer r.showProgress(ctx)()
	if err := r.step(ctx, w.Label); err != nil {
		return err
	}
	run, err := r.o.Runners.Programs(&orchestrator.ProgramJob{
		Deployed: r.d, Workload: w, Program: p, Folder: r.Folder, Now: r.clock.Now,
		Emit: func(rank int, record []byte) {
			if ctx.Err() == nil { // how programs of an interrupted run have ended says nothing of them
				emit(rank, record)
			}
		},
	})
	if err != nil {
		return err
	}
	timed, over := context.WithTimeoutCause(ctx, time.Duration(p.Timeout/1000), orchestrator.ErrTimeout)
	defer over()
	err = run(timed)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// timeline returns the lab file's faults. Their times count from the start of the
// workloads.
func (r *dilatedRun) timeline() (all []*nodeapi.Fault, err error) {
	for i := range r.d.Lab.Faults {
		f, err := r.d.FaultOf(&r.d.Lab.Faults[i], faults.LabPrefix+strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}
