//go:build linux

package live

import (
	"sync"

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

	mu      sync.Mutex // of what follows; taken under the loop's lock, never around it
	asleep  map[*task]bool
	seen    uint64
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
	why   string
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
	c := h.nic.Completions() + h.agent.Changes()
	fresh := c != h.seen
	if fresh {
		h.seen, h.newsAt = c, at
	}
	alarm = vtime.Never
	for t := range h.asleep { // each by itself
		switch {
		case t.until <= at:
			h.rouse(t, t.until)
		case fresh:
			t.seen = h.seen
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
func (h *Host) Go(now vtime.Time, f func()) {
	h.live.Add(1)
	go h.run(&task{now: now, wake: make(chan vtime.Time, 1)}, f)
}

func (h *Host) run(t *task, f func()) {
	defer h.live.Done()
	h.token.Lock()
	defer h.token.Unlock()
	h.running = t
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(unwound); !ok {
				h.caught(p)
			}
		}
	}()
	f()
}

// Stop makes every task that waits, or comes to wait, unwind, and returns when all have
// ended.
func (h *Host) Stop() {
	h.mu.Lock()
	h.stopped = true
	for t := range h.asleep { // each wakes up
		h.rouse(t, t.now)
	}
	h.mu.Unlock()
	h.live.Wait()
	h.mu.Lock()
	h.stopped = false
	h.mu.Unlock()
}

// Now implements rank.Host.
func (h *Host) Now() vtime.Time { return h.running.now }

// Do implements rank.Host.
func (h *Host) Do(f func(now vtime.Time, nic *virtrnic.NIC, agent *mrp.Agent)) {
	t := h.running
	if !h.loop.Call(t.now, func(now vtime.Time) {
		t.now = now
		h.mu.Lock()
		t.seen = h.seen
		h.mu.Unlock()
		f(now, h.nic, h.agent)
	}) {
		panic(unwound{})
	}
}

// Park implements rank.Host.
func (h *Host) Park(until vtime.Time, why string) {
	t := h.running
	t.until, t.why = until, why
	h.mu.Lock()
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
	at := <-t.wake
	h.token.Lock()
	h.running = t
	h.mu.Lock()
	over := h.stopped
	h.mu.Unlock()
	if over {
		panic(unwound{})
	}
	t.now = max(t.now, at)
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
func (h *Host) Spawn(_ string, f func()) { h.Go(h.running.now, f) }

// Await lets other tasks of the host run while f blocks on something outside the lab.
// The task goes on at the lab time that f returns; vtime.Never means now.
func (h *Host) Await(why string, f func() (vtime.Time, bool)) {
	t := h.running
	t.why = why
	h.token.Unlock()
	at, ok := f()
	h.token.Lock()
	h.running = t
	if !ok {
		panic(unwound{})
	}
	if at == vtime.Never {
		at = h.loop.Now()
	}
	t.now = max(t.now, at)
}

// Waiting says what the host's tasks wait on.
func (h *Host) Waiting() (why []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for t := range h.asleep { // for people to read
		why = append(why, t.why)
	}
	return why
}
