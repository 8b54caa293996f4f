// SPDX-License-Identifier: Apache-2.0

//go:build linux

package live

import (
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// IO moves whole frames through one interface. Implementations do not block.
type IO interface {
	FD() int // readable when a frame waits
	Receive(take func(wall int64, b []byte)) (n int, err error)
	Send(frames [][]byte) (sent int, err error)
	Drops() uint64 // frames the kernel lost for lack of room
	Cut() uint64   // frames sent after the link was removed
}

// NewIO wraps a socket that is read by itself. trains is set if it carries trains of frames, and not single
// frames.
func NewIO(fd int, trains bool) IO { return new(Receiver).NewIO(fd, trains) }

// Config describes a node's loop.
type Config struct {
	Mono *Monotonic
	IO   []IO // by port
	// Delays of the links into each port: propagation and this node's pipeline.
	Delays []vtime.Duration
	Rate   Rate
	Left   *Left // state of the loop that this one replaces, in which case Rate is unused; or nil
}

// Loop drives one machine. New makes it, Start gives it the machine, and Run runs it.
type Loop struct {
	c    Config
	pool wire.Pool

	mu     sync.Mutex
	clock  Clock
	m      machine.Machine
	wires  machine.Links       // by port: its transmitter and the frames that it is sending
	links  []link              // by port: arriving frames, and the interface
	watch  machine.Watcher     // nil: none
	late   queue.Heap[arrival] // frames that a fault delays
	calls  []call              // in the order of their lab times
	seq    uint64
	last   vtime.Time // lab time of the machine: inputs are never earlier
	lag    Lag
	news   func(at vtime.Time) (alarm vtime.Time) // called after each input; may be nil
	alarm  vtime.Time                             // when to call news without an input, or Never
	asleep int64                                  // until when the loop sleeps, or 0
	wait   *waiter
	stop   bool
	err    error
}

// link is the loop's state of one port.
type link struct {
	io     IO
	delay  vtime.Duration
	coming queue.FIFO[machine.Flight] // frames that are not due yet, in order
	latest vtime.Time                 // when the last of them is due
	fault  faults.Link
	out    [][]byte // frames that are due, until the kernel has taken them
	store  [batch][]byte
	due    [batch]int64 // when each of them should have been sent
	counts LinkStats
}

// LinkStats counts the frames at one port of a node.
type LinkStats struct {
	Sent, SentBytes         uint64
	Received, ReceivedBytes uint64
	faults.Counts                  // at the end of the link; Malformed includes frames that did not parse
	Busy                    uint64 // sends that the kernel at first had no room for
	KernelDrops             uint64
	Cut                     uint64 // sent after the link was removed
}

// arrival is a frame that a port has received.
type arrival struct {
	port int
	f    *wire.Frame
}

// push adds a frame that is due at an instant, or when the previous frame is if that is later:
// frames do not overtake each other on a link.
func (k *link) push(at vtime.Time, f *wire.Frame) {
	k.latest = max(k.latest, at)
	k.coming.Push(machine.Flight{At: k.latest, Frame: f})
}

// first returns when the oldest frame is due, or vtime.Never if there is none.
func (k *link) first() vtime.Time {
	if k.coming.Len() == 0 {
		return vtime.Never
	}
	return k.coming.First().At
}

// call is a function to be called at a lab time.
type call struct {
	at vtime.Time
	f  func(now vtime.Time)
}

// New returns a loop without a machine.
func New(c Config) (*Loop, error) {
	l := &Loop{c: c, lag: NewLag(), alarm: vtime.Never}
	l.clock.Set(c.Rate)
	var fds []int
	for i, io := range c.IO {
		l.links = append(l.links, link{io: io, delay: c.Delays[i]})
		fds = append(fds, io.FD())
	}
	var err error
	if l.wait, err = newWaiter(fds); err == nil && c.Left != nil {
		err = l.goOn(c.Left)
	}
	return l, err
}

// Pool returns the pool of the machine's frames.
func (l *Loop) Pool() *wire.Pool { return &l.pool }

// Ports makes the machine's transmitters and returns its half of them. The loop keeps the
// other half.
func (l *Loop) Ports(configs []machine.PortConfig) []machine.Port {
	l.wires = machine.NewLinks(configs)
	return l.wires.Ports(0, len(configs))
}

// Start hands the machine over. If news is not nil, it is called under the loop's lock after
// each input, with the lab time of that input; it returns when it must be called next even
// without an input, or vtime.Never.
func (l *Loop) Start(m machine.Machine, news func(at vtime.Time) (alarm vtime.Time)) {
	l.m, l.news = m, news
}

// SetWatch makes w see the machine's frames, under the loop's lock. It must be called from
// within Call or At, or before Run.
func (l *Loop) SetWatch(w machine.Watcher) { l.watch = w }

// Run drives the machine until Stop. It stays on one thread.
func (l *Loop) Run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := sharpen(); err != nil {
		return err
	}
	for {
		l.mu.Lock()
		l.asleep = 0
		l.turn()
		if l.stop || l.err != nil {
			err := l.err
			l.mu.Unlock()
			return err
		}
		deadline := l.deadline()
		ns := int64(-1)
		if deadline != vtime.Never {
			ns = l.clock.Mono(deadline) - l.c.Mono.Now() - spinNs
			l.asleep = l.clock.Mono(deadline)
		} else {
			l.asleep = int64(1) << 62
		}
		l.mu.Unlock()
		if deadline == vtime.Never || ns > 0 {
			l.wait.wait(ns)
		}
	}
}

