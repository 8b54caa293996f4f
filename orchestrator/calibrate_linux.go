package orchestrator

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/mcastlab/mcastlab/counters"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/runner"
)

// Dilations of the calibration: one so slow that any machine keeps up, to see how late
// frames are when there is no hurry, and one so fast that none does, to see what a frame
// costs when there is always another.
const (
	calibrationDilation = 8000
	saturatingDilation  = 200
)

// lagTrials is how often the lag of a scheme is measured. The smaller counts: the other
// may be a hiccup of the host's, which would make all that follows slower by far, and a
// row for which it was too little is measured again.
const lagTrials = 2

// carryTrials is how often it is tried what a frame costs before a rate is refused. The
// smallest counts: a process uses for the first time what it has, and the host has hiccups.
const carryTrials = 4

// trialKind is a smaller form of a workload, run to see what the host can do.
type trialKind struct {
	name   string
	change func(*lab.Bcast)                                  // what of the workload is tried; without schemes nothing
	ended  func(w *lab.Workload, schemes []lab.Scheme) error // nil, or called after each workload
}

// calibrate runs small messages of each scheme for its lag, and then a large one for the
// cost of a frame.
func (r *liveRun) calibrate(ctx context.Context) error {
	most := 1
	for _, w := range r.d.Lab.Workloads {
		most = max(most, len(trialOf(&w).Schemes))
	}
	for i := range most * lagTrials {
		k := i / lagTrials
		_, _, err := r.trial(ctx, trialKind{
			name: fmt.Sprintf("lag-%d", i),
			change: func(b *lab.Bcast) {
				b.Sizes, b.Schemes = []lab.Size{4 << 10, 32 << 10}, b.Schemes[min(k, len(b.Schemes)):min(k+1, len(b.Schemes))]
			},
			ended: func(w *lab.Workload, schemes []lab.Scheme) error {
				lag, err := r.pace.set(ctx, calibrationDilation)
				r.fid.saw(w.Label(), schemes[0].Label, lag.P99())
				return err
			},
		})
		if err != nil {
			return err
		}
	}
	if _, err := r.pace.set(ctx, saturatingDilation); err != nil {
		return err
	}
	busy, frames, err := r.trial(ctx, trialKind{
		name:   "cost",
		change: func(b *lab.Bcast) { b.Schemes, b.Sizes = b.Schemes[:1], []lab.Size{512 << 10} },
	})
	if err != nil {
		return err
	}
	if _, err := r.pace.set(ctx, calibrationDilation); err != nil {
		return err
	}
	r.fid.calibrated(busy, frames, r.o.Slower)
	r.Events.Note(r.pace.now(), "calibrated", map[string]any{"lag_wall_us": r.fid.seen(), "cpu_us_per_hop": r.fid.hopS * 1e6})
	return nil
}

// trialOf returns the broadcast that stands for a workload in a trial: what is measured is
// the host, not the workload.
func trialOf(w *lab.Workload) lab.Bcast {
	switch {
	case w.Bcast != nil:
		return *w.Bcast
	case w.Allgather != nil:
		return lab.Bcast{Label: w.Allgather.Label, Schemes: w.Allgather.Schemes}
	}
	ranks := lab.Hosts(nil)
	switch {
	case w.HPL != nil:
		ranks = w.HPL.Ranks
	case w.Program != nil:
		ranks = w.Program.Ranks
	case w.ReduceScatter != nil:
		ranks = w.ReduceScatter.Ranks
	case w.FSDP != nil:
		ranks = w.FSDP.Ranks
	case w.Storage != nil:
		ranks = w.Storage.Ranks
	}
	return lab.Bcast{Label: w.Label(), Ranks: ranks, Schemes: []lab.Scheme{{Name: "unicast", Label: "unicast"}}, Memory: "auto"}
}

// smaller returns the form of a workload that a trial runs, and its schemes.
func (r *liveRun) smaller(w *lab.Workload, change func(*lab.Bcast)) (lab.Workload, []lab.Scheme) {
	b := trialOf(w)
	b.Iterations, b.WarmUp = 3, 0
	change(&b)
	a := w.Allgather
	if a == nil {
		return lab.Workload{Bcast: &b}, b.Schemes
	}
	all := *a
	all.Iterations, all.WarmUp, all.Sizes = b.Iterations, 0, nil
	if len(b.Schemes) == 0 || slices.ContainsFunc(a.Schemes, func(s lab.Scheme) bool { return s.Label == b.Schemes[0].Label }) {
		all.Schemes = b.Schemes
	} else { // of a broadcast
		all.Schemes = a.Schemes[:1]
	}
	for _, s := range b.Sizes { // over all ranks
		all.Sizes = append(all.Sizes, max(1, s/lab.Size(len(a.Ranks.Resolve(r.d.Graph)))))
	}
	return lab.Workload{Allgather: &all}, all.Schemes
}

