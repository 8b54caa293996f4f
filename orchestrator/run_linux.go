package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mcastlab/mcastlab/counters"

	"github.com/mcastlab/mcastlab/apps/bcast"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/live"
	"github.com/mcastlab/mcastlab/runner"
	"github.com/mcastlab/mcastlab/topo"
)

// RunOptions are the choices of a run.
type RunOptions struct {
	Base     string  // run folders go there
	Dilation float64 // 0: the lab's
	Slower   float64 // multiplies what auto chooses; 0 means 1
	Progress runner.Progress

	Captures     []string // patterns of port names
	CaptureBytes int64    // all of them together
}

// liveRun is a run on a lab that is up.
type liveRun struct {
	*runner.Record
	d     *Deployed
	o     RunOptions
	reh   *runner.Rehearsal
	pace  *pace
	watch *watch
	fid   *fidelity
	ids   *leases
	board *board
	doing string
	next  int           // step
	hops  atomic.Uint64 // of the steps before it, as rehearsed
	base  []counters.Node
	caps  *captures
	ends  []topo.End
}

// settleWait is how long a lab is left alone before its counters are read: the last
// acknowledgements and the last batch of events.
const settleWait = 300 * time.Millisecond

// run runs the lab's workloads. Results, events and counters go to a folder of the run's
// own, as those of a simulation do. The report is nil if nothing was begun.
func (d *Deployed) run(ctx context.Context, o RunOptions) (*runner.Report, error) {
	ends, err := runner.MatchPorts(d.Graph, o.Captures)
	if err != nil {
		return nil, err
	}
	reh, err := runner.Rehearse(ctx, d.Lab)
	if err != nil {
		return nil, err
	}
	rec, err := runner.Begin(o.Base, d.Lab, d.o.Engine.Name())
	if err != nil {
		return nil, err
	}
	r := &liveRun{Record: rec, d: d, o: o, reh: reh, fid: newFidelity(d, reh), ends: ends, ids: &leases{store: d.store}}
	if err = r.start(ctx); err == nil {
		err = r.workloads(ctx)
	}
	err = errors.Join(err, r.end(ctx, err))
	if o.Progress != nil {
		o.Progress.Done()
	}
	return r.Report, r.Finish(ctx, d.Lab, err)
}

// start sets the clock going, configures all nodes and finds out how fast they can be.
func (r *liveRun) start(ctx context.Context) (err error) {
	fixed := r.o.Dilation
	if fixed == 0 {
		fixed = float64(r.d.Lab.Runtime.Dilation)
	}
	if len(r.d.Lab.Externals()) > 0 {
		if fixed == 0 {
			fixed = 1 // external devices live in wall time
		}
		if err := r.d.tellExternals(ctx); err != nil {
			return err
		}
	}
	states, err := r.d.States(ctx)
	if err != nil {
		return err
	}
	if r.pace, err = newPace(r.d, *states[0].Rate); err != nil {
		return err
	}
	first := fixed
	if first == 0 {
		first = calibrationDilation
	}
	if _, err := r.pace.set(ctx, first); err != nil {
		return err
	}
	if r.watch, err = r.d.startWatch(ctx, r.Events); err != nil {
		return err
	}
	if r.caps, err = r.d.startCaptures(ctx, r.Report.RunDir, r.ends, r.o.CaptureBytes, r.pace.lab); err != nil {
		return err
	}
	r.fid.fix(fixed)
	if fixed == 0 {
		r.doing = "calibrating"
		if err := r.calibrate(ctx); err != nil {
			return fmt.Errorf("calibrate: %w", err)
		}
	}
	if len(r.d.Lab.Externals()) > 0 && fixed == 1 {
		r.doing = "calibrating"
		if err := r.carries(ctx); err != nil {
			return err
		}
	}
	if r.base, err = r.d.States(ctx); err != nil {
		return err
	}
	r.caps.begin(r.pace.now())
	return r.d.AddFaults(ctx, r.timeline(), r.pace.now())
}

// job runs one workload with records going to emit, and step called before each step.
func (r *liveRun) job(ctx context.Context, w runner.Workload, emit func(int, []byte), step func(context.Context, string) error) error {
	stop := r.showProgress(ctx)
	defer stop()
	r.board = &board{pace: r.pace, step: step, emit: emit, leases: r.ids, say: r.d.log}
	return r.d.runJob(ctx, w, r.board)
}