// Stop ends Run. After Stop the loop uses none of its interfaces, so their descriptors may be
// closed and their numbers reused.
func (l *Loop) Stop() {
	l.mu.Lock()
	l.stop = true
	l.mu.Unlock()
	l.wait.wake()
}

// Close releases the loop's own resources. Run must have returned. The interfaces stay open.
func (l *Loop) Close() error { return l.wait.close() }

// Now returns the lab time.
func (l *Loop) Now() vtime.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clock.Lab(l.c.Mono.Now())
}

// Call runs f with exclusive access to the machine, as an input at lab time at, or as soon
// after it as the machine allows; vtime.Never means now. If the input is late, its lag is
// recorded. Call reports whether f was called: a stopped loop does not call it.
func (l *Loop) Call(at vtime.Time, f func(now vtime.Time)) bool {
	l.mu.Lock()
	if l.stop {
		l.mu.Unlock()
		return false
	}
	at = min(at, l.clock.Lab(l.c.Mono.Now()))
	l.receive()
	l.handle(at)
	if l.stop { // one of the inputs has ended the loop
		l.mu.Unlock()
		return false
	}
	if at < l.last {
		record(l.lag.Acted, l.clock.Mono(l.last)-l.clock.Mono(at))
		at = l.last
	}
	l.last = at
	f(at)
	l.notify(at)
	l.wires.Listed()
	l.turn()
	next := l.deadline()
	kick := l.asleep != 0 && next != vtime.Never && l.clock.Mono(next) < l.asleep
	l.mu.Unlock()
	if kick {
		l.wait.wake()
	}
	return true
}

// turn handles everything that is due.
func (l *Loop) turn() {
	for range turnsMax {
		got := l.receive()
		now := l.clock.Lab(l.c.Mono.Now())
		l.handle(now)
		if l.stop || !l.transmit(now) && got == 0 || l.err != nil {
			return
		}
	}
}

// turnsMax bounds how long a turn excludes others from the machine.
const turnsMax = 64

// notify calls news after an input.
func (l *Loop) notify(at vtime.Time) {
	if l.news != nil {
		l.alarm = l.news(at)
	}
}

// receive takes the frames that the interfaces have received and records when each is due.
func (l *Loop) receive() (got int) {
	offset := l.c.Mono.Wall()
	for i := range l.links {
		k := &l.links[i]
		n, err := k.io.Receive(func(wall int64, b []byte) { l.take(i, wall-offset, b) })
		if err != nil && l.err == nil {
			l.err = fmt.Errorf("port %d: %w", i, err)
		}
		got += n
	}
	return got
}

// take parses a frame. It is due a link's delay after its sender handed it to the kernel.
func (l *Loop) take(port int, mono int64, b []byte) {
	k := &l.links[port]
	k.counts.Received++
	k.counts.ReceivedBytes += uint64(len(b))
	f, err := l.pool.Parse(b)
	if err != nil {
		k.counts.Malformed++
		return
	}
	k.push(l.clock.Lab(mono).Add(k.delay), f)
}

// hold keeps a frame that a fault delays.
func (l *Loop) hold(at vtime.Time, port int, f *wire.Frame) {
	l.seq++
	l.late.Push(at, l.seq, arrival{port, f})
}

