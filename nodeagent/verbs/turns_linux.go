// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// Turns are the programs on a host whose time is virtual. A program is a task of its node: when it has its turn its threads run,
// and the turn ends when all of them wait. Lab time stands still meanwhile. All requests of programs to the NIC are carried out
// within turns too, and by the goroutine that has them: nothing depends on speed.
//
// A thread is one that has a connection (opThread). It reports its wait, and gets the lab time when it resumes. Threads run one at
// a time, in the order of their arrival.
type Turns struct {
	in   chan func()   // messages of connections: they are handled within turns
	stop chan struct{} // closed when the run ends: programs have no turns any more
	over chan struct{} // closed when no turns are taken any more
	last sync.Mutex    // held by work after the end
	s    *Server
	runs *Program // the program that has its turn, or had it last

	// What follows is touched within turns, and between them by the same goroutine.
	programs map[uint32]*Program
	touched  uint64
	told     uint64 // the count of Server as of the last turn of programs for it
	wrote    uint64 // and Server.puts
}

// Host is the host of a program's task (rankhost.Host).
type Host interface {
	Now() vtime.Time
	Park(until vtime.Time, why string)
	Kick()
}

// NewTurns returns the turns of a host. They are those of the server that is made with them.
func NewTurns() *Turns {
	return &Turns{in: make(chan func(), 1024), stop: make(chan struct{}), over: make(chan struct{}), programs: map[uint32]*Program{}}
}

// do does something within a turn, and returns when it is done. Without turns it does it at once.
func (t *Turns) do(f func()) {
	if t == nil {
		f()
		return
	}
	done := make(chan struct{})
	select {
	case t.in <- func() { f(); close(done) }:
	case <-t.over:
	}
	select {
	case <-done:
	case <-t.over:
		t.last.Lock()
		defer t.last.Unlock()
		select {
		case <-done:
		default:
			f()
		}
	}
}

// say does something within a turn. It does not wait for it.
func (t *Turns) say(f func()) {
	select {
	case t.in <- f:
	case <-t.over:
	}
}

// Stop has the turn under way end soon, and no other begin. Any goroutine may call it, once.
func (t *Turns) Stop() { close(t.stop) }

// End ends all turns. The goroutine that has them calls it.
func (t *Turns) End() { close(t.over) }

// Program is a program on a host: that of a rank, with all processes that it has started.
type Program struct {
	t        *Turns
	rank     uint32
	host     Host
	open     bool      // its guardian has come
	ended    bool      // and gone
	look     bool      // it resumes, after input from outside the lab
	entered  int       // threads that have come
	first    uint32    // its first process; 0: none has come
	over     time.Time // when that died
	procs    map[uint32]*proc
	threads  []*thread            // in the order in which they came
	order    order                // of the same threads
	places   map[seat]uint64      // in it, of threads that have been started and have not come yet
	begun    bool                 // its guardian has said which process it is
	seen     map[uint32]bool      // processes that have come
	waited   []string             // waits of threads that have died since the last message, and errors of their queue pairs
	expected map[uint32]time.Time // processes that have been started, and have not come yet
}

// proc is a process of a program.
type proc struct {
	process
	pid    uint32
	begun  uint32 // threads that have been announced
	coming int    // threads that have been announced and have not come; below 0: that have come before they were
}

// thread is a thread of a program.
type thread struct {
	waiter
	conn  *net.UnixConn
	proc  *proc
	seat  seat
	asked bool // it is to report whether it could resume
	ready bool // it could
	noted bool // it has died, and its wait is kept
	sight *sight
	slept uint64 // its place among those that wait, when its turn was given on since it slept in the kernel
}

// seat identifies a thread of a process: 0 is a process's first, and others count from 1 in the order in which they were announced.
type seat struct{ pid, thread uint32 }

// program returns the program of a rank.
func (t *Turns) program(rank uint32) *Program {
	p := t.programs[rank]
	if p == nil {
		p = &Program{t: t, rank: rank, procs: map[uint32]*proc{}, places: map[seat]uint64{}, seen: map[uint32]bool{}, expected: map[uint32]time.Time{}}
		t.programs[rank] = p
	}
	return p
}

// serve handles the messages of the connection of a guardian or a thread, until it ends.
func (t *Turns) serve(conn *net.UnixConn, m any, fds []int) {
	switch m := m.(type) {
	case *programHello:
		closeAll(fds)
		t.serveGuardian(conn, m.Rank)
	case *threadHello:
		switch len(fds) {
		case 1:
			t.serveThread(conn, m, fds[0], nil)
			return
		case 3:
			if v, err := newSight(fds[1], fds[2]); err == nil {
				t.serveThread(conn, m, fds[0], v)
				return
			}
			fds = fds[:1] // the others are closed
		}
		closeAll(fds)
	}
}