// Dilations of the calibration: one so slow that any machine keeps up, to see how late
// frames are when there is no hurry, and one so fast that none does, to see what a frame
// costs when there is always another.
const (
	calibrationDilation = 8000
	saturatingDilation  = 200
)

// calibrate runs small messages in all schemes for the lag, and then a large one for the
// cost of a frame.
func (r *liveRun) calibrate(ctx context.Context) error {
	if _, _, err := r.trial(ctx, "lag", func(b *lab.Bcast) { b.Sizes = []lab.Size{4 << 10, 32 << 10} }); err != nil {
		return err
	}
	lag, err := r.pace.set(ctx, saturatingDilation)
	if err != nil {
		return err
	}
	busy, frames, err := r.trial(ctx, "cost", func(b *lab.Bcast) { b.Schemes, b.Sizes = b.Schemes[:1], []lab.Size{512 << 10} })
	if err != nil {
		return err
	}
	if _, err := r.pace.set(ctx, calibrationDilation); err != nil {
		return err
	}
	r.fid.calibrated(lag, busy, frames, r.o.Slower)
	return nil
}

// trialOf returns the broadcast that stands for a workload in a trial: what is measured is
// the host, not the workload.
func trialOf(w *lab.Workload) lab.Bcast {
	if w.Bcast != nil {
		return *w.Bcast
	}
	return lab.Bcast{Label: w.HPL.Label, Ranks: w.HPL.Ranks, Schemes: []lab.Scheme{{Name: "unicast", Label: "unicast"}}, Memory: "auto"}
}

// trial runs the lab's workloads in a smaller form, twice each, and returns the seconds
// of CPU time it took from the first step on, and the frames that were sent.
func (r *liveRun) trial(ctx context.Context, name string, change func(*lab.Bcast)) (busy float64, frames uint64, err error) {
	small, err := lab.Parse(name, r.d.Lab.Resolved())
	if err != nil {
		return 0, 0, err
	}
	for i := range small.Workloads {
		if a := small.Workloads[i].Allgather; a != nil {
			like := lab.Bcast{Schemes: a.Schemes, Sizes: a.Sizes}
			change(&like)
			all := *a
			all.Schemes, all.Iterations, all.WarmUp, all.Sizes = a.Schemes[:min(len(like.Schemes), len(a.Schemes))], 2, 0, nil
			for _, s := range like.Sizes { // over all ranks
				all.Sizes = append(all.Sizes, max(1, s/lab.Size(len(a.Ranks.Resolve(r.d.Graph)))))
			}
			small.Workloads[i].Allgather = &all
			continue
		}
		b := trialOf(&small.Workloads[i])
		b.Iterations, b.WarmUp = 2, 0
		change(&b)
		small.Workloads[i] = lab.Workload{Bcast: &b}
	}
	all, err := runner.Prepare(small, r.d.Graph, bcast.App{})
	if err != nil {
		return 0, 0, err
	}
	found, err := r.d.o.Engine.Find(ctx, r.d.Lab.Name)
	if err != nil {
		return 0, 0, err
	}
	var pids []int
	for _, n := range found {
		pids = append(pids, n.PID)
	}
	for _, w := range all {
		w.Label += "-" + name // groups and connections are named after it
		from, sent := 0.0, uint64(0)
		err := r.job(ctx, w, func(int, []byte) {}, func(ctx context.Context, _ string) error {
			if from > 0 {
				return nil
			}
			states, err := r.d.States(ctx)
			from, sent = busySeconds(pids), counters.Sent(states)
			return err
		})
		if err != nil {
			return 0, 0, err
		}
		busy += busySeconds(pids) - from
		states, err := r.d.States(ctx)
		if err != nil {
			return 0, 0, err
		}
		frames += counters.Sent(states) - sent
	}
	return busy, frames, nil
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
	busy, frames, err := r.trial(ctx, "cost", func(b *lab.Bcast) {
		b.Ranks, b.Root, b.Schemes, b.Sizes = own, own[0], []lab.Scheme{{Name: "unicast"}}, []lab.Size{512 << 10}
	})
	if err != nil {
		return fmt.Errorf("calibrate: %w", err)
	}
	if need := r.fid.need(busy / float64(max(frames, 1))); need > carryShare {
		rate := lab.Rate(round2Down(float64(r.d.Lab.Links.Rate) * cpuShare / need))
		return &lab.Error{File: "lab " + r.d.Lab.Name, Text: fmt.Sprintf(
			"external hosts need dilation 1, at which this machine does not carry links.rate of %v: use %v or less",
			r.d.Lab.Links.Rate, rate)}
	}
	return nil
}

