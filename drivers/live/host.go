// SPDX-License-Identifier: Apache-2.0

//go:build linux

package live

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// Host is a host of the lab for the ranks on it (rankhost.Host). Its tasks are goroutines, of
// which one runs at a time. A task has a lab time of its own: the time of the event that woke
// it, however long the wake-up took.
type Host struct {
	loop  *Loop
	nic   *virtrnic.NIC
	agent *mrp.Agent

	token   sync.Mutex // held by the running task
	running *task
	calls   calls // of the running task

	mu      sync.Mutex // protects the fields below; taken under the loop's lock, never around it
	asleep  map[*task]bool
	tasks   int // tasks that have not ended
	seen    uint64
	failed  uint64     // count of completions with an error
	newsAt  vtime.Time // lab time of the latest news
	stopped bool
	live    sync.WaitGroup
	caught  func(p any) // takes the panic of a program
}

// task is one goroutine of a rank.
type task struct {
	now   vtime.Time
	until vtime.Time
	wake  chan vtime.Time
	seen  uint64 // rankhost.News at the task's last look
	name  string
	why   string

	beside bool   // also waits for something outside the lab; of the news only failures wake it
	failed uint64 // count of failures at the task's last look
}

// unwound is the panic value of tasks when the run is over, so that their deferred calls run.
type unwound struct{}

// NewHost returns the host around a NIC. The loop must call its News (Loop.Start). caught
// receives the panic value of a program.
func NewHost(l *Loop, nic *virtrnic.NIC, agent *mrp.Agent, caught func(p any)) *Host {
	return &Host{loop: l, nic: nic, agent: agent, asleep: map[*task]bool{}, caught: caught}
}

// News checks whether an input at lab time at has changed something that tasks may wait for.
// It returns when it must be called next even if there is no input. The loop calls it under
// its lock.
func (h *Host) News(at vtime.Time) (alarm vtime.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, failed := rankhost.News(h.nic, h.agent), h.nic.Failures()
	fresh, failure := c != h.seen, failed != h.failed
	if fresh {
		h.seen, h.failed, h.newsAt = c, failed, at
	}
	alarm = vtime.Never
	for t := range h.asleep { // order does not matter
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

// rouse wakes a sleeping task.
func (h *Host) rouse(t *task, at vtime.Time) {
	delete(h.asleep, t)
	t.wake <- at // the channel holds one value, and a task is roused only once
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

// proceed continues a task that has taken the token.
func (h *Host) proceed(t *task) {
	h.running = t
	h.calls.leave(t.name)
}

// stopWait is the wall time that a program has to end.
const stopWait = 3 * time.Second

// Stop makes every task unwind, now or when it next blocks in package rank, and reports
// whether all tasks have ended. A program that does not call package rank within stopWait
// cannot be ended; then Stop returns false and the host cannot be used any more.
func (h *Host) Stop() (ended bool) {
	h.mu.Lock()
	h.stopped = true
	for t := range h.asleep { // order does not matter
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
			} // else a store is still at work
		}
	}
	h.mu.Lock()
	h.stopped = false
	h.mu.Unlock()
	return true
}

// Now implements rankhost.Host.
func (h *Host) Now() vtime.Time { return h.running.now }

// Do implements rankhost.Host.
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

// Park implements rankhost.Host.
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
	if h.seen != t.seen { // news has come since the task's last look, so it may look again at once
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

// resume continues a task that has been roused.
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

// ParkBeside blocks the task until something outside the lab closes over, until a request of
// the host has failed since the task's last look, or until another task wakes it.
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
			<-t.wake // another goroutine has roused the task already
		}
		h.mu.Unlock()
	}
	h.resume(t, at)
}

// Kick implements rankhost.Host.
func (h *Host) Kick() {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.running.now
	for t := range h.asleep { // order does not matter
		h.rouse(t, at)
	}
}

// Spawn implements rankhost.Host.
func (h *Host) Spawn(name string, f func()) { h.Go(h.running.now, h.running.name+"/"+name, f) }

// Await lets other tasks of the host run while f blocks on something outside the lab. The task
// continues at the lab time that f returns; vtime.Never means now.
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

// count adds n to the number of tasks.
func (h *Host) count(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tasks += n
}

// Tasks returns the number of tasks on the host.
func (h *Host) Tasks() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tasks
}

// Waiting returns the reason of each task's wait.
func (h *Host) Waiting() (why []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for t := range h.asleep { // sorted below
		why = append(why, t.why)
	}
	slices.Sort(why)
	return why
}

// Resting reports whether all tasks wait for something without a deadline, and lists the reason of each
// wait.
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

// Outside returns the task that is running code outside package rank, and for how long; the
// time is 0 if there is none.
func (h *Host) Outside() (name string, since time.Duration) { return h.calls.outside() }

// calls tracks since when the running task has been outside package rank.
type calls struct {
	mu   sync.Mutex
	name string
	left time.Time // zero: the task is inside, or none runs
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
