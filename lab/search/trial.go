// SPDX-License-Identifier: Apache-2.0

// Package search looks for timelines of faults under which a lab breaks a promise: it draws them by
// seed, runs them on the event clock with every invariant checked, and makes failing labs as small as
// it can.
package search

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// eventsMax is the number of events after which the faults of a trial that is still running are
// removed: a fault that comes back faster than routes and timers may let a packet through now and then,
// for as long as any rank waits. A trial that takes as many once more does not end.
const eventsMax = 5_000_000

// healing is the time that a lab has after its faults were removed: longer than routing and the
// quarantine of groups take.
const healing = 500 * vtime.Millisecond

// Violation is a promise that was broken.
type Violation struct {
	Class string // kept by shrinking: the phase and the promise
	Text  string
}

// Error implements error.
func (v *Violation) Error() string { return v.Class + ": " + v.Text }

// Hook is called on each receiver of a broadcast before its bytes are checked. It is for
// tests of the search itself.
type Hook func(n *sim.Net, r *rank.Rank, b *rank.Buffer)

// Outcome is the outcome of one trial.
type Outcome struct {
	Violation *Violation // nil: none
	Failed    bool       // a workload ended with an error, as it may while faults are on
	Hops      uint64
	End       vtime.Time // lab time when the last program ended
}

// trial is one lab on the event clock.
type trial struct {
	lab    *lab.Lab
	net    *sim.Net
	works  []runner.Workload
	faults *faults.Timeline // nil: none, or they have been taken away
	ended  vtime.Time       // when the last program did
}

// Try runs a lab in two phases. While its faults are on, workloads may fail, but no invariant
// may break, no byte that is delivered may be wrong, and every workload must end. Then the
// faults are removed, and every workload must succeed.
func Try(ctx context.Context, l *lab.Lab, hook Hook) (o Outcome, err error) {
	t, err := newTrial(ctx, l, hook)
	if err != nil {
		return o, err
	}
	defer func() {
		o.Hops = t.net.Stats().Hops
		if p := recover(); p != nil {
			o.Violation = &Violation{"panic", fmt.Sprint(p)}
		}
	}()
	if o.Violation, o.Failed, err = t.phase("faulty", true); err != nil || o.Violation != nil {
		return o, err
	}
	if o.End = t.ended; t.faults != nil {
		t.faults.Remove(t.net.Now(), "")
		t.faults = nil
	}
	if o.Violation, err = t.wait(); err == nil && o.Violation == nil {
		o.Violation, _, err = t.phase("healed", false)
	}
	return o, err
}

func newTrial(ctx context.Context, l *lab.Lab, hook Hook) (*trial, error) {
	g, err := labspec.Graph(l)
	if err != nil {
		return nil, fmt.Errorf("build topology: %w", err)
	}
	n, err := sim.New(sim.Config{Spec: labspec.Fabric(l, g), Check: true})
	if err != nil {
		return nil, fmt.Errorf("build lab: %w", err)
	}
	t := &trial{lab: l, net: n}
	if t.faults, err = runner.Inject(n, l); err != nil {
		return nil, err
	}
	n.Observe = func() error {
		switch events := n.Stats().Events; {
		case events > 2*eventsMax:
			return errEndless
		case events > eventsMax && t.faults != nil:
			t.faults.Remove(n.Now(), "")
			t.faults = nil
		}
		return ctx.Err()
	}
	env := apps.Env{}
	if hook != nil {
		env.Delivered = func(r *rank.Rank, b *rank.Buffer) { hook(n, r, b) }
	}
	t.works, err = runner.Prepare(l, g, env)
	return t, err
}

var errEndless = errors.New("it does not end")

// phase runs all workloads; mayFail allows them to end with an error.
func (t *trial) phase(name string, mayFail bool) (v *Violation, failed bool, err error) {
	for _, w := range t.works {
		rows, err := t.work(w)
		if v, err := t.judge(name, mayFail, rows, err); v != nil || err != nil {
			return v, failed, err
		}
		if err != nil {
			return nil, true, nil // the workloads after it would have to continue without it
		}
	}
	return nil, false, nil
}

func (t *trial) work(w runner.Workload) ([]apps.Row, error) {
	records := make([][][]byte, len(w.Hosts))
	t.faults.BeginRow(t.net.Now())
	var over func(now vtime.Time)
	if t.faults.ByRow() {
		over = func(now vtime.Time) { t.faults.EndRow(now) }
	}
	err := t.net.Run(sim.Job{
		Name: w.Label, Hosts: w.Hosts, Spare: w.Spare, Params: labspec.RankParams(t.lab), Over: over,
		Program: func(k *rank.Rank) error {
			err := w.App.Run(k, w.Params)
			t.ended = max(t.ended, k.Now())
			return err
		},
		Emit: func(i int, rec []byte) { records[i] = append(records[i], rec) },
	})
	rows, rerr := w.App.Reduce(w.Params, records)
	if err == nil {
		err = rerr
	}
	return rows, err
}

var invariantNumber = regexp.MustCompile(`\(\d\)$`)

// judge decides whether the outcome of a workload breaks a promise. err is the caller's: the search was
// interrupted.
func (t *trial) judge(phase string, mayFail bool, rows []apps.Row, err error) (*Violation, error) {
	for _, r := range rows {
		if r.Verified != nil && !*r.Verified {
			return &Violation{phase + ", wrong bytes", fmt.Sprintf("%s at %d bytes", r.Scheme, r.SizeBytes)}, nil
		}
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil, err
	case errors.Is(err, sim.ErrInvariant):
		return &Violation{phase + ", invariant " + invariantNumber.FindString(err.Error()), err.Error()}, nil
	case errors.Is(err, errEndless):
		return &Violation{phase + ", endless", fmt.Sprintf("more than %d events, half of them without faults", 2*eventsMax)}, nil
	case errors.Is(err, rankhost.ErrDeadlock):
		return &Violation{phase + ", deadlock", err.Error()}, nil
	case err != nil && !mayFail:
		return &Violation{phase + ", failed", err.Error()}, nil
	}
	if err := t.net.Unfinished(); err != nil {
		return &Violation{phase + ", unfinished", err.Error()}, nil
	}
	return nil, nil
}

// wait gives the lab the time to heal.
func (t *trial) wait() (*Violation, error) {
	err := t.net.Run(sim.Job{Name: "healing", Hosts: []int{0}, Params: labspec.RankParams(t.lab), Program: func(r *rank.Rank) error {
		r.Sleep(healing)
		return nil
	}})
	return t.judge("healing", false, nil, err)
}
