//go:build linux

package live

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/mrp"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/vtime"
)

// Host is a host of the lab as the ranks on it see it (rank.Host). Its tasks are
// goroutines of which one runs at a time. A task has a lab time of its own: that of
// what woke it up, however long the wake-up took.
type Host struct {
	loop  *Loop
	nic   *virtrnic.NIC
	agent *mrp.Agent

	token   sync.Mutex // held by the task that runs
	running *task
	calls   calls // of the task that runs

	mu      sync.Mutex // of what follows; taken under the loop's lock, never around it
	asleep  map[*task]bool
	tasks   int // those that have not ended
	seen    uint64
	failed  uint64     // completions that are no success
	newsAt  vtime.Time // of the latest news
	stopped bool
	live    sync.WaitGroup
	caught  func(p any) // a panic of a program
}

// task is one goroutine of a rank.
type task struct {
	now   vtime.Time
	until vtime.Time
	wake  chan vtime.Time
	seen  uint64 // news the task has looked at
	name  string
	why   string

	beside bool   // waits for what comes from outside the lab, too; of the news, failures only concern it
	failed uint64 // those of them that the task has looked at
}

// unwound is what a task panics with when the run is over, so that its deferred calls
// run.
type unwound struct{}

// NewHost returns the host around a NIC. News has to be told to it (Loop.Start).
// caught is given what a program panicked with.
func NewHost(l *Loop, nic *virtrnic.NIC, agent *mrp.Agent, caught func(p any)) *Host {
	return &Host{loop: l, nic: nic, agent: agent, asleep: map[*task]bool{}, caught: caught}
}

// News looks whether an input at lab time at has changed what tasks may wait for, and
// returns when it wants to be asked next even if nothing comes. The loop calls it under
// its lock.
func (h *Host) News(at vtime.Time) (alarm vtime.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, failed := h.nic.Completions()+h.agent.Changes(), h.nic.Failures()
	fresh, failure := c != h.seen, failed != h.failed
	if fresh {
		h.seen, h.failed, h.newsAt = c, failed, at
	}
	alarm = vtime.Never
	for t := range h.asleep { // each by itself
		switch {
		case t.until <= at:
			h.rouse(t, t.until)
		case fresh && (!t.beside || failure):
			t.seen, t.failed = h.seen, h.failed
			h.rouse(t, at)
		default:
			alarm = min(alarm, t.until)
		}
	}
	return alarm
}

// rouse wakes a task that sleeps.
func (h *Host) rouse(t *task, at vtime.Time) {
	delete(h.asleep, t)
	t.wake <- at // has room for one, and a task is roused once
}

// Go starts a program's first task on the host at a lab time.
func (h *Host) Go(now vtime.Time, name string, f func()) {
	h.live.Add(1)
	h.count(1)
	go h.run(&task{now: now, name: name, wake: make(chan vtime.Time, 1)}, f)
}

func (h *Host) run(t *task, f func()) {
	defer h.live.Done()
	h.token.Lock()
	defer h.token.Unlock()
	h.proceed(t)
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(unwound); !ok {
				h.caught(p)
			}
		}
		h.calls.enter()
		h.count(-1)
	}()
	f()
}

// proceed lets a task go on that has got the token.
func (h *Host) proceed(t *task) {
	h.running = t
	h.calls.leave(t.name)
}

// stopWait is how long of wall time a program may take to come to its end.
const stopWait = 3 * time.Second

// Stop makes every task that waits, or comes to wait, unwind, and returns when all have
// ended. A program that does not come back to package rank meanwhile cannot be ended: then
// it returns false, and the host is of no use any more.
func (h *Host) Stop() (ended bool) {
	h.mu.Lock()
	h.stopped = true
	for t := range h.asleep { // each wakes up
		h.rouse(t, t.now)
	}
	h.mu.Unlock()
	done := make(chan struct{})
	go func() {
		h.live.Wait()
		close(done)
	}()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		case <-time.After(stopWait):
			if name, _ := h.Outside(); name != "" {
				return false
			} // else a store takes its time
		}
	}
	h.mu.Lock()
	h.stopped = false
	h.mu.Unlock()
	return true
}

// Now implements rank.Host.
func (h *Host) Now() vtime.Time { return h.running.now }

// Do implements rank.Host.
func (h *Host) Do(f func(now vtime.Time, nic *virtrnic.NIC, agent *mrp.Agent)) {
	t := h.running
	h.calls.enter()
	if !h.loop.Call(t.now, func(now vtime.Time) {
		t.now = now
		h.mu.Lock()
		t.seen, t.failed = h.seen, h.failed
		h.mu.Unlock()
		f(now, h.nic, h.agent)
	}) {
		panic(unwound{})
	}
	h.calls.leave(t.name)
}

