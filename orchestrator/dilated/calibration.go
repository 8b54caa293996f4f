// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import (
	"context"
	"fmt"
	"math"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/registry"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator"
)

// Dilations of the calibration. One is so slow that any server keeps up, and shows how late
// frames are without load. The other is so fast that no server keeps up, and shows what a
// frame costs when there is always another one to send.
const (
	calibrationDilation = 8000
	saturatingDilation  = 200
)

// lagTrials is the number of measurements of a scheme's lag. The smallest counts: a larger one may
// be a delay of this server, which would slow the rest of the run. A row for which the smallest was
// too little is measured again.
const lagTrials = 2

// carryTrials is the number of measurements of a frame's cost before a rate is refused. The
// smallest counts: a process is slow at first (page faults, caches), and the server has delays.
const carryTrials = 4

// trialKind is a smaller form of the workloads, run to see what the host can do.
type trialKind struct {
	name  string
	form  apps.Trial                                 // a workload without a scheme of its index is left out
	ended func(w *lab.Workload, scheme string) error // nil, or called after each workload
}

// calibrate runs small messages of each scheme for its lag, and then a large one for the
// cost of a frame.
func (r *dilatedRun) calibrate(ctx context.Context) error {
	for i := range r.schemes() * lagTrials {
		_, _, err := r.trial(ctx, trialKind{
			name: fmt.Sprintf("lag-%d", i),
			form: apps.Trial{Scheme: i / lagTrials, Sizes: []lab.Size{4 << 10, 32 << 10}},
			ended: func(w *lab.Workload, scheme string) error {
				lag, err := r.clock.SetRate(ctx, calibrationDilation)
				r.fid.saw(w.Label(), scheme, lag.P99()+r.d.Access.ClockUncertainty())
				return err
			},
		})
		if err != nil {
			return err
		}
	}
	if _, err := r.clock.SetRate(ctx, saturatingDilation); err != nil {
		return err
	}
	busy, frames, err := r.trial(ctx, trialKind{name: "cost", form: apps.Trial{Sizes: []lab.Size{512 << 10}}})
	if err != nil {
		return err
	}
	if _, err := r.clock.SetRate(ctx, calibrationDilation); err != nil {
		return err
	}
	r.fid.calibrated(busy, frames, r.o.Slower)
	r.Events.Note(r.clock.Now(), "calibrated", map[string]any{"lag_wall_us": r.fid.seen(), "cpu_us_per_hop": r.fid.hopS * 1e6})
	return nil
}

// schemes returns how many schemes a workload has at the most that are tried.
func (r *dilatedRun) schemes() (most int) {
	for i := range r.d.Lab.Workloads {
		for n := 0; ; n++ {
			if one, _ := r.d.Lab.Workloads[i].Trial(apps.Trial{Graph: r.d.Graph, Scheme: n}); one == nil {
				most = max(most, n)
				break
			}
		}
	}
	return most
}

// trial runs the lab's workloads in a smaller form and returns the seconds of CPU time it
// took from the second iteration on, and the frames that were sent.
func (r *dilatedRun) trial(ctx context.Context, kind trialKind) (busy float64, frames uint64, err error) {
	kind.form.Graph = r.d.Graph
	for i := range r.d.Lab.Workloads {
		w := &r.d.Lab.Workloads[i]
		small, scheme := w.Trial(kind.form)
		if small == nil {
			continue
		}
		b, n, err := r.tryOne(ctx, kind, registry.Of(small))
		if err == nil && kind.ended != nil {
			err = kind.ended(w, scheme)
		}
		if err != nil {
			return 0, 0, err
		}
		busy, frames = busy+b, frames+n
	}
	return busy, frames, nil
}

// tryOne runs one workload of a trial. The first iteration, in which a process is slow (page
// faults, caches), is not measured.
func (r *dilatedRun) tryOne(ctx context.Context, kind trialKind, one lab.Workload) (busy float64, frames uint64, err error) {
	w, err := r.prepareOne(kind.name, one)
	if err != nil {
		return 0, 0, err
	}
	step, from, sent := 0, []float64(nil), uint64(0)
	err = r.job(ctx, w, func(int, []byte) {}, func(ctx context.Context, _ string) error {
		if step++; step != 2 {
			return nil
		}
		states, err := r.d.States(ctx)
		if err == nil && kind.ended != nil {
			_, err = r.clock.SetRate(ctx, calibrationDilation) // drops the lag recorded until now
		}
		if err == nil {
			from, err = r.d.Access.CPUTime(ctx)
		}
		sent = counters.Sent(states)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	to, err := r.d.Access.CPUTime(ctx)
	if err != nil {
		return 0, 0, err
	}
	busy = r.d.Access.CPUTimeMost(from, to)
	states, err := r.d.States(ctx)
	if err != nil {
		return 0, 0, err
	}
	return busy, counters.Sent(states) - sent, nil
}

// prepareOne makes a workload ready that the lab file does not have in this form. Its
// groups and connections are named after the suffix.
func (r *dilatedRun) prepareOne(suffix string, one lab.Workload) (runner.Workload, error) {
	l, err := lab.Parse(suffix, r.d.Lab.Resolved())
	if err != nil {
		return runner.Workload{}, err
	}
	l.Workloads = []lab.Workload{one}
	all, err := runner.Prepare(l, r.d.Graph, apps.Env{})
	if err != nil {
		return runner.Workload{}, err
	}
	all[0].Label += "-" + suffix
	return all[0], nil
}

// carries makes sure that the host keeps up with the lab at dilation 1, by what a frame
// costs between the lab's own hosts. A lab with fewer than two of those is not tried.
func (r *dilatedRun) carries(ctx context.Context) error {
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
		busy, frames, err := r.trial(ctx, trialKind{name: fmt.Sprintf("cost-%d", i), form: apps.Trial{Among: own, Sizes: []lab.Size{512 << 10}}})
		if err != nil {
			return fmt.Errorf("calibrate: %w", err)
		}
		need = min(need, r.fid.need(busy/float64(max(frames, 1))))
	}
	if need > carryShare {
		rate := lab.Rate(orchestrator.Round2Down(float64(r.d.Lab.Links.Rate) * cpuShare / need))
		return &lab.Error{File: "lab " + r.d.Lab.Name, Text: fmt.Sprintf(
			"external hosts need dilation 1, at which this server cannot carry links.rate of %v: use %v or less",
			r.d.Lab.Links.Rate, rate)}
	}
	return nil
}