func (t *Turns) serveGuardian(conn *net.UnixConn, rank uint32) {
	var p *Program
	t.say(func() {
		p = t.program(rank)
		p.open = true
	})
	for {
		b, fds, err := receive(conn)
		closeAll(fds)
		if err != nil {
			break
		}
		if o, m, err := decode(b); err == nil && o == opExpect {
			t.say(func() {
				p.begun = true
				p.expect(m.(*byID).ID)
			})
		}
	}
	t.say(func() {
		p.ended = true
		t.touched++
	})
}

// serveThread takes over the descriptor of the thread's process, and how the thread is seen, if it is.
func (t *Turns) serveThread(conn *net.UnixConn, m *threadHello, process int, v *sight) {
	x := &thread{conn: conn, sight: v}
	var p *Program
	t.say(func() {
		p = t.program(m.Rank)
		p.enter(x, m, process)
	})
	bye := false
	for !bye { // a child that was forked meanwhile may hold the connection for longer
		b, fds, err := receive(conn)
		closeAll(fds)
		if err != nil {
			break
		}
		o, m, err := decode(b)
		if err != nil {
			break
		}
		switch m := m.(type) {
		case *park:
			t.say(func() { x.hears(); p.parks(x, *m) })
		case *byID:
			bye = bye || o == opBye
			t.say(func() {
				x.hears()
				switch o {
				case opExpect:
					p.announce(x, m.ID)
				case opDies:
					p.awaitDeath(m.ID)
				}
			})
		}
	}
	t.say(func() {
		if !bye {
			p.died(x)
		}
		p.leave(x, bye)
		if v != nil {
			x.sight = nil
			v.close()
		}
	})
}

// enter takes a thread, which runs.
func (p *Program) enter(x *thread, m *threadHello, process int) {
	pid := m.PID
	delete(p.expected, pid)
	p.seen[pid] = true
	x.proc = p.procs[pid]
	if x.proc == nil {
		x.proc = &proc{pid: pid}
		p.procs[pid] = x.proc
		go func() {
			fds := []unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}
			for {
				if _, err := unix.Poll(fds, -1); !errors.Is(err, unix.EINTR) {
					break
				}
			}
			_ = unix.Close(process) // it was only waited for
			p.t.say(func() { p.dies(pid) })
		}()
	} else {
		_ = unix.Close(process)
	}
	if p.first == 0 {
		p.first = pid
	}
	if m.Announced != 0 {
		x.proc.coming--
	} else if !slices.ContainsFunc(p.threads, func(o *thread) bool { return o.proc == x.proc }) {
		x.proc.begun = 0 // it may have been another program
	}
	x.process = &x.proc.process
	p.threads = append(p.threads, x)
	p.entered++
	x.seat = seat{pid, m.Announced}
	p.order.enter(&x.waiter, p.places[x.seat], p.t.now(p), p.t.news())
	delete(p.places, x.seat)
}

// now returns the lab time; 0 before the program's task runs.
func (t *Turns) now(p *Program) vtime.Time {
	if p.host == nil {
		return 0
	}
	return p.host.Now()
}

func (x *thread) goOn(now vtime.Time, why uint32) {
	x.parked, x.ready, x.look, x.slept = false, false, false, 0
	_, _ = x.conn.Write(encode(turn{Why: why, Now: uint64(now)})) // the end of a thread shows by its connection
}

func (p *Program) parks(x *thread, m park) {
	if x.asked {
		x.asked, x.ready = false, m.Flags&parkReady != 0
		return
	}
	p.order.parked(&x.waiter, m, p.t.now(p), p.t.news())
	if m.Flags&parkBack != 0 && x.slept != 0 {
		x.number = x.slept // which of several was woken first is a matter of the server
	}
	p.waited = nil // it lives
	if x.sight != nil && m.Kind != parkPoll && m.Flags&parkAgain == 0 && x.sight.hasWritten() {
		p.t.touched++
	}
	// The event of a new wait may have happened already, and will not be signalled again: bytes that a poll has found and a recv then
	// waits for.
	if m.Flags&parkTouched != 0 || m.Kind == parkOutside {
		p.t.touched++
	}
}

// expect notes that a process has been started.
func (p *Program) expect(pid uint32) {
	p.reserve(seat{pid: pid})
	if !p.seen[pid] {
		p.expected[pid] = time.Now()
	}
}

// awaitDeath records that a process dies of a signal: no thread resumes before its death.
func (p *Program) awaitDeath(pid uint32) {
	if p.procs[pid] != nil {
		p.expected[pid] = time.Now()
	}
}

