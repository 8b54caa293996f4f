// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// What a program does when it has its turn (Turns).

// Waits on the wall clock.
const (
	openWait   = time.Minute      // for a program that is to be started
	expectWait = 2 * time.Second  // for a process that was started; one that does not connect does not use lab time
	endWait    = 10 * time.Second // for the processes of a program that has ended
	turnLook   = 100 * time.Millisecond
)

// Run resumes the program of a rank whenever it may run, until it has ended, and returns the waits of its threads if it was killed. The
// task of the rank calls it.
func (t *Turns) Run(rank int, h Host) (waited []string, err error) {
	p := t.program(uint32(rank))
	p.host = h
	defer func() { delete(t.programs, uint32(rank)) }()
	if !p.until(openWait, func() bool { return p.open }) {
		return nil, fmt.Errorf("the program of rank %d has not been started within %v", rank, openWait)
	}
	for {
		p.turn()
		if p.ended {
			break
		}
		until, why := p.rest()
		h.Park(until, why)
	}
	p.until(endWait, func() bool { return len(p.procs) == 0 && (len(t.programs) > 1 || t.s.idle()) })
	slices.Sort(p.waited) // threads may die in any order
	return p.waited, nil
}

// waitedMax is the number of waits that a program reports.
const waitedMax = 8

// note keeps a line about a wait of the program.
func (p *Program) note(line string) {
	if len(p.waited) < waitedMax && !slices.Contains(p.waited, line) {
		p.waited = append(p.waited, line)
	}
}

// died records the wait of a thread that has not ended by itself.
func (p *Program) died(x *thread) {
	if (x.parked || x.park.Flags&parkAgain != 0) && !x.noted { // between two looks it waits, too
		x.noted = true
		p.note(fmt.Sprintf("a thread waited for %s since %v", x.what(), x.began))
	}
}

// failure is a request that has not succeeded.
type failure struct {
	status virtrnic.WCStatus
	at     vtime.Time
}

// failed keeps the last error of a queue pair. Requests that are flushed afterwards do not show the
// reason.
func (c *client) failed(w *virtrnic.WC, now vtime.Time) {
	if _, known := c.failures[w.QPN]; known && w.Status == virtrnic.WCWRFlushErr {
		return
	}
	if c.failures == nil {
		c.failures = map[wire.QPN]failure{}
	}
	c.failures[w.QPN] = failure{w.Status, now}
}

// tellFailures notes the errors of a client whose program ends.
func (c *client) tellFailures() {
	if c.program == nil {
		return
	}
	for _, qpn := range slices.Sorted(maps.Keys(c.failures)) {
		f := c.failures[qpn]
		c.program.note(fmt.Sprintf("QP %d completed with %q at %v", qpn, f.status, f.at))
	}
}

// idle reports whether no program has a connection.
func (s *Server) idle() bool { return len(s.clients) == 0 }

// until handles messages of connections until cond holds. It reports whether it does before the wall time is over.
func (p *Program) until(limit time.Duration, cond func() bool) bool {
	end := time.After(limit)
	for {
		if cond() {
			return true
		}
		select {
		case f := <-p.t.in:
			f()
		case <-time.After(turnLook): // cond may depend on the time
		case <-p.t.stop:
			return false
		case <-end:
			return cond()
		}
	}
}

// turn resumes threads until all of them wait for events that are yet to come.
func (p *Program) turn() {
	p.t.runs = p
	for {
		for more := true; more; { // messages between turns
			select {
			case f := <-p.t.in:
				f()
			default:
				more = false
			}
		}
		p.settle(time.Time{})
		p.t.drain(p.host.Now())
		if p.ended {
			return
		}
		x, why, _ := p.next()
		if x == nil {
			return
		}
		x.goOn(p.host.Now(), why)
	}
}

// settle returns when no thread runs, or at an instant of the server's clock unless that is zero.
func (p *Program) settle(end time.Time) {
	for again := firstLook; (p.running() || p.wake()) && !p.ended && (end.IsZero() || time.Now().Before(end)); {
		select {
		case f := <-p.t.in:
			f()
			again = firstLook
		case <-time.After(again): // a process that was expected may not come, a thread may sleep
			p.observe()
			again = min(2*again, lastLook)
		case <-p.t.stop:
			p.ended = true
		}
	}
}

// drain takes programs' posted requests, and hands them their completions.
func (t *Turns) drain(now vtime.Time) {
	for {
		done := t.s.nic.Completions()
		for _, c := range t.s.inOrder() {
			c.work.drain(c)
		}
		t.s.News(now)
		t.s.doJobs()
		if t.s.nic.Completions() == done {
			t.s.flushBehind()
			return
		}
	}
}

// running reports whether a thread runs, or a process is expected, or an end has not been noticed in all places.
func (p *Program) running() bool {
	if slices.ContainsFunc(p.t.s.inOrder(), (*client).hungUp) {
		return true
	}
	if !p.over.IsZero() && time.Since(p.over) < endWait {
		return true // with its first process a program ends
	}
	for pid, since := range p.expected { // independent of each other
		if time.Since(since) > expectWait {
			delete(p.expected, pid)
		}
	}
	for _, x := range p.procs { // independent of each other
		if x.coming > 0 {
			return true
		}
	}
	return !p.begun || len(p.expected) > 0 || slices.ContainsFunc(p.threads, func(x *thread) bool { return !x.parked })
}

// next returns the thread that runs next, and why, or until when all of them wait.
func (p *Program) next() (x *thread, why uint32, until vtime.Time) {
	w, why, until := p.order.next(p.host.Now(), p.t.news())
	for _, x := range p.threads {
		if &x.waiter == w {
			return x, why, until
		}
	}
	return nil, 0, until
}

// news returns the counters of events at the host.
func (t *Turns) news() news { return news{t.s.told, t.s.puts, t.s.nic.Completions()} }

// rest returns the instant until which the program's task waits, and the reason.
func (p *Program) rest() (until vtime.Time, why string) {
	_, _, until = p.next()
	count := map[string]int{}
	for _, x := range p.threads {
		count[x.what()]++
	}
	for _, w := range slices.Sorted(maps.Keys(count)) {
		if why == "" || count[w] > count[why] {
			why = w
		}
	}
	if why == "" {
		why = "a process that does not know lab time"
	}
	return until, why
}

// what describes the wait of a thread.
func (x *waiter) what() string {
	switch {
	case x.park.Kind != parkSleep || x.until() < vtime.Never:
		return waits[min(int(x.park.Kind), len(waits)-1)]
	case x.park.Flags&parkEvents != 0:
		return "an event of its NIC"
	}
	return "a signal"
}

// waits are the descriptions of threads' waits, by kind.
var waits = [...]string{"nothing", "lab time", "completions", "something outside the lab", "another of its threads", "its memory", "something in the kernel"}
