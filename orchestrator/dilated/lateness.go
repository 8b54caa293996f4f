// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import (
	"context"
	"fmt"
	"time"

	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// LateError is the error of a run that failed because this server was too late for the NICs'
// timers, which is not a result of the lab's network.
type LateError struct {
	Err   error         // what ended the run
	Late  time.Duration // of wall time that a frame was late, at the most
	Waits time.Duration // of wall time that a NIC waits for an answer
}

// Error returns what ended the run, and that the server caused it.
func (e *LateError) Error() string {
	return fmt.Sprintf("%v, but frames were up to %v late on this server, and NICs wait %v for an answer: it is too busy for the lab; "+
		"run it more slowly (--slower 4, or a larger --dilation) or with a longer nics.timeout", e.Err, e.Late, e.Waits)
}

// Unwrap returns what ended the run.
func (e *LateError) Unwrap() error { return e.Err }

// notJudged is the verdict of a run in real time that did not finish.
func notJudged() runner.Fidelity {
	return runner.Fidelity{Verdict: "not judged", Reason: "the run failed before its end"}
}

// blame returns the error that ended the workloads, as a LateError if a NIC gave up waiting
// while frames were late by as long as it waits, and nothing was made to go wrong.
func (r *dilatedRun) blame(ctx context.Context, err error) error {
	open := r.fid.open
	if ctx.Err() != nil || open == noRow || r.d.Lab.NICs.Timeout == 0 || !rankhost.GaveUp(err.Error()) {
		return err
	}
	if made, ferr := r.d.Faults(ctx); ferr != nil || len(made) > 0 {
		return err
	}
	for i := range r.d.Lost {
		if r.d.Lost[i].Load() {
			return err
		}
	}
	dilation := r.fid.dil[open]
	lag, lerr := r.clock.SetRate(ctx, dilation)
	if lerr != nil {
		return err // a node that is gone is cause enough
	}
	r.fid.took(lag)
	return judgeLateness(err, r.fid.lag[open], r.d.Lab.NICs.Timeout.Duration().Microseconds()*dilation)
}

// judgeLateness is blame for given numbers: the lag of the row that ran, and how many microseconds of
// wall time a NIC waits.
func judgeLateness(err error, lag live.Lag, waitsUS float64) error {
	waits := time.Duration(waitsUS * 1000)
	late := time.Duration(lag.Max())
	if late < waits {
		return err
	}
	return &LateError{Err: err, Late: late.Round(time.Millisecond), Waits: waits.Round(time.Millisecond)}
}
