// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/mcastlab/mcastlab/apps"
)

// OutsideAfter is the wall time after which a program that has not returned to package rank is
// reported.
const OutsideAfter = 5 * time.Second

const (
	// outsideEvery is the interval at which a simulation checks for programs outside package rank.
	outsideEvery = 250 * time.Millisecond
	// interruptWait is the time after which an interrupted simulation that has not ended is checked for
	// a program that holds it up. One that computes notices, if slowly on a busy server.
	interruptWait = time.Second
	// blameAfter is the time that a program must have kept its turn then to count as the one that holds the simulation up: one that
	// reads some megabytes on a busy server has kept it for 600 ms.
	blameAfter = 1500 * time.Millisecond
)

// OutsideError is the error of a rank whose program does not return to package rank, the only place
// where it can be ended.
type OutsideError struct {
	Task string        // rank 2 (h2)
	For  time.Duration // of wall time
	// Machine is set for a program of this machine.
	HostProgram bool
}

// Error names the rank and the remedy.
func (e OutsideError) Error() string {
	if e.HostProgram {
		return fmt.Sprintf("the program of %s has kept its turn for %v, and lab time does not move: it computes, looks at its memory without end, "+
			"or waits in a call that does not go by lab time (docs/libibverbs.md)", e.Task, e.For.Round(100*time.Millisecond))
	}
	return fmt.Sprintf("%s has not come back to package rank for %v: it blocks or computes outside of it; "+
		"wait by calls of package rank only, not on channels, locks or time.Sleep (docs/programs.md)", e.Task, e.For.Round(100*time.Millisecond))
}

// turns is a simulation whose programs have turns.
type turns interface {
	Turns() []func() (number uint64, task string)
}

// aside runs f, which drives n. A program that blocks is reported, and does not keep an interrupt
// from ending the run: then f is abandoned, and the error names the program. say may be nil.
func aside(ctx context.Context, n turns, say func(format string, args ...any), f func() error) error {
	done, tick := make(chan error, 1), time.NewTicker(outsideEvery)
	defer tick.Stop()
	go func() { done <- f() }()
	all := n.Turns()
	programs := make([]outside, len(all))
	over := ctx.Done()
	for late := (<-chan time.Time)(nil); ; {
		select {
		case err := <-done:
			return err
		case <-over:
			over, late = nil, time.After(interruptWait)
		case <-late:
			for i := range programs {
				if o := &programs[i]; o.now.For >= blameAfter {
					return o.blame(ctx.Err()) // it waits in the program, and may for ever
				}
			}
			late = time.After(outsideEvery) // it computes, and looks after its ranks' turns
		case <-tick.C:
			for i := range programs {
				if o := &programs[i]; o.look(all[i]) && say != nil {
					say("%v", o.now)
				}
			}
		}
	}
}

// outsideSay returns the function that reports programs that keep their turn. Without programs of users none can:
// then a turn is long because the server is busy.
func outsideSay(env *apps.Env, say func(format string, args ...any)) func(format string, args ...any) {
	if len(env.Programs) == 0 && env.Delivered == nil {
		return nil
	}
	return say
}

// outside holds the observations of the program whose turn it is.
type outside struct {
	turn  uint64
	since time.Time
	now   OutsideError // without a task if none has run for long
	said  bool
}

// look reports whether a turn has lasted too long. It reports true once for each turn.
func (o *outside) look(now func() (turn uint64, task string)) (say bool) {
	turn, task := now()
	if task == "" || turn != o.turn {
		*o = outside{turn: turn, since: time.Now()}
		return false
	}
	o.now = OutsideError{Task: task, For: time.Since(o.since)}
	say = o.now.For >= OutsideAfter && !o.said
	o.said = o.said || say
	return say
}

// blame returns the error of a run that does not react to an interrupt.
func (o *outside) blame(err error) error {
	if o.now.Task == "" {
		return err
	}
	return fmt.Errorf("%w: %w", err, o.now)
}
