// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// act is an action of a model's thread. Those that may wait do so as the threads of verbs/time do: they try, and try again when
// they get a turn.
type act byte

const (
	lock    act = iota // the mutex
	unlock             // it, if the thread has it
	wait               // for the condition, with the mutex if the thread has it
	signal             // the condition: one that waits resumes
	post               // the semaphore
	acquire            // the semaphore
	join               // the thread that came first; for that one the last
	sleep              // for an instant
	yield              // as sched_yield: no time but that of a look
	poll               // the completion queue, until the NIC says something
	spin               // on the flag in memory, without a call
	set                // the flag
	read               // a byte from the pipe, which is outside the lab
	write              // a byte to it
	again              // from the first act on
	read2              // a byte from another pipe
	write2             // a byte to it
)

func (a act) String() string {
	return strings.Split("lock unlock wait signal post acquire join sleep yield poll spin set read write again read2 write2", " ")[a]
}

// player is a thread of a model.
type player struct {
	waiter
	acts    []act
	at      int  // of acts
	trying  bool // acts[at] has found nothing before
	woken   bool // from its wait for the condition
	relock  bool // woken, it wants the mutex again
	gave    bool // since it waited, something that another waits for
	asked   bool // it has let others have the mutex first
	busy    int  // acts in this turn
	spins   int  // how often it was found to spin or compute without a call
	ended   bool
	overdue []int // turns of the others since it could resume; nil: it cannot
}

// model is a program of a few threads, with everything that they wait for.
type model struct {
	order
	players []*player
	now     vtime.Time
	news    news
	owner   *player
	sem     int
	pipes   [2]int
	flag    bool
	turns   int
	choices []bool // whether the NIC says something while all wait, as often as that can be
	chosen  int
	proc    process
	failed  string
}

func newModel(scripts [][]act, choices []bool) *model {
	m := &model{choices: choices}
	for _, s := range scripts {
		p := &player{acts: s}
		p.process = &m.proc
		m.players = append(m.players, p)
		m.enter(&p.waiter, m.reserve(), m.now, m.news)
	}
	return m
}

func (m *model) player(w *waiter) *player {
	for _, p := range m.players {
		if &p.waiter == w {
			return p
		}
	}
	return nil
}

// could reports whether a thread that waits for another could resume, whatever the order decides.
func (m *model) could(p *player) bool {
	if p.ended || !p.trying {
		return false
	}
	switch p.acts[p.at] {
	case lock:
		return m.owner == nil
	case wait:
		return p.woken && (!p.relock || m.owner == nil)
	case acquire:
		return m.sem > 0
	case join:
		return m.target(p).ended
	}
	return false
}

func (m *model) target(p *player) *player {
	if p == m.players[0] {
		return m.players[len(m.players)-1]
	}
	return m.players[0]
}

// try carries out an act, or returns the thread's wait.
func (m *model) try(p *player) (done bool, w park) {
	beside := park{Kind: parkBeside, Until: uint64(vtime.Never)}
	switch p.acts[p.at] {
	case lock:
		if m.owner != nil {
			return false, beside
		}
		m.owner = p
	case unlock:
		m.unlock(p)
	case wait:
		switch {
		case !p.trying:
			p.relock, p.woken = m.owner == p, false
			m.unlock(p)
			return false, beside
		case !p.woken || p.relock && m.owner != nil:
			return false, beside
		case p.relock:
			m.owner = p
		}
	case signal:
		for _, x := range m.players { // in the order in which they came: fair enough for a model
			if x.trying && x.acts[x.at] == wait && !x.woken {
				x.woken, p.gave = true, true
				break
			}
		}
	case post:
		m.sem++
		p.gave = p.gave || m.awaited(acquire)
	case acquire:
		if m.sem == 0 {
			return false, beside
		}
		m.sem--
	case join:
		if !m.target(p).ended {
			return false, beside
		}
	case sleep:
		if !p.trying {
			return false, park{Kind: parkSleep, Until: uint64(m.now) + 30000}
		}
	case yield:
		if !p.trying {
			return false, park{Kind: parkSleep, Flags: parkAgain, Until: uint64(m.now) + 10}
		}
	case poll:
		if m.news.done == 0 {
			return false, park{Kind: parkPoll, Until: uint64(m.now) + 50000, Grid: 10}
		}
	case spin:
		if !m.flag {
			return false, park{Kind: parkMemory, Until: uint64(m.now) + 10000}
		}
	case set:
		m.flag = true
	case read, read2:
		if !m.readable(p) {
			return false, park{Kind: parkOutside, Until: uint64(vtime.Never)}
		}
		m.pipes[btoi(p.acts[p.at] == read2)]--
	case write:
		m.pipes[0]++
	case write2:
		m.pipes[1]++
	case again:
		p.at = -1
	}
	return true, park{}
}