// reserve gives a thread its place, which is about to come, or has come already.
func (p *Program) reserve(s seat) {
	if i := slices.IndexFunc(p.threads, func(x *thread) bool { return x.seat == s && x.number == 0 }); i >= 0 {
		p.threads[i].number = p.order.reserve()
	} else if s.thread > 0 || !p.seen[s.pid] {
		p.places[s] = p.order.reserve()
	}
}

// announce records the start of a process or thread by a thread.
func (p *Program) announce(x *thread, what uint32) {
	switch what {
	case expectThread:
		x.proc.coming++
		x.proc.begun++
		p.reserve(seat{x.proc.pid, x.proc.begun})
	case expectNone:
		x.proc.coming--
	default:
		p.expect(what)
	}
}

// leave forgets a thread. A process whose last thread goes without a word dies, or becomes another program.
func (p *Program) leave(x *thread, bye bool) {
	p.threads = slices.DeleteFunc(p.threads, func(o *thread) bool { return o == x })
	p.order.leave(&x.waiter)
	p.t.touched++
	if p.procs[x.proc.pid] == x.proc && !bye && !slices.ContainsFunc(p.threads, func(o *thread) bool { return o.proc == x.proc }) {
		p.expected[x.proc.pid] = time.Now()
	}
}

func (p *Program) dies(pid uint32) {
	delete(p.procs, pid)
	delete(p.expected, pid)
	maps.DeleteFunc(p.places, func(s seat, _ uint64) bool { return s.pid == pid })
	p.threads = slices.DeleteFunc(p.threads, func(o *thread) bool {
		if o.proc.pid == pid {
			p.died(o)
			p.order.leave(&o.waiter)
		}
		return o.proc.pid == pid
	})
	p.t.touched++
	if pid == p.first {
		p.over = time.Now()
	}
}

// outside reports whether a thread waits for something outside the lab.
func (x *thread) outside() bool { return x.park.Kind == parkOutside || x.park.Kind == parkKernel }

// Outside implements lockstep.Programs.
func (t *Turns) Outside() (waiting, touched uint64) {
	for _, p := range t.programs { // a sum
		if p.host == nil {
			continue
		}
		if len(p.threads) == 0 { // its activity shows by its end alone
			waiting++
		}
		for _, x := range p.threads {
			if x.outside() {
				waiting++
			}
		}
	}
	if len(t.in) > 0 {
		t.touched++ // a process has come from outside the lab
	}
	return waiting, t.touched
}

// Stuck implements lockstep.Programs.
func (t *Turns) Stuck() (programs uint64) {
	for _, p := range t.programs { // a sum
		if p.host == nil || p.ended || len(p.threads) == 0 {
			continue
		}
		x, _, until := p.next()
		if x == nil && until == vtime.Never && !slices.ContainsFunc(p.threads, func(x *thread) bool { return !x.parked || x.outside() }) {
			programs++
		}
	}
	return programs
}

// tell gives programs a turn if they have got events since their last one, or if memory has changed that they watch.
func (t *Turns) tell() {
	events, bytes := t.told != t.s.told, t.wrote != t.s.puts
	t.told, t.wrote = t.s.told, t.s.puts
	for _, p := range sorted(t.programs) {
		if p.host != nil && (events || bytes && slices.ContainsFunc(p.threads, func(x *thread) bool { return x.park.Kind == parkMemory })) {
			p.host.Kick()
		}
	}
}

// Check implements lockstep.Programs.
func (t *Turns) Check() (ready bool) {
	for _, p := range sorted(t.programs) {
		if p.host == nil {
			continue
		}
		for _, x := range p.threads {
			if x.parked && x.park.Kind == parkOutside && !x.ready {
				x.asked = true
				_, _ = x.conn.Write(encode(turn{Why: whyCheck, Now: uint64(p.host.Now())})) // the end of one shows by its connection
			}
		}
		entered := p.entered
		p.until(endWait, func() bool {
			return len(t.in) == 0 && !slices.ContainsFunc(p.threads, func(x *thread) bool { return x.asked })
		})
		woken := p.wake()
		if woken {
			p.settle(time.Now().Add(endWait)) // before those look whom it may have given something
		}
		p.look = woken || entered != p.entered || p.ended || p.running() || slices.ContainsFunc(p.threads, func(x *thread) bool { return x.ready })
		ready = ready || p.look
	}
	return ready
}

// Proceed implements lockstep.Programs.
func (t *Turns) Proceed() {
	for _, p := range sorted(t.programs) {
		if p.host == nil || !p.look {
			continue
		}
		p.look = false
		for _, x := range p.threads {
			x.look = x.ready
		}
		p.host.Kick()
	}
}
