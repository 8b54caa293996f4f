// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// health records failures on a rank's host; the rank and all its views (Sub) share it. After a failed
// request some message may never arrive, so a rank that waits for it, directly or not, may wait for
// ever, and this rank for that rank. A failure therefore ends all waits of the rank, and with them the
// rank's program and the job.
type health struct {
	job  *job
	seen uint64 // count of the NIC's failed completions at the last look
	err  error  // the first failure
}

// look takes the completions of all views if something on the host has failed since the last
// look. It is called in the same Do as the other checks of a wait, so that whatever happens
// after them wakes the task.
func (h *health) look(nic *virtrnic.NIC) {
	failed := nic.Failures()
	if failed == h.seen {
		return
	}
	h.seen = failed
	for _, v := range h.job.views {
		if !v.survives {
			v.take(nic)
		}
	}
}

// fail records a failure; only the first one counts.
func (h *health) fail(err error) {
	if h.err == nil {
		h.err = err
	}
}

// Survive declares that the program handles the failures of this view's requests itself. Then
// only the wait for the failed request returns the failure, and no other wait ends with it.
func (r *Rank) Survive() { r.survives = true }

// Failed returns the failure that ends the waits of the rank, or nil if there is none.
func (r *Rank) Failed() error {
	r.c.Host.Do(func(_ vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) { r.health.look(nic) })
	return r.health.err
}

// failure is the panic value of waits that return no error, once the rank has failed.
type failure struct{ err error }

// run runs a rank's program and returns its error. It also returns a failure that ended a wait
// which returns no error.
func run(program func() error) (err error) {
	defer func() {
		p := recover()
		if f, ok := p.(failure); ok {
			err = f.err
		} else if p != nil {
			panic(p)
		}
	}()
	return program()
}

// park blocks until something may have changed; it ends the program if the rank has failed.
// The caller has called health.look before.
func (r *Rank) park(until vtime.Time, why string) {
	if err := r.health.err; err != nil {
		panic(failure{err})
	}
	r.c.Host.Park(until, why)
}

// get waits for a published value and returns it; it ends the program if the rank fails.
func (r *Rank) get(key, why string) []byte { return r.ask(r.c.Board.Get, key, why) }

// takeValue is get by the only reader of a key, which asks for it once.
func (r *Rank) takeValue(key, why string) []byte { return r.ask(r.c.Board.Take, key, why) }

func (r *Rank) ask(get func(key, why string, over func() bool) ([]byte, bool), key, why string) []byte {
	v, ok := get(key, why, r.over)
	if !ok {
		panic(failure{r.health.err})
	}
	return v
}

// over reports whether the rank has failed.
func (r *Rank) over() bool { return r.Failed() != nil }

// cause returns why a request failed. If it was only flushed because its connection had failed
// before, that is the connection's failure.
func (r *Rank) cause(q *Request) error {
	err := r.ended(q)
	if Flushed(err) && !r.survives {
		return r.health.err // this request's own failure, if it was the first
	}
	return err
}

// ended returns the error of a failed request, with the rank and the request in its text.
func (r *Rank) ended(q *Request) error {
	return fmt.Errorf("rank %d, %s: %w", r.c.ID, q.what(), q.Err())
}