// readable reports whether the pipe that a thread reads from has a byte.
func (m *model) readable(p *player) bool { return m.pipes[btoi(p.acts[p.at] == read2)] > 0 }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// awaited reports whether a thread waits with an act.
func (m *model) awaited(a act) bool {
	return slices.ContainsFunc(m.players, func(p *player) bool { return p.trying && p.acts[p.at] == a })
}

// unlock gives the mutex back, if the thread has it.
func (m *model) unlock(p *player) {
	if m.owner == p {
		m.owner = nil
		p.gave = p.gave || m.awaited(lock) || m.awaited(wait)
	}
}

// parks has a thread wait.
func (m *model) parks(p *player, w park) {
	if p.gave {
		w.Flags &^= parkAgain
	}
	p.gave = false
	m.order.parked(&p.waiter, w, m.now, m.news)
}

// turn runs a thread until it waits, or ends.
func (m *model) turn(p *player) {
	p.parked, p.busy = false, 0
	for p.at < len(p.acts) {
		if a := p.acts[p.at]; !p.trying && !p.asked && (a == lock || a == acquire) && m.awaited(a) {
			p.asked = true
			m.parks(p, park{Kind: parkSleep, Until: uint64(m.now)})
			return
		}
		done, w := m.try(p)
		if !done {
			if p.trying {
				w.Flags |= parkAgain
			}
			p.trying = true
			m.parks(p, w)
			return
		}
		p.at, p.trying, p.asked = p.at+1, false, false
		if p.busy++; p.busy > 50 { // the timer of its processor time finds it
			p.spins++
			m.parks(p, park{Kind: parkMemory, Until: uint64(m.now) + 10000})
			return
		}
	}
	m.unlock(p) // a mistake of the program's, and not ours
	p.ended = true
	m.leave(&p.waiter)
}

// watch counts the turns of others while a thread could have resumed.
func (m *model) watch(runs *player) {
	for _, p := range m.players {
		switch {
		case p == runs || !m.could(p):
			p.overdue = nil
		case p.overdue == nil:
			p.overdue = make([]int, len(m.players))
		case runs != nil:
			i := slices.Index(m.players, runs)
			if p.overdue[i]++; p.overdue[i] > 1 {
				m.fail("%v has had two turns since %v could go on", runs.acts, p.acts)
			}
		}
	}
}

func (m *model) fail(format string, args ...any) {
	if m.failed == "" {
		m.failed = fmt.Sprintf(format, args...)
	}
}

// rest handles the events while all threads wait. It reports whether there was one.
func (m *model) rest(until vtime.Time) bool {
	for _, p := range m.players {
		if m.now >= m.resume && m.could(p) {
			m.fail("all wait, and %v could go on", p.acts)
		}
	}
	found := false
	for _, p := range m.players { // as Turns.Check and Turns.Proceed
		if p.parked && p.park.Kind == parkOutside && !p.look && m.readable(p) {
			p.look, found = true, true
		}
	}
	if found {
		m.now++ // they run at an instant that no node has passed
		return true
	}
	polls := slices.ContainsFunc(m.players, func(p *player) bool { return p.parked && p.park.Kind == parkPoll })
	if polls && m.chosen < len(m.choices) && m.news.done == 0 {
		m.chosen++
		if m.choices[m.chosen-1] {
			m.now, m.news.done = m.now+1, 1
			return true
		}
	}
	if until == vtime.Never {
		return false
	}
	if until <= m.now {
		m.fail("all wait until %v, and it is %v", until, m.now)
		return false
	}
	m.now = until
	return true
}