// workloads runs all workloads, each step at the dilation its row needs.
func (r *liveRun) workloads(ctx context.Context) error {
	all, err := runner.PrepareLive(r.d.Lab, r.d.Graph)
	if err != nil {
		return err
	}
	for _, w := range all {
		err := r.Measure(w, r.pace.now, func(emit func(int, []byte)) error { return r.job(ctx, w, emit, r.step) })
		if err != nil {
			return err
		}
	}
	return r.rowEnds(ctx, calibrationDilation)
}

// step is called before each iteration: a new row may need another rate.
func (r *liveRun) step(ctx context.Context, what string) error {
	if r.next >= len(r.reh.Steps) {
		return fmt.Errorf("%s was not rehearsed", what)
	}
	r.doing = what
	row := r.reh.Steps[r.next].Row
	if r.next > 0 {
		r.hops.Add(r.reh.Steps[r.next-1].Hops)
	}
	first := r.next == 0 || r.reh.Steps[r.next-1].Row != row
	r.next++
	if !first {
		return nil
	}
	return r.rowEnds(ctx, r.fid.dilation(row))
}

// rowEnds closes the account of the row that was running and sets the next one's rate.
func (r *liveRun) rowEnds(ctx context.Context, dilation float64) error {
	lag, err := r.pace.set(ctx, dilation)
	if err == nil && r.fid.open >= 0 {
		r.fid.took(lag)
	}
	if r.next > 0 {
		r.fid.open = r.reh.Steps[r.next-1].Row
	}
	return err
}

// showProgress tells the progress display how it goes, until the returned function is
// called.
func (r *liveRun) showProgress(ctx context.Context) (stop func()) {
	if r.o.Progress == nil {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-ctx.Done():
				return
			case <-tick.C:
				r.o.Progress.Update(runner.ProgressState{Doing: r.doing, Step: r.next, Steps: len(r.reh.Steps), LabTime: r.pace.now(), PacketHops: r.hops.Load()})
			}
		}
	}()
	return func() { close(done); <-ended }
}

// end collects counters and events and judges the run.
func (r *liveRun) end(ctx context.Context, runErr error) error {
	if r.watch == nil {
		return nil
	}
	if runErr == nil {
		time.Sleep(settleWait)
	}
	r.watch.end()
	if r.caps != nil {
		if err := r.caps.close(); err != nil {
			return err
		}
		r.Report.CaptureCut, r.Meta.CaptureCut, r.Meta.CaptureFiles = r.caps.budget.Cut, r.caps.budget.Cut, len(r.caps.taps)
	}
	if len(r.d.Lab.Faults) > 0 && ctx.Err() == nil {
		if err := r.d.ResetFaults(ctx, timelinePrefix); err != nil {
			return err
		}
	}
	r.Meta.LabUS = r.pace.now().Microseconds()
	if ctx.Err() != nil {
		return nil
	}
	if err := r.d.saveLogs(ctx, r.Report.RunDir); err != nil {
		return err
	}
	states, err := r.d.States(ctx)
	if err != nil {
		return err
	}
	r.Meta.PacketHops = counters.Sent(states) - counters.Sent(r.base)
	for _, s := range states {
		for _, p := range s.Ports {
			r.Meta.FramesLost += p.LostToFault
		}
	}
	if runErr == nil {
		faulty, err := r.d.Faults(ctx)
		if err != nil {
			return err
		}
		r.Report.Fidelity = r.fid.judge(r.Report.Results, states, r.base, len(r.d.Lab.Faults)+len(faulty) == 0)
	}
	for i := range states {
		if i < len(r.base) {
			states[i].Since(&r.base[i])
		}
	}
	return r.Counters(states)
}

// lagUS returns a wall time in nanoseconds as lab time in microseconds.
func lagUS(g live.Lag, dilation float64) float64 { return float64(g.P99()) / 1000 / dilation }
