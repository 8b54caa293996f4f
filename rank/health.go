package rank

import (
	"fmt"
	"strings"

	"github.com/mcastlab/mcastlab/mrp"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/vtime"
)

// health is what a rank and all its views (Sub) know of what has failed on its host. A
// request that has failed means a message that does not come somewhere: whoever waits for
// it, or for what it would have led to, may wait without end, and so may this rank for
// them. So a failure ends all waits of the rank, whatever they are for. The rank's program
// ends with it, and with the program the job.
type health struct {
	job  *job
	seen uint64 // failed completions of the NIC that were looked for
	err  error  // the first failure
}

// look takes what the views' completion queues hold if something on the host has failed
// since the last look. It is called in the same Do as whatever else a wait looks at, so
// that what comes after that look wakes the task.
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

// fail notes a failure; the first one counts.
func (h *health) fail(err error) {
	if h.err == nil {
		h.err = err
	}
}

// Survive says that the program looks at the failures of this view's requests itself: such
// a failure is what the wait for that request returns, and no other wait ends with it.
func (r *Rank) Survive() { r.survives = true }

// Failed returns the failure that ends the waits of the rank, or nil.
func (r *Rank) Failed() error {
	r.c.Host.Do(func(_ vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) { r.health.look(nic) })
	return r.health.err
}

// failure is what a wait that returns no error panics with when the rank has failed.
type failure struct{ err error }

// Run runs a rank's program and returns its error, also what has ended one of its waits
// that returns none. Runtimes call it.
func Run(program func() error) (err error) {
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

// Deadlock returns the error of a job whose tasks all wait for what cannot come: NAME on WHAT.
func Deadlock(blocked []string) error {
	const show = 4
	more := ""
	if len(blocked) > show {
		more = fmt.Sprintf(", and %d more", len(blocked)-show)
		blocked = blocked[:show]
	}
	return fmt.Errorf("%w: waiting on nothing that can happen: %s%s", ErrDeadlock, strings.Join(blocked, "; "), more)
}

// park blocks until something may have changed, or ends the program if the rank has failed.
// The caller has looked (health.look).
func (r *Rank) park(until vtime.Time, why string) {
	if err := r.health.err; err != nil {
		panic(failure{err})
	}
	r.c.Host.Park(until, why)
}

// get returns a published value; it waits for it, or ends the program if the rank fails.
func (r *Rank) get(key, why string) []byte {
	v, ok := r.c.Board.Get(key, why, r.over)
	if !ok {
		panic(failure{r.health.err})
	}
	return v
}

// over reports whether the rank has failed.
func (r *Rank) over() bool { return r.Failed() != nil }

// cause returns how a request ended: if only because its connection had failed, how that did.
func (r *Rank) cause(q *Request) error {
	err := r.ended(q)
	if Flushed(err) && !r.survives {
		return r.health.err // this request's, if none came before it
	}
	return err
}

// ended describes how a request of the rank failed.
func (r *Rank) ended(q *Request) error {
	return fmt.Errorf("rank %d, %s: %w", r.c.ID, q.what(), q.err)
}
