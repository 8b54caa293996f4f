// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"
)

// answerWithin is the time limit for an interrupted command to report the interrupt, and
// completeWithin that for one with a run's directory to complete: it does so at once, unless it is
// still building a large fabric or the computer is busy.
const (
	answerWithin   = 500 * time.Millisecond
	completeWithin = 3 * time.Second
)

// answering makes a command without effects outside its own files answer an interrupt within a
// second, at any point of a computation: routes of a large fabric, a proof, a matrix. The abandoned
// work continues until the process ends, which it does then; files of a run are valid at any time.
func (p *program) answering(action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.Command.Name == "run" && c.String("runtime") != "sim" {
			return action(c) // it has to take down what it has put up
		}
		within := answerWithin
		if c.Command.Name == "run" {
			within = max(completeWithin, p.hooks.complete)
		}
		_, err := answered(c.Context, within, func() (struct{}, error) { return struct{}{}, action(c) })
		return err
	}
}

// answered returns what f does or, if the context ends and f does not within a moment, the
// context's error.
func answered[T any](ctx context.Context, within time.Duration, f func() (T, error)) (v T, err error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done:
		return r.v, r.err
	case <-time.After(within):
		return v, ctx.Err()
	}
}