// run runs the program for at most the given number of turns, and until an instant. It reports whether all of it has ended, or can
// never resume.
func (m *model) run(most int, end vtime.Time) (over bool) {
	for m.failed == "" {
		w, _, until := m.next(m.now, m.news)
		if w == nil {
			if !m.rest(until) {
				return true
			}
			if m.now > end { // polls that never succeed, spins on values that no thread sets
				return true
			}
			continue
		}
		if m.turns++; m.turns > most {
			return false
		}
		p := m.player(w)
		m.turn(p)
		m.watch(p)
	}
	return true
}

// scripts returns all sequences of up to n acts.
func scripts(n int) (all [][]act) {
	all = [][]act{nil}
	for from := 0; n > 0; n-- {
		to := len(all)
		for _, s := range all[from:to] {
			for a := lock; a < again; a++ {
				all = append(all, append(slices.Clone(s), a))
			}
		}
		from = to
	}
	return all[1:]
}

// TestOrder: of all programs of two threads with three acts each, and of three threads with two, whatever the NIC does meanwhile, each ends, or
// waits for an event that no thread causes. No thread that could resume is passed over twice, none waits when it could resume, and lab time
// advances.
func TestOrder(t *testing.T) {
	var programs, turns int
	play := func(s ...[]act) {
		for c := range 4 {
			m := newModel(s, []bool{c&1 != 0, c&2 != 0})
			if programs++; !m.run(1000, 1e6) {
				m.fail("it has had 1000 turns")
			}
			if m.failed != "" {
				t.Fatalf("%v, choices %v: %s", s, m.choices, m.failed)
			}
			turns += m.turns
			if m.chosen == 0 {
				break
			}
		}
	}
	one, two, three := scripts(1), scripts(2), scripts(3)
	for _, a := range three {
		for _, b := range one {
			play(a, b)
			play(b, a)
		}
	}
	for i, a := range two {
		for k, b := range two {
			play(a, b)
			if (i+k)%11 == 0 {
				for _, c := range one {
					play(a, b, c)
				}
			}
		}
	}
	t.Logf("%d programs, %d turns", programs, turns)
}

// TestOrderWithoutEnd: threads that hand something to and fro for ever, without a wait for time, do not keep a third from the end of its sleep,
// and those among them that wait for a time are not kept from it.
func TestOrderWithoutEnd(t *testing.T) {
	for _, s := range [][][]act{
		{{post, acquire, again}, {post, acquire, again}},
		{{lock, yield, unlock, again}, {lock, yield, unlock, again}},
		{{lock, signal, wait, unlock, again}, {lock, signal, wait, unlock, again}},
		{{yield, again}, {yield, again}},
		{{write, read, again}, {write, read, again}},
		{{write, read2, again}, {read, write2, again}},
		{{lock, yield, unlock, again}, {lock, unlock, yield, again}, {acquire, post, yield, again}, {post, yield, acquire, again}},
	} {
		m := newModel(append(s, []act{sleep, sleep, sleep, set}), nil)
		m.run(20*freeMoves, vtime.Never)
		if m.failed != "" || !m.flag {
			t.Errorf("%v: after %d turns it is %v, and the sleeper sleeps: %s", s, m.turns, m.now, m.failed)
		}
		for _, p := range m.players[:len(s)] {
			if p.number+100 < m.order.parks {
				t.Errorf("%v: thread %v has not had a turn in %d", s, p.acts, m.order.parks-p.number)
			}
		}
	}
}

// TestOrderOfArrival: threads that were started together run in the order in which they were started, however they arrive; an unannounced
// one runs after them.
func TestOrderOfArrival(t *testing.T) {
	var o order
	var p process
	places := []uint64{o.reserve(), o.reserve(), o.reserve(), 0}
	for _, arrival := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 3, 0, 1}} {
		o.waiters = nil
		threads := make([]waiter, len(places))
		for _, i := range arrival {
			threads[i].process = &p
			o.enter(&threads[i], places[i], 0, news{})
		}
		for i := range threads {
			x, _, _ := o.next(0, news{})
			if x != &threads[i] {
				t.Fatalf("of threads that arrive as %v another than %d runs in its place", arrival, i)
			}
			o.leave(x)
		}
	}
}
