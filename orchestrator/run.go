// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"errors"
	"time"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// RunOptions are the choices of a run.
type RunOptions struct {
	Base     string  // run folders go there
	Dilated  bool    // follow the wall clock, also in a lab whose clock is virtual
	Dilation float64 // 0: the lab's
	Slower   float64 // multiplies what auto chooses; 0 means 1
	Progress runner.Progress
	Say      func(format string, args ...any) // prints a message for the user at once; may be nil

	// Ledger, if set, is called at the end of a run in virtual time with what has come in at the end
	// of each link, in the order of nodes and their ports.
	Ledger func(links [][]sim.Entry, whole bool)

	Captures     []string // patterns of port names
	CaptureBytes int64    // all of them together

	Programs bool // the lab may run programs of this server

	Runners Runners

	Acts []faults.Act // what is done by hand in a run in virtual time (runner.ReadActs), beside what comes from outside
}

// Runner runs the workloads of a running lab. Results, events and counters go to the run's own directory, as in a
// simulation. The report is nil if nothing was started.
type Runner func(ctx context.Context, d *Deployed, o RunOptions) (*runner.Report, error)

// Runners are the packages above this one that run workloads.
type Runners struct {
	Lockstep Runner // in virtual time
	Dilated  Runner // by the wall clock
	Programs ProgramPreparer
}

// ProgramJob is a workload whose ranks are programs of this server.
type ProgramJob struct {
	Deployed *Deployed
	Workload runner.Workload
	Program  apps.HostProgram
	Folder   *runner.Folder // of the run
	InTurns  bool           // their time is that of a run in virtual time, in which they have turns
	Now      func() vtime.Time
	Emit     func(rank int, record []byte)
	Ended    func(failed bool) // called, if set, when the program of a rank has ended
}

// ProgramPreparer makes what a job needs in the run's folder, and returns what runs it to its end.
type ProgramPreparer func(j *ProgramJob) (run func(ctx context.Context) error, err error)

// Causes that end programs before they have ended themselves.
var (
	ErrTimeout = errors.New("its timeout was over")
	ErrStuck   = errors.New("nothing that it waited for could happen any more")
)

// runWorkloads runs the lab's workloads by the clock that is asked for.
func (d *Deployed) runWorkloads(ctx context.Context, o RunOptions) (*runner.Report, error) {
	if d.Lab.Runtime.Clock == lab.ClockLockstep && !o.Dilated {
		return o.Runners.Lockstep(ctx, d, o)
	}
	return o.Runners.Dilated(ctx, d, o)
}

// Env returns what workloads need beside the lab: the user's programs.
func (d *Deployed) Env() apps.Env { return apps.Env{Programs: d.Options.Programs} }

// StartOf returns the first message to the ranks of a workload.
func (d *Deployed) StartOf(w runner.Workload, now vtime.Time) *nodeapi.Start {
	start := &nodeapi.Start{App: w.Name, Params: w.Params, Job: w.Label, Lab: int64(now)}
	for i, p := range w.Peers {
		if p != nil {
			start.Peers = append(start.Peers, &nodeapi.Peer{
				Rank: uint32(i), Qpn: uint32(p.QPN), SendPsn: uint32(p.SendPSN), ReceivePsn: uint32(p.ReceivePSN), Va: p.VA, Rkey: p.RKey,
			})
		}
	}
	for _, h := range w.Hosts {
		start.Names = append(start.Names, d.Graph.Nodes[h].Name)
		start.Ips = append(start.Ips, d.Graph.Nodes[h].IP)
	}
	return start
}

// ShowEvery updates a progress display, which may be nil, a few times a second until the returned
// function is called.
func ShowEvery(ctx context.Context, display runner.Progress, get func() runner.ProgressState) (stop func()) {
	if display == nil {
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
				display.Update(get())
			}
		}
	}()
	return func() { close(done); <-ended }
}
