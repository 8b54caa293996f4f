// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"fmt"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/rank"
)

// Step is one iteration as measured by a rehearsal.
type Step struct {
	Row  int    // index into the rehearsal's rows
	Hops uint64 // frames that crossed a link
}

// Rehearsal holds the result of simulating a lab before it runs in real time: the duration of each row and the number of
// frames that cross a link, with which the running lab must keep up.
type Rehearsal struct {
	Rows  []apps.Row
	Steps []Step

	carried []uint64 // bytes by link, both directions together; nil unless Traffic asks
}

// Traffic rehearses a lab and returns the number of bytes that each link carries, in both directions
// together.
func Traffic(ctx context.Context, l *lab.Lab, env apps.Env) ([]uint64, error) {
	r, err := rehearse(ctx, l, env, nil, true)
	if err != nil {
		return nil, err
	}
	return r.carried, nil
}

// Hops returns the number of frames that crossed a link in all steps.
func (r *Rehearsal) Hops() (all uint64) {
	for _, s := range r.Steps {
		all += s.Hops
	}
	return all
}

// Rehearse runs a lab's workloads on the event clock and keeps only the times and the frame counts. If
// the lab's faults make a workload fail, it rehearses without them. say, if not nil, prints to the user
// immediately.
func Rehearse(ctx context.Context, l *lab.Lab, env apps.Env, say func(format string, args ...any)) (*Rehearsal, error) {
	r, err := rehearse(ctx, l, env, say, false)
	if err == nil || len(l.Faults) == 0 || ctx.Err() != nil {
		return r, err
	}
	healthy := *l
	healthy.Faults = nil
	return rehearse(ctx, &healthy, env, say, false)
}

// rehearse is Rehearse with the lab's faults. Links count their bytes if count is set, which takes longer.
func rehearse(ctx context.Context, l *lab.Lab, env apps.Env, say func(format string, args ...any), count bool) (*Rehearsal, error) {
	g, err := labspec.Graph(l)
	if err != nil {
		return nil, fmt.Errorf("build topology: %w", err)
	}
	n, err := sim.New(sim.Config{Spec: labspec.Fabric(l, g), NoDigest: !count})
	if err != nil {
		return nil, fmt.Errorf("build lab: %w", err)
	}
	tl, err := Inject(n, l)
	if err != nil {
		return nil, err
	}
	n.Observe = ctx.Err
	all, err := Prepare(l, g, env)
	if err != nil {
		return nil, err
	}
	r := &Rehearsal{}
	for _, w := range all {
		if _, is := l.Workloads[w.Of].Chosen().Kind.(apps.HostPrograms); is {
			// What a program of this server does cannot be simulated. Its row has no time, and one step.
			r.Steps = append(r.Steps, Step{Row: len(r.Rows)})
			r.Rows = append(r.Rows, apps.Row{Workload: w.Label, Payload: apps.PayloadOwn, Iterations: 1, Details: &apps.Exits{}})
			continue
		}
		tl.BeginRow(n.Now())
		if err := aside(ctx, n, outsideSay(&env, say), func() error { return r.workload(n, l, w, tl) }); err != nil {
			return nil, fmt.Errorf("rehearse %s: %w", w.Label, err)
		}
	}
	for _, k := range g.Links {
		if !count {
			break
		}
		r.carried = append(r.carried, n.Link(n.PortID(k.A.Node, k.A.Port)).Bytes+n.Link(n.PortID(k.B.Node, k.B.Port)).Bytes)
	}
	return r, nil
}

// rowOver returns the function that lifts the faults of a row at its end, or nil if there are none.
func rowOver(tl *faults.Timeline) func(now vtime.Time) {
	if !tl.ByRow() {
		return nil
	}
	return tl.EndRow
}

// workload runs one workload and records the traffic of each step.
func (r *Rehearsal) workload(n *sim.Net, l *lab.Lab, w Workload, tl *faults.Timeline) error {
	var marks []uint64 // packet-hops when each step began
	records := make([][][]byte, len(w.Hosts))
	err := n.Run(sim.Job{
		Name: w.Label, Hosts: w.Hosts, Params: labspec.RankParams(l), Over: rowOver(tl),
		Spare: w.Spare, Program: func(k *rank.Rank) error { return w.App.Run(k, w.Params) },
		Emit:   func(i int, record []byte) { records[i] = append(records[i], record) },
		Report: func(string) { marks = append(marks, n.Stats().Hops) },
	})
	if err != nil {
		return err
	}
	marks = append(marks, n.Stats().Hops)
	rows, err := w.App.Reduce(w.Params, records)
	if err != nil {
		return err
	}
	i := 0
	if len(rows) > 0 && rows[0].Payload == apps.PayloadOwn { // a program reports steps of its own choice
		for ; i+1 < len(marks); i++ {
			r.Steps = append(r.Steps, Step{len(r.Rows), marks[i+1] - marks[i]})
		}
		r.Rows = append(r.Rows, rows...)
		return nil
	}
	for k, row := range rows {
		for range row.WarmUp + row.Iterations {
			if i+1 >= len(marks) {
				return fmt.Errorf("%d steps were reported, but more have results", len(marks)-1)
			}
			r.Steps = append(r.Steps, Step{len(r.Rows) + k, marks[i+1] - marks[i]})
			i++
		}
	}
	r.Rows = append(r.Rows, rows...)
	return nil
}