// trial runs the lab's workloads in a smaller form and returns the seconds of CPU time it
// took from the second iteration on, and the frames that were sent.
func (r *liveRun) trial(ctx context.Context, kind trialKind) (busy float64, frames uint64, err error) {
	found, err := r.d.o.Engine.Find(ctx, r.d.Lab.Name)
	if err != nil {
		return 0, 0, err
	}
	var pids []int
	for _, n := range found {
		pids = append(pids, n.PID)
	}
	for i := range r.d.Lab.Workloads {
		w := &r.d.Lab.Workloads[i]
		small, schemes := r.smaller(w, kind.change)
		if len(schemes) == 0 {
			continue
		}
		b, n, err := r.tryOne(ctx, kind, small, pids)
		if err == nil && kind.ended != nil {
			err = kind.ended(w, schemes)
		}
		if err != nil {
			return 0, 0, err
		}
		busy, frames = busy+b, frames+n
	}
	return busy, frames, nil
}

// tryOne runs one workload of a trial. The first iteration, in which a process uses for
// the first time what it has, is not what is tried.
func (r *liveRun) tryOne(ctx context.Context, kind trialKind, one lab.Workload, pids []int) (busy float64, frames uint64, err error) {
	w, err := r.prepareOne(kind.name, one)
	if err != nil {
		return 0, 0, err
	}
	step, from, sent := 0, 0.0, uint64(0)
	err = r.job(ctx, w, func(int, []byte) {}, func(ctx context.Context, _ string) error {
		if step++; step != 2 {
			return nil
		}
		states, err := r.d.States(ctx)
		if err == nil && kind.ended != nil {
			_, err = r.pace.set(ctx, calibrationDilation) // what was late until now is dropped
		}
		from, sent = busySeconds(pids), counters.Sent(states)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	busy = busySeconds(pids) - from
	states, err := r.d.States(ctx)
	if err != nil {
		return 0, 0, err
	}
	return busy, counters.Sent(states) - sent, nil
}

// prepareOne makes a workload ready that the lab file does not have in this form. Its
// groups and connections are named after the suffix.
func (r *liveRun) prepareOne(suffix string, one lab.Workload) (runner.Workload, error) {
	l, err := lab.Parse(suffix, r.d.Lab.Resolved())
	if err != nil {
		return runner.Workload{}, err
	}
	l.Workloads = []lab.Workload{one}
	all, err := runner.Prepare(l, r.d.Graph, runner.Apps{})
	if err != nil {
		return runner.Workload{}, err
	}
	all[0].Label += "-" + suffix
	return all[0], nil
}

// carries makes sure that the host keeps up with the lab at dilation 1, by what a frame
// costs between the lab's own hosts. A lab with fewer than two of those is not tried.
func (r *liveRun) carries(ctx context.Context) error {
	var own lab.Hosts
	for i := range r.d.Graph.Hosts {
		if n := r.d.Graph.Nodes[i].Name; r.d.Lab.ExternalHost(n) == nil {
			own = append(own, n)
		}
	}
	if len(own) < 2 {
		return nil
	}
	need := math.Inf(1)
	for i := 0; i < carryTrials && need > carryShare; i++ {
		busy, frames, err := r.trial(ctx, trialKind{name: fmt.Sprintf("cost-%d", i), change: func(b *lab.Bcast) {
			b.Ranks, b.Root, b.Schemes, b.Sizes = own, own[0], []lab.Scheme{{Name: "unicast"}}, []lab.Size{512 << 10}
			b.Operation, b.Group = "send", ""
		}})
		if err != nil {
			return fmt.Errorf("calibrate: %w", err)
		}
		need = min(need, r.fid.need(busy/float64(max(frames, 1))))
	}
	if need > carryShare {
		rate := lab.Rate(round2Down(float64(r.d.Lab.Links.Rate) * cpuShare / need))
		return &lab.Error{File: "lab " + r.d.Lab.Name, Text: fmt.Sprintf(
			"external hosts need dilation 1, at which this machine does not carry links.rate of %v: use %v or less",
			r.d.Lab.Links.Rate, rate)}
	}
	return nil
}
