// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package dilated runs the workloads of a running lab by the wall clock, slowed down by a dilation: it calibrates the
// clock, serves the channel between ranks, and judges whether this server kept up.
package dilated

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// dilatedRun is a run on a running lab.
type dilatedRun struct {
	*runner.Record
	d        *orchestrator.Deployed
	o        orchestrator.RunOptions
	reh      *runner.Rehearsal
	clock    *orchestrator.LabClock
	streams  *eventStreams
	fid      *fidelity
	ids      *orchestrator.Leases
	board    *board
	next     int // step
	progress progressState
	base     []counters.Node
	caps     *orchestrator.Captures
	ends     []topo.End

	perRow []*nodeapi.Fault // faults that come again in each row
}

// progressState is the progress of a run. The display reads it while steps write it.
type progressState struct {
	mu    sync.Mutex
	state runner.ProgressState
}

// say sets what the run is doing.
func (s *progressState) say(doing string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Doing = doing
}

// begin notes that another step of a workload begins. hops are the packet-hops of the step before.
func (s *progressState) begin(doing string, hops uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Doing = doing
	s.state.Step++
	s.state.PacketHops += hops
}

func (s *progressState) get() runner.ProgressState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// settleWait is the pause before the counters of a lab are read, for the last acknowledgements and
// the last batch of events to arrive.
const settleWait = 300 * time.Millisecond

// Run runs a lab's workloads by the wall clock. It is a Runner.
func Run(ctx context.Context, d *orchestrator.Deployed, o orchestrator.RunOptions) (*runner.Report, error) {
	l := d.Lab
	if l.Runtime.Clock == lab.ClockLockstep {
		other := *l
		other.Runtime.Clock = lab.ClockDilated
		if l = &other; l.CheckLive() != nil {
			return nil, l.CheckLive()
		}
	}
	ends, err := runner.MatchPorts(d.Graph, o.Captures)
	if err != nil {
		return nil, err
	}
	reh, err := runner.Rehearse(ctx, d.Lab, d.Env(), o.Say)
	if err != nil {
		return nil, err
	}
	rec, err := runner.Begin(o.Base, l, d.Options.Engine.Name())
	if err != nil {
		return nil, err
	}
	r := &dilatedRun{Record: rec, d: d, o: o, reh: reh, fid: newFidelity(d, reh), ends: ends, ids: &orchestrator.Leases{Store: d.Store, Plane: d.Plane}}
	r.Report.Fidelity = notJudged()
	if r.ids.Run, err = d.BeginRun(ctx, r.Report.RunDir, false); err == nil {
		err = r.start(ctx)
	}
	if err == nil {
		if err = r.workloads(ctx); err != nil {
			err = r.named(ctx, r.blame(ctx, err))
		}
	}
	err = errors.Join(err, r.end(ctx, err))
	d.EndRun(ctx, r.ids.Run, err)
	if o.Progress != nil {
		o.Progress.Done()
	}
	return r.Report, r.Finish(ctx, d.Lab, err)
}

// start sets the clock going, configures all nodes and finds out how fast they can be.
func (r *dilatedRun) start(ctx context.Context) (err error) {
	fixed := r.o.Dilation
	if fixed == 0 {
		fixed = float64(r.d.Lab.Runtime.Dilation)
	}
	if len(r.d.Lab.Externals()) > 0 {
		if fixed == 0 {
			fixed = 1 // external devices live in wall time
		}
		if err := r.d.TellExternals(fixed); err != nil {
			return err
		}
	}
	states, err := r.d.States(ctx)
	if err != nil {
		return err
	}
	if r.clock, err = orchestrator.NewLabClock(ctx, r.d, states[0].Node, *states[0].Rate); err != nil {
		return err
	}
	if far := r.d.Access.ClockUncertainty(); far > 0 {
		r.d.Log("lab time on two servers differs, and frames between them are late, by up to %v of wall time", time.Duration(far).Round(time.Microsecond))
		r.Events.Note(r.clock.Now(), "apart", map[string]any{"wall_us": float64(far) / 1000})
	}
	first := fixed
	if first == 0 {
		first = calibrationDilation
	}
	if _, err := r.clock.SetRate(ctx, first); err != nil {
		return err
	}
	if r.streams, err = startStreams(ctx, r.d, r.Events, r.Trace); err != nil {
		return err
	}
	if r.caps, err = r.d.StartCaptures(ctx, r.Folder, r.ends, r.o.CaptureBytes, r.clock.Lab); err != nil {
		return err
	}
	if r.Trace != nil {
		spec := labspec.Fabric(r.d.Lab, r.d.Graph)
		r.TraceFabric(r.d.Graph, &spec)
	}
	r.fid.fix(fixed)
	if fixed == 0 {
		r.progress.say("calibrating")
		if err := r.calibrate(ctx); err != nil {
			return fmt.Errorf("calibrate: %w", err)
		}
	}
	if len(r.d.Lab.Externals()) > 0 && fixed == 1 {
		r.progress.say("calibrating")
		if err := r.carries(ctx); err != nil {
			return err
		}
	}
	if r.base, err = r.d.States(ctx); err != nil {
		return err
	}
	r.caps.Begin(r.clock.Now())
	return r.addFaults(ctx)
}

// job runs one workload with records going to emit, and step called before each step.
func (r *dilatedRun) job(ctx context.Context, w runner.Workload, emit func(int, []byte), step func(context.Context, string) error) error {
	stop := r.showProgress(ctx)
	defer stop()
	r.board = &board{clock: r.clock, step: step, emit: emit, leases: r.ids, note: r.shown, warn: r.o.Say}
	if r.board.warn == nil {
		r.board.warn = func(string, ...any) {}
	}
	return runJob(ctx, r.d, w, r.board)
}

