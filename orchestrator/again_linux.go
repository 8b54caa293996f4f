package orchestrator

import (
	"context"
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/lab"
)

const (
	// againMax is how often a row is measured again that the clock was too fast for.
	againMax = 4
	// againSlower is by how much slower each time.
	againSlower = 2
)

// again measures those of the last n rows again, on a slower clock, that the machine was
// too late for: a short hiccup of the host spoils a row of few frames and need not cost the
// whole run. What they were before is in the events, and how often a row was repeated is in
// the verdict. A dilation that was asked for is kept, and with faults, which have their
// time, or external hosts there is no second time.
func (r *liveRun) again(ctx context.Context, w *lab.Workload, n int) error {
	if err := r.rowEnds(ctx, calibrationDilation, noRow); err != nil {
		return err
	}
	if r.fid.fixed > 0 || len(r.timeline()) > 0 || len(r.d.Lab.Externals()) > 0 {
		return nil
	}
	rows := r.Report.Results
	for i := len(rows) - n; i < len(rows); i++ {
		for try := 1; try <= againMax; try++ {
			share, _ := r.fid.share(i, rows[i])
			if share <= lagShare {
				break
			}
			one, ok := only(w, rows[i])
			if !ok {
				break
			}
			if err := r.rowAgain(ctx, one, i, try); err != nil {
				return fmt.Errorf("measure %s %s again: %w", rows[i].Workload, rows[i].Scheme, err)
			}
		}
	}
	return nil
}

// only returns a workload that has one row of another; not of HPL, whose tests share a
// grid, and not of a program, which is one.
func only(w *lab.Workload, row apps.Row) (lab.Workload, bool) {
	pick := func(all []lab.Scheme) []lab.Scheme {
		for i := range all {
			if all[i].Label == row.Scheme {
				return all[i : i+1]
			}
		}
		return nil
	}
	sizes := []lab.Size{lab.Size(row.SizeBytes)}
	switch {
	case w.Bcast != nil:
		b := *w.Bcast
		b.Schemes, b.Sizes = pick(b.Schemes), sizes
		return lab.Workload{Bcast: &b}, b.Schemes != nil
	case w.Allgather != nil:
		a := *w.Allgather
		a.Schemes, a.Sizes = pick(a.Schemes), sizes
		return lab.Workload{Allgather: &a}, a.Schemes != nil
	case w.ReduceScatter != nil:
		a := *w.ReduceScatter
		a.Schemes, a.Sizes = pick(a.Schemes), sizes
		return lab.Workload{ReduceScatter: &a}, a.Schemes != nil
	case w.FSDP != nil:
		f := *w.FSDP
		i := slices.IndexFunc(f.Schemes, func(x lab.Pair) bool { return x.Label == row.Scheme })
		if i < 0 {
			return lab.Workload{}, false
		}
		f.Schemes, f.Sizes = f.Schemes[i:i+1], sizes
		return lab.Workload{FSDP: &f}, true
	}
	return lab.Workload{}, false
}

// rowAgain measures row i of the report once more.
func (r *liveRun) rowAgain(ctx context.Context, one lab.Workload, i, try int) error {
	w, err := r.prepareOne(fmt.Sprintf("again-%d-%d", i, try), one)
	if err != nil {
		return err
	}
	r.fid.forget(i)
	begun := false
	rows, _, err := r.Rows(w, r.pace.now, func(emit func(int, []byte)) error {
		return r.job(ctx, w, emit, func(ctx context.Context, what string) error {
			r.shown.say("again: " + what)
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