// next returns when the next frame is due, and on which port; port -1 stands for the frames
// that faults delay.
func (l *Loop) next() (at vtime.Time, port int) {
	at, port = l.late.Next(), -1
	for i := range l.links {
		if t := l.links[i].first(); t < at {
			at, port = t, i
		}
	}
	return at, port
}

// handle gives the machine its inputs up to now, in the order of their lab times.
func (l *Loop) handle(now vtime.Time) {
	for !l.stop {
		at, port := l.next()
		if l.alarm <= now && l.alarm < at {
			due := l.alarm
			l.alarm = vtime.Never
			l.notify(due)
			continue
		}
		if timer, ok := l.m.NextTimeout(); ok && timer <= now {
			if l.clock.Mono(now)-l.clock.Mono(timer) >= heldNs {
				timer = now
			}
			if timer < at {
				l.last = max(l.last, timer)
				l.m.HandleTimeout(l.last)
				l.notify(l.last)
				continue
			}
		}
		if len(l.calls) > 0 && l.calls[0].at <= min(at, now) {
			c := l.calls[0]
			l.calls = l.calls[1:]
			l.last = max(l.last, c.at)
			c.f(l.last)
			l.notify(l.last)
			continue
		}
		if at > now {
			return
		}
		l.last = max(l.last, at)
		if port < 0 {
			a := l.late.Pop().Value
			l.m.HandleFrame(l.last, a.port, a.f)
		} else {
			l.arrive(port, l.links[port].coming.Pop().Frame)
		}
		l.notify(l.last)
	}
}

// heldNs is the delay from which on a timer fires when it is handled and not when it was due, and after the frames that
// have arrived until then: a process that stood still for that long may not conclude that the others did not answer.
// Otherwise each retry of a queue pair would run out in turn before a frame of the others, which may have been held
// too, is handled.
const heldNs = 50e6

// arrive applies the link's fault, if there is one, and hands the frame to the machine.
func (l *Loop) arrive(port int, f *wire.Frame) {
	k := &l.links[port]
	if k.fault == nil {
		l.m.HandleFrame(l.last, port, f)
		return
	}
	v := k.fault.Arrive(l.last, f)
	faults.Apply(v, faults.Arrival{Port: port, Frame: f, Pool: &l.pool, Count: &k.counts.Counts}, linkEnd{l})
}

// linkEnd takes the frames that faults let through (faults.Sink).
type linkEnd struct{ l *Loop }

// Decided implements faults.Sink.
func (e linkEnd) Decided(port int, f *wire.Frame, v faults.Verdict) {
	if v.Drop && e.l.watch != nil {
		e.l.watch.Lost(e.l.last, port, f)
	}
}

// Deliver implements faults.Sink.
func (e linkEnd) Deliver(port int, f *wire.Frame) { e.l.m.HandleFrame(e.l.last, port, f) }

// Hold implements faults.Sink.
func (e linkEnd) Hold(port int, f *wire.Frame, d vtime.Duration) {
	e.l.hold(e.l.last.Add(max(d, vtime.Picosecond)), port, f)
}

// transmit sends every frame whose last bit has left by now, and reports whether the kernel
// took any.
func (l *Loop) transmit(now vtime.Time) (any bool) {
	for i := range l.wires.Len() {
		p, k := l.wires.At(i), &l.links[i]
		for {
			if p.InFlight() == 0 && p.Next() <= now {
				l.last = max(l.last, now)
				l.m.Settle(now, i)
				l.notify(l.last)
			}
			if p.InFlight() == 0 || p.Flying(0).At.Add(-p.Delay) > now {
				break
			}
			if any = true; len(k.out) == batch && !l.flush(i, k) {
				break
			}
			fl := p.Land()
			if l.watch != nil {
				start, d := p.Began(fl.At, fl.Frame)
				l.watch.Sent(i, start, d, fl.At, fl.Frame)
			}
			l.queue(k, fl, p.Delay)
		}
		if len(k.out) > 0 {
			any = true
			l.flush(i, k)
		}
	}
	l.wires.Listed()
	return any
}

// queue puts a frame into its port's batch.
func (l *Loop) queue(k *link, fl machine.Flight, delay vtime.Duration) {
	n := len(k.out)
	k.due[n] = l.clock.Mono(fl.At.Add(-delay))
	k.store[n] = fl.Frame.AppendTo(k.store[n][:0])
	k.out = append(k.out, k.store[n])
	k.counts.Sent++
	k.counts.SentBytes += uint64(len(k.store[n]))
	l.pool.Put(fl.Frame)
}