// shown records a step that the operator of an external host was shown.
func (r *dilatedRun) shown(s rankhost.Step) {
	r.Report.External = append(r.Report.External, s)
	r.Events.Note(r.clock.Now(), "external", s)
}

// workloads runs all workloads, each step at the dilation its row needs.
func (r *dilatedRun) workloads(ctx context.Context) error {
	all, err := runner.PrepareLive(r.d.Lab, r.d.Graph, r.d.Env())
	if err != nil {
		return err
	}
	for i, w := range all {
		before := len(r.Report.Results)
		if err := r.row(ctx, w, i == len(all)-1); err != nil {
			return err
		}
		if err := r.repeatRows(ctx, &r.d.Lab.Workloads[w.Of], len(r.Report.Results)-before); err != nil {
			return err
		}
	}
	return nil
}

// step is called before each iteration, one at a time: a new row may need another rate.
func (r *dilatedRun) step(ctx context.Context, what string) error {
	if r.next >= len(r.reh.Steps) {
		return fmt.Errorf("%s was not rehearsed", what)
	}
	row := r.reh.Steps[r.next].Row
	before := uint64(0)
	if r.next > 0 {
		before = r.reh.Steps[r.next-1].Hops
	}
	first := r.next == 0 || r.reh.Steps[r.next-1].Row != row
	r.next++
	r.progress.begin(what, before)
	if !first {
		return nil
	}
	return r.rowEnds(ctx, r.fid.dilation(row), row)
}

// noRow is the index of the open row while none runs.
const noRow = -1

// rowEnds adds the lag since the last change of rate to the row that was running, sets a
// dilation, and makes next the open row.
func (r *dilatedRun) rowEnds(ctx context.Context, dilation float64, next int) error {
	lag, err := r.clock.SetRate(ctx, dilation)
	if err == nil && r.fid.open != noRow {
		r.fid.took(lag)
	}
	r.fid.open = next
	return err
}

// showProgress tells the progress display how it goes, until the returned function is
// called.
func (r *dilatedRun) showProgress(ctx context.Context) (stop func()) {
	return orchestrator.ShowEvery(ctx, r.o.Progress, func() runner.ProgressState {
		p := r.progress.get()
		p.Steps, p.LabTime = len(r.reh.Steps), r.clock.Now()
		return p
	})
}

// end collects counters and events and judges the run.
func (r *dilatedRun) end(ctx context.Context, runErr error) error {
	if r.streams == nil {
		return nil
	}
	if runErr == nil {
		time.Sleep(settleWait)
	}
	r.Report.EventsCut, r.Meta.EventsLate = r.streams.end()
	r.Meta.EventsCut = r.Report.EventsCut
	if r.caps != nil {
		if err := r.caps.Close(); err != nil {
			return err
		}
		r.Report.CaptureCut, r.Meta.CaptureCut, r.Meta.CaptureFiles = r.caps.Budget.Cut, r.caps.Budget.Cut, len(r.caps.Taps)
	}
	r.Meta.LabUS = r.clock.Now().Microseconds()
	if ctx.Err() != nil {
		return r.interruptedFaults(ctx)
	}
	faulty, err := r.endFaults(ctx)
	if err != nil {
		return err
	}
	if err := r.d.SaveLogs(ctx, r.Folder); err != nil {
		return err
	}
	states, err := r.d.States(ctx)
	if err != nil {
		return err
	}
	lossFree := len(r.d.Lab.Faults) == 0 && !r.d.Lab.RunsPrograms() // a program that ends leaves its peers without answers
	for i := range states {
		if r.d.Lost[i].Load() {
			lossFree = false
			if i < len(r.base) {
				states[i] = r.base[i] // what it has counted since is lost
			}
		}
	}
	r.Meta.PacketHops = counters.Sent(states) - counters.Sent(r.base)
	for _, s := range states {
		for _, p := range s.Ports {
			r.Meta.FramesLost += p.LostToFault
		}
	}
	if runErr == nil {
		r.Report.Fidelity = r.fid.judge(r.Report.Results, states, r.base, lossFree && !faulty)
	}
	for i := range states {
		if i < len(r.base) {
			states[i].Since(&r.base[i])
		}
		states[i].Held = nil // of a process, and of no run
	}
	return r.Counters(states)
}

// interruptedWait bounds the calls that an interrupted run still makes to nodes.
const interruptedWait = 2 * time.Second

// interruptedFaults is endFaults for a run that was interrupted, as far as nodes answer: a fault
// may be why the run took so long.
func (r *dilatedRun) interruptedFaults(ctx context.Context) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), interruptedWait)
	defer stop()
	_, err := r.endFaults(ctx)
	if ctx.Err() != nil {
		return nil // the interrupt is the error to report
	}
	return err
}

// endFaults removes the lab file's faults, and enters what they and those added by hand have hit
// into the report.
func (r *dilatedRun) endFaults(ctx context.Context) (faulty bool, err error) {
	all, err := r.faultRows(ctx)
	if err != nil {
		return false, err
	}
	r.Report.Faults = r.Faults(all)
	if len(r.d.Lab.Faults) > 0 {
		err = r.d.ResetFaults(ctx, faults.LabPrefix)
	}
	return len(r.Report.Faults) > 0, err
}
