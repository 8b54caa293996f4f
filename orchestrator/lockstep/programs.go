// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lockstep

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator"
)

// lockstepPrograms are the programs of a workload in virtual time. Each is a task of its node (nodeagent/verbs.Turns), which tells
// the lab time of its beginning and end; here they are started, and their exit codes come in.
type lockstepPrograms struct {
	times map[int]apps.Exit // by rank
	exits map[int]apps.Exit
	ended chan error
	stop  context.CancelFunc
	emit  func(rank int, record []byte)

	cancel context.CancelCauseFunc
	left   atomic.Int64 // programs that have not ended
	failed atomic.Bool  // one has: the others have programGrace
}

// startPrograms starts the programs of a workload. Until they have ended, ranks record their times.
func (r *lockstepRun) startPrograms(w runner.Workload, p apps.HostProgram) (*lockstepPrograms, error) {
	all := &lockstepPrograms{times: map[int]apps.Exit{}, exits: map[int]apps.Exit{}, ended: make(chan error, 1), emit: r.emit}
	job := &orchestrator.ProgramJob{Deployed: r.d, Workload: w, Program: p, Folder: r.Folder, InTurns: true, Now: func() vtime.Time { return 0 }}
	job.Emit = func(rank int, record []byte) {
		var e apps.Exit
		if json.Unmarshal(record, &e) == nil { // it was written here
			all.exits[rank] = e
		}
	}
	job.Ended = func(failed bool) {
		if failed {
			all.failed.Store(true)
		}
		all.left.Add(-1)
	}
	run, err := r.o.Runners.Programs(job)
	if err != nil {
		return nil, err
	}
	r.emit = func(rank int, record []byte) {
		var e apps.Exit
		if json.Unmarshal(record, &e) == nil {
			all.times[rank] = e
		}
	}
	all.left.Store(int64(len(w.Hosts)))
	ctx, cancel := context.WithCancelCause(r.ctx)
	ctx, stop := context.WithTimeoutCause(ctx, time.Duration(p.Timeout/1000), orchestrator.ErrTimeout)
	all.cancel, all.stop = cancel, func() { stop(); cancel(nil) }
	go func() {
		err := run(ctx)
		if err != nil && r.ctx.Err() == nil {
			select {
			case r.failed <- err:
			default: // another error was first
			}
		}
		all.ended <- err
	}()
	return all, nil
}

// Stuck implements lockstep.Streams. A program that has ended is no reason to end those that wait for it before it is known how it
// has ended.
func (r *lockstepRun) Stuck(programs int) {
	if a := r.running; a != nil && !a.failed.Load() && a.left.Load() == int64(programs) {
		a.cancel(orchestrator.ErrStuck)
	}
}

// end waits for the programs, whose tasks have ended, and records how they have ended.
func (a *lockstepPrograms) end(ran error) error {
	if ran != nil {
		a.stop()
	}
	err := <-a.ended
	a.stop()
	if err != nil || ran != nil {
		return err
	}
	for rank := range len(a.exits) {
		e, t := a.exits[rank], a.times[rank]
		e.From, e.To = t.From, t.To
		if e.Why != "" {
			e.Waited = t.Waited
		}
		b, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("write how rank %d has ended: %w", rank, err)
		}
		a.emit(rank, b)
	}
	return nil
}