// flush hands a port's batch to the kernel, records the delay of each frame, and reports whether the
// kernel took any. Frames that the kernel has no room for are tried again at the next turn, in order.
func (l *Loop) flush(i int, k *link) (some bool) {
	sent, err := k.io.Send(k.out)
	if err != nil && l.err == nil {
		l.err = fmt.Errorf("port %d: %w", i, err)
	}
	if sent < len(k.out) {
		k.counts.Busy++
	}
	now := l.c.Mono.Now()
	for j := range sent {
		record(l.lag.Sent, now-k.due[j])
	}
	rest := len(k.out) - sent
	for j := range rest { // move the unsent buffers to the front, in order
		k.store[j], k.store[j+sent] = k.store[j+sent], k.store[j]
		k.out[j], k.due[j] = k.store[j], k.due[j+sent]
	}
	k.out = k.out[:rest]
	return sent > 0
}

// deadline returns when the loop must act next if nothing arrives.
func (l *Loop) deadline() vtime.Time {
	at := l.alarm
	if len(l.calls) > 0 {
		at = min(at, l.calls[0].at)
	}
	if t, _ := l.next(); t < at {
		at = t
	}
	if t, ok := l.m.NextTimeout(); ok {
		at = min(at, t)
	}
	for i := range l.wires.Len() {
		p := l.wires.At(i)
		switch {
		case len(l.links[i].out) > 0:
			return l.last
		case p.InFlight() > 0:
			at = min(at, p.Flying(0).At.Add(-p.Delay))
		default:
			at = min(at, p.Next())
		}
	}
	return at
}

// SetRate announces a change of the clock's rate. It returns the lag recorded since the last
// change, and reports whether it did so: a stopped loop does not.
func (l *Loop) SetRate(r Rate) (Lag, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop {
		return Lag{}, false
	}
	l.clock.Set(r)
	lag := l.lag
	l.lag = NewLag()
	l.wait.wake()
	return lag, true
}

// SetFault sets the fault at the end of the link into a port; nil removes it. It must be
// called from within Call or At, or before Run.
func (l *Loop) SetFault(port int, f faults.Link) { l.links[port].fault = f }

// SetLinkRate sets the rate, in bit/s, of the frames that a port's transmitter starts from now
// on. The machine must have settled the port. It must be called from within Call or At, or
// before Run.
func (l *Loop) SetLinkRate(port int, bitsPerSec int64) { l.wires.At(port).SetRate(bitsPerSec) }

// At arranges for f to be called under the loop's lock at a lab time, or at once if that has
// passed. It must be called from within Call or At, or before Run.
func (l *Loop) At(at vtime.Time, f func(now vtime.Time)) {
	i := len(l.calls)
	for i > 0 && l.calls[i-1].at > at {
		i--
	}
	l.calls = slices.Insert(l.calls, i, call{at, f})
}

// Arrived returns the number of frames that have arrived at a port. It must be called from within Call
// or At.
func (l *Loop) Arrived(port int) uint64 { return l.links[port].counts.Received }

// Rate returns the clock's current rate.
func (l *Loop) Rate() Rate {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock.Lab(l.c.Mono.Now())
	return l.clock.now
}

// Rates returns the clock's current rate, and after it the one that has been announced, if there is one.
func (l *Loop) Rates() []Rate {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock.Lab(l.c.Mono.Now())
	if l.clock.changing {
		return []Rate{l.clock.now, l.clock.next}
	}
	return []Rate{l.clock.now}
}

// SetAlarm arranges for news to be called at a lab time even without an input.
func (l *Loop) SetAlarm(at vtime.Time) {
	l.mu.Lock()
	l.alarm = min(l.alarm, at)
	kick := l.asleep != 0 && l.clock.Mono(at) < l.asleep
	l.mu.Unlock()
	if kick {
		l.wait.wake()
	}
}

// Stats returns the counters of each port, and the number of frames that the loop itself holds.
func (l *Loop) Stats() (links []LinkStats, held int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.StatsInCall()
}

// StatsInCall is Stats for a function that Call calls, which sees the machine's counters of the same instant.
func (l *Loop) StatsInCall() (links []LinkStats, held int) {
	held = l.late.Len()
	for i := range l.links {
		s := l.links[i].counts
		if !l.stop {
			s.KernelDrops, s.Cut = l.links[i].io.Drops(), l.links[i].io.Cut()
		}
		links = append(links, s)
		held += l.wires.At(i).InFlight() + l.links[i].coming.Len()
	}
	return links, held
}