// Park implements rank.Host.
func (h *Host) Park(until vtime.Time, why string) {
	t := h.running
	h.calls.enter()
	h.mu.Lock()
	t.until, t.why, t.beside = until, why, false
	if h.stopped {
		h.mu.Unlock()
		panic(unwound{})
	}
	h.asleep[t] = true
	if h.seen != t.seen { // came since the task last looked, which it may do now: once
		t.seen = h.seen
		h.rouse(t, min(h.newsAt, until))
	}
	h.mu.Unlock()
	if until != vtime.Never {
		h.loop.SetAlarm(until)
	}
	h.token.Unlock()
	h.resume(t, <-t.wake)
}

// resume lets a task go on that has been roused.
func (h *Host) resume(t *task, at vtime.Time) {
	h.token.Lock()
	h.proceed(t)
	h.mu.Lock()
	over := h.stopped
	h.mu.Unlock()
	if over {
		panic(unwound{})
	}
	t.now = max(t.now, at)
}

// ParkBeside blocks the task until over is closed, by somebody outside the lab, or a request
// of the host has failed since the task looked, or it is woken by another task.
func (h *Host) ParkBeside(why string, over <-chan struct{}) {
	t := h.running
	h.calls.enter()
	h.mu.Lock()
	t.until, t.why, t.beside = vtime.Never, why, true
	if h.stopped {
		h.mu.Unlock()
		panic(unwound{})
	}
	h.asleep[t] = true
	if h.failed != t.failed {
		t.failed = h.failed
		h.rouse(t, h.newsAt)
	}
	h.mu.Unlock()
	h.token.Unlock()
	var at vtime.Time
	select {
	case at = <-t.wake:
	case <-over:
		at = h.loop.Now()
		h.mu.Lock()
		if h.asleep[t] {
			delete(h.asleep, t)
		} else {
			<-t.wake // somebody was first
		}
		h.mu.Unlock()
	}
	h.resume(t, at)
}

// Kick implements rank.Host.
func (h *Host) Kick() {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.running.now
	for t := range h.asleep { // each wakes up
		h.rouse(t, at)
	}
}

// Spawn implements rank.Host.
func (h *Host) Spawn(name string, f func()) { h.Go(h.running.now, h.running.name+"/"+name, f) }

// Await lets other tasks of the host run while f blocks on something outside the lab.
// The task goes on at the lab time that f returns; vtime.Never means now.
func (h *Host) Await(why string, f func() (vtime.Time, bool)) {
	t := h.running
	t.why = why
	h.calls.enter()
	h.token.Unlock()
	at, ok := f()
	h.token.Lock()
	h.proceed(t)
	if !ok {
		panic(unwound{})
	}
	if at == vtime.Never {
		at = h.loop.Now()
	}
	t.now = max(t.now, at)
}

// count notes tasks that begin or end.
func (h *Host) count(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tasks += n
}

// Tasks returns how many tasks there are on the host.
func (h *Host) Tasks() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tasks
}

// Waiting says what the host's tasks wait on.
func (h *Host) Waiting() (why []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for t := range h.asleep { // sorted below
		why = append(why, t.why)
	}
	slices.Sort(why)
	return why
}

// Resting says whether all tasks wait for something that has no time, and who for what.
func (h *Host) Resting() (who []string, resting bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for t := range h.asleep { // sorted below
		if t.until != vtime.Never {
			return nil, false
		}
		who = append(who, fmt.Sprintf("%s on %s", t.name, t.why))
	}
	slices.Sort(who)
	return who, len(h.asleep) == h.tasks
}

// Outside says which task has not come back to package rank, and for how long; no time if
// none runs.
func (h *Host) Outside() (name string, since time.Duration) { return h.calls.outside() }

// calls says since when the task that runs is outside package rank.
type calls struct {
	mu   sync.Mutex
	name string
	left time.Time // zero: it is inside, or none runs
}

func (c *calls) enter() {
	c.mu.Lock()
	c.left = time.Time{}
	c.mu.Unlock()
}

func (c *calls) leave(name string) {
	c.mu.Lock()
	c.name, c.left = name, time.Now()
	c.mu.Unlock()
}

func (c *calls) outside() (name string, since time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left.IsZero() {
		return "", 0
	}
	return c.name, time.Since(c.left)
}
