// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// signaled is the error of a program that a signal ends.
type signaled struct{ by syscall.Signal }

// Error says it to the user.
func (signaled) Error() string { return "interrupted" }

// Signal returns the signal.
func (s signaled) Signal() syscall.Signal { return s.by }

// signalBase plus the number of a signal is the exit code, in shells, of a program that the signal ended.
const signalBase = 128

// interruptedCode returns the exit code of a program that was interrupted: 128 and the signal.
func interruptedCode(ctx context.Context) int {
	var s signaled
	if errors.As(context.Cause(ctx), &s) {
		return signalBase + int(s.by)
	}
	return exitInterrupted
}

// impatience is the time after a first signal in which another one counts as a repetition of it:
// timeout(1) sends each to the process and to its group, a service manager sends two of a kind, a
// shell and the kernel both tell of a terminal that has gone.
const impatience = time.Second

// untilSignaled returns a context that ends when a terminal, a shell or a service manager
// wants the program to end. Everything that was begun is taken back then. Another signal,
// later than impatience, ends the program at once and leaves what it has made; a hangup does
// not, since nobody is there who could be impatient.
func untilSignaled(parent context.Context) (ctx context.Context, cancel context.CancelCauseFunc) {
	ctx, cancel = context.WithCancelCause(parent)
	sent := make(chan os.Signal, 8)
	signal.Notify(sent, os.Interrupt, syscall.SIGTERM)
	// What a parent has ignored stays ignored: nohup, and shells that put a job into the
	// background. SIGINT is the exception: scripts interrupt such jobs by it.
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) {
			signal.Notify(sent, s)
		}
	}
	// Without a receiver, a write to a pipe that nobody reads would end the program on the spot,
	// with its lab running. The writer gets an error instead (outlet).
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		first := <-sent
		cancel(signaled{first.(syscall.Signal)})
		began := time.Now()
		for s := range sent {
			if s == syscall.SIGHUP || time.Since(began) < impatience {
				continue
			}
			if s == syscall.SIGQUIT { // of which Go would make a trace of all goroutines
				os.Exit(signalBase + int(syscall.SIGQUIT))
			}
			signal.Reset(s)
			if self, err := os.FindProcess(os.Getpid()); err != nil || self.Signal(s) != nil {
				os.Exit(signalBase + int(s.(syscall.Signal)))
			}
		}
	}()
	return ctx, cancel
}

// outlet is standard output or standard error. When nobody reads it any more, the program is
// to end as by a signal, whatever it has up: SIGPIPE is how pipelines end.
type outlet struct {
	file *os.File
	gone context.CancelCauseFunc
	lost atomic.Bool // something that was written
}

// Write implements io.Writer.
func (o *outlet) Write(b []byte) (n int, err error) {
	n, err = o.file.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		o.lost.Store(true)
		o.gone(signaled{syscall.SIGPIPE})
	}
	return n, err
}

// Fd returns the descriptor, by which a terminal is known.
func (o *outlet) Fd() uintptr { return o.file.Fd() }
