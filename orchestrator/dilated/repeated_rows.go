// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import (
	"context"
	"fmt"

	"github.com/mcastlab/mcastlab/apps/registry"
	"github.com/mcastlab/mcastlab/lab"
)

const (
	// repeatsMax bounds how often a row is measured again because the clock was too fast for it.
	repeatsMax = 4
	// repeatSlower is the factor by which the clock slows down for each repetition.
	repeatSlower = 2
)

// repeatRows measures those of the last n rows again, on a slower clock, that the server was
// too late for: a short delay of the host spoils a row of few frames and need not cost the
// whole run. The earlier results are in the events, and the verdict says how often a row was
// repeated. A row is not repeated with a dilation that was asked for, with faults, whose times
// are fixed, nor with external hosts.
func (r *dilatedRun) repeatRows(ctx context.Context, w *lab.Workload, n int) error {
	if err := r.rowEnds(ctx, calibrationDilation, noRow); err != nil {
		return err
	}
	if r.fid.fixed > 0 || len(r.d.Lab.Faults) > 0 || len(r.d.Lab.Externals()) > 0 {
		return nil
	}
	rows := r.Report.Results
	for i := len(rows) - n; i < len(rows); i++ {
		for try := 1; try <= repeatsMax; try++ {
			share, _ := r.fid.share(i, rows[i])
			if share <= lagShare {
				break
			}
			one := w.Chosen().Kind.Only(&rows[i])
			if one == nil {
				break
			}
			if err := r.repeatRow(ctx, registry.Of(one), i, try); err != nil {
				return fmt.Errorf("measure %s %s again: %w", rows[i].Workload, rows[i].Scheme, err)
			}
		}
	}
	return nil
}

// repeatRow measures row i of the report once more.
func (r *dilatedRun) repeatRow(ctx context.Context, one lab.Workload, i, try int) error {
	w, err := r.prepareOne(fmt.Sprintf("again-%d-%d", i, try), one)
	if err != nil {
		return err
	}
	r.fid.forget(i)
	begun := false
	rows, _, err := r.Rows(w, r.clock.Now, func(emit func(int, []byte)) error {
		return r.job(ctx, w, emit, func(ctx context.Context, what string) error {
			r.progress.say("again: " + what)
			if begun {
				return nil
			}
			begun = true
			return r.rowEnds(ctx, r.fid.dil[i], i)
		})
	})
	if err != nil {
		return err
	}
	r.Report.Results[i] = rows[0]
	return r.rowEnds(ctx, calibrationDilation, noRow)
}
