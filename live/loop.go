//go:build linux

package live

import (
	"container/heap"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// IO moves whole frames through one interface. Implementations do not block.
type IO interface {
	FD() int // readable when a frame waits
	Receive(take func(wall int64, b []byte)) (n int, err error)
	Send(frames [][]byte) (sent int, err error)
	Drops() uint64 // frames the kernel lost for want of room
	Cut() uint64   // frames sent on a link that is no more
}

// NewIO takes over a socket, in which frames are alone or in trains.
func NewIO(fd int, trains bool) IO {
	if trains {
		return NewTrains(fd)
	}
	return NewPacket(fd)
}

// Config describes a node's loop.
type Config struct {
	Mono *Monotonic
	IO   []IO // by port
	// Delays of the links into each port: propagation and this node's pipeline.
	Delays []vtime.Duration
	Rate   Rate
}

// Loop drives one machine. Make it with New, give it the machine with Start, and run it
// with Run.
type Loop struct {
	c    Config
	pool wire.Pool
	list machine.List

	mu     sync.Mutex
	clock  Clock
	m      machine.Machine
	ports  []machine.Port
	links  []link
	watch  machine.Watcher // nil: nobody looks
	late   arrivals        // frames that a fault holds back
	calls  []call          // in the order of time
	seq    uint64
	last   vtime.Time // of the machine: inputs are never earlier
	lag    Lag
	news   func(at vtime.Time) (alarm vtime.Time) // told after each input; nil if nobody asks
	alarm  vtime.Time                             // when news is to be told without an input, or Never
	asleep int64                                  // until when the loop sleeps, or 0
	wait   *waiter
	stop   bool
	err    error
}

// link is what the loop keeps about one port.
type link struct {
	io     IO
	delay  vtime.Duration
	coming queue // frames that are not due yet, in order
	fault  faults.Link
	out    [][]byte // frames due, until the kernel has taken them
	store  [batch][]byte
	due    [batch]int64 // when each should have been handed over
	counts LinkStats
}

// LinkStats counts what passed one port of a node.
type LinkStats struct {
	Sent, SentBytes         uint64
	Received, ReceivedBytes uint64
	Malformed               uint64 // did not parse
	Lost                    uint64 // by a fault at the end of the link
	Copied                  uint64 // by a fault
	Held                    uint64 // handed over later by a fault
	Busy                    uint64 // sends the kernel had no room for at first
	KernelDrops             uint64
	Cut                     uint64 // sent on a link that is no more
}

// arrival is a frame that has been received and is due at a lab time.
type arrival struct {
	at   vtime.Time
	seq  uint64
	port int
	f    *wire.Frame
}

// queue is the frames of one link that are not due yet. Frames do not pass each other on a
// link, so it is a FIFO.
type queue struct {
	ring    []machine.Flight // power of two
	head, n int
	latest  vtime.Time // when the last one is due
}

func (q *queue) push(at vtime.Time, f *wire.Frame) {
	if q.n == len(q.ring) {
		ring := make([]machine.Flight, max(64, 2*len(q.ring)))
		for i := range q.n {
			ring[i] = q.ring[(q.head+i)&(len(q.ring)-1)]
		}
		q.ring, q.head = ring, 0
	}
	q.latest = max(q.latest, at)
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = machine.Flight{At: q.latest, Frame: f}
	q.n++
}

// first returns when the oldest frame is due, or vtime.Never.
func (q *queue) first() vtime.Time {
	if q.n == 0 {
		return vtime.Never
	}
	return q.ring[q.head].At
}

func (q *queue) pop() *wire.Frame {
	f := q.ring[q.head].Frame
	q.ring[q.head].Frame = nil
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	return f
}

// call is something to be done at a lab time.
type call struct {
	at vtime.Time
	f  func(now vtime.Time)
}

type arrivals []arrival

func (a arrivals) Len() int { return len(a) }
func (a arrivals) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].seq < a[j].seq
}
func (a arrivals) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

// Push implements heap.Interface.
func (a *arrivals) Push(x any) { *a = append(*a, x.(arrival)) }

// Pop implements heap.Interface.
func (a *arrivals) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
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
	l.wait, err = newWaiter(fds)
	return l, err
}

// Pool returns the pool the machine's frames come from.
func (l *Loop) Pool() *wire.Pool { return &l.pool }

// Ports makes the machine's transmitters. IDs and lists are the loop's.
func (l *Loop) Ports(configs []machine.PortConfig) []machine.Port {
	l.ports = make([]machine.Port, len(configs))
	for i, c := range configs {
		c.ID, c.List = uint32(i), &l.list
		l.ports[i] = machine.NewPort(c)
	}
	return l.ports
}

// Start hands the machine over. news, if not nil, is called under the loop's lock after
// each input with the lab time of that input; it returns when it wants to be told even
// if nothing comes, or vtime.Never.
func (l *Loop) Start(m machine.Machine, news func(at vtime.Time) (alarm vtime.Time)) {
	l.m, l.news = m, news
}

// SetWatch has w see the machine's frames, under the loop's lock. It is called from within Call
// or At, or before Run.
func (l *Loop) SetWatch(w machine.Watcher) { l.watch = w }

// Run drives the machine until Stop. It keeps its thread.
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

// Stop ends Run. Once that has returned the loop touches none of its interfaces: their
// descriptors may be closed, and their numbers somebody else's.
func (l *Loop) Stop() {
	l.mu.Lock()
	l.stop = true
	l.mu.Unlock()
	l.wait.wake()
}

// Close releases what the loop itself holds. Run must have returned; the interfaces
// stay open.
func (l *Loop) Close() error { return l.wait.close() }

// Now returns the lab time.
func (l *Loop) Now() vtime.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clock.Lab(l.c.Mono.Now())
}

// Call runs f with the machine for itself, as an input at lab time at, or as early after
// it as the machine allows; vtime.Never means now. The lag of an input that came too
// late for its time is recorded. It reports whether it did: a loop that was stopped does not.
func (l *Loop) Call(at vtime.Time, f func(now vtime.Time)) bool {
	l.mu.Lock()
	if l.stop {
		l.mu.Unlock()
		return false
	}
	at = min(at, l.clock.Lab(l.c.Mono.Now()))
	l.receive()
	l.handle(at)
	if at < l.last {
		record(l.lag.Acted, l.clock.Mono(l.last)-l.clock.Mono(at))
		at = l.last
	}
	l.last = at
	f(at)
	l.told(at)
	l.list.Take()
	l.turn()
	next := l.deadline()
	kick := l.asleep != 0 && next != vtime.Never && l.clock.Mono(next) < l.asleep
	l.mu.Unlock()
	if kick {
		l.wait.wake()
	}
	return true
}

// turn does all that is due.
func (l *Loop) turn() {
	for range turnsMax {
		got := l.receive()
		now := l.clock.Lab(l.c.Mono.Now())
		l.handle(now)
		if !l.transmit(now) && got == 0 || l.err != nil {
			return
		}
	}
}

// turnsMax bounds how long a turn keeps others from the machine.
const turnsMax = 64

// told passes the news of an input on.
func (l *Loop) told(at vtime.Time) {
	if l.news != nil {
		l.alarm = l.news(at)
	}
}

// receive takes what the interfaces have and notes when it is due.
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

// take parses a frame. It is due a link's delay after its sender handed it over.
func (l *Loop) take(port int, mono int64, b []byte) {
	k := &l.links[port]
	k.counts.Received++
	k.counts.ReceivedBytes += uint64(len(b))
	f, err := l.pool.Parse(b)
	if err != nil {
		k.counts.Malformed++
		return
	}
	k.coming.push(l.clock.Lab(mono).Add(k.delay), f)
}

// hold keeps a frame that a fault delivers later.
func (l *Loop) hold(at vtime.Time, port int, f *wire.Frame) {
	l.seq++
	heap.Push(&l.late, arrival{at, l.seq, port, f})
}

// next returns when the next frame is due, and on which port; -1 is one that a fault held.
func (l *Loop) next() (at vtime.Time, port int) {
	at, port = vtime.Never, -1
	if len(l.late) > 0 {
		at = l.late[0].at
	}
	for i := range l.links {
		if t := l.links[i].coming.first(); t < at {
			at, port = t, i
		}
	}
	return at, port
}

// handle gives the machine its inputs up to now, in the order of their lab time.
func (l *Loop) handle(now vtime.Time) {
	for {
		at, port := l.next()
		if l.alarm <= now && l.alarm < at {
			due := l.alarm
			l.alarm = vtime.Never
			l.told(due)
			continue
		}
		if timer, ok := l.m.NextTimeout(); ok && timer < at && timer <= now {
			l.last = max(l.last, timer)
			l.m.HandleTimeout(l.last)
			l.told(l.last)
			continue
		}
		if len(l.calls) > 0 && l.calls[0].at <= min(at, now) {
			c := l.calls[0]
			l.calls = l.calls[1:]
			l.last = max(l.last, c.at)
			c.f(l.last)
			l.told(l.last)
			continue
		}
		if at > now {
			return
		}
		l.last = max(l.last, at)
		if port < 0 {
			a := heap.Pop(&l.late).(arrival)
			l.m.HandleFrame(l.last, a.port, a.f)
		} else {
			l.arrive(port, l.links[port].coming.pop())
		}
		l.told(l.last)
	}
}

// arrive asks the link's fault, if there is one, and hands the frame over.
func (l *Loop) arrive(port int, f *wire.Frame) {
	k := &l.links[port]
	if k.fault != nil {
		v := k.fault.Arrive(l.last, f)
		if v.Damage {
			l.pool.Damage(f, v.Bit)
		}
		if v.Cut && !v.Drop {
			if f = faults.Cut(&l.pool, f, v.Bit); f == nil {
				k.counts.Malformed++
				return
			}
		}
		if v.Twice {
			k.counts.Copied++
			l.hold(l.last.Add(max(v.Delay2, 1)), port, l.pool.Clone(f))
		}
		switch {
		case v.Drop:
			k.counts.Lost++
			if l.watch != nil {
				l.watch.Lost(l.last, port, f)
			}
			l.pool.Put(f)
			return
		case v.Delay > 0:
			k.counts.Held++
			l.hold(l.last.Add(v.Delay), port, f)
			return
		}
	}
	l.m.HandleFrame(l.last, port, f)
}

// transmit hands over every frame whose last bit has left by now.
func (l *Loop) transmit(now vtime.Time) (any bool) {
	for i := range l.ports {
		p, k := &l.ports[i], &l.links[i]
		for {
			if p.InFlight() == 0 && p.Next <= now {
				l.last = max(l.last, now)
				l.m.Settle(now, i)
				l.told(l.last)
			}
			if p.InFlight() == 0 || p.Flying(0).At.Add(-p.Delay()) > now {
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
			l.queue(k, fl, p.Delay())
		}
		if len(k.out) > 0 {
			any = true
			l.flush(i, k)
		}
	}
	l.list.Take()
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

// flush hands a port's batch to the kernel and records by how much each frame is late.
// What the kernel has no room for is tried again at the next turn, in order; some says
// that it took any.
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
	for j := range rest { // keep the buffers, in order, at the front
		k.store[j], k.store[j+sent] = k.store[j+sent], k.store[j]
		k.out[j], k.due[j] = k.store[j], k.due[j+sent]
	}
	k.out = k.out[:rest]
	return sent > 0
}

// deadline returns when the loop has to act next if nothing comes.
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
	for i := range l.ports {
		p := &l.ports[i]
		switch {
		case len(l.links[i].out) > 0:
			return l.last
		case p.InFlight() > 0:
			at = min(at, p.Flying(0).At.Add(-p.Delay()))
		default:
			at = min(at, p.Next)
		}
	}
	return at
}

// SetRate announces a change of the clock's rate and returns the lag recorded since
// the last one, and whether it did so: a loop that was stopped does not.
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

// SetFault puts a fault at the end of the link into a port; nil takes it away. It is
// called from within Call or At, or before Run.
func (l *Loop) SetFault(port int, f faults.Link) { l.links[port].fault = f }

// At arranges for f to be called under the loop's lock at a lab time, or at once if that
// has passed. It is called from within Call or At, or before Run.
func (l *Loop) At(at vtime.Time, f func(now vtime.Time)) {
	i := len(l.calls)
	for i > 0 && l.calls[i-1].at > at {
		i--
	}
	l.calls = slices.Insert(l.calls, i, call{at, f})
}

// Sent returns how many frames a port has sent. It is called from within Call or At.
func (l *Loop) Sent(port int) uint64 { return l.links[port].counts.Sent }

// Rate returns the clock's present rate.
func (l *Loop) Rate() Rate {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock.Lab(l.c.Mono.Now())
	return l.clock.now
}

// SetAlarm arranges for news to be told at a lab time even if nothing comes.
func (l *Loop) SetAlarm(at vtime.Time) {
	l.mu.Lock()
	l.alarm = min(l.alarm, at)
	kick := l.asleep != 0 && l.clock.Mono(at) < l.asleep
	l.mu.Unlock()
	if kick {
		l.wait.wake()
	}
}

// Stats returns what passed each port, and how many frames the loop itself holds.
func (l *Loop) Stats() (links []LinkStats, held int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held = len(l.late)
	for i := range l.links {
		s := l.links[i].counts
		if !l.stop {
			s.KernelDrops, s.Cut = l.links[i].io.Drops(), l.links[i].io.Cut()
		}
		links = append(links, s)
		held += l.ports[i].InFlight() + l.links[i].coming.n
	}
	return links, held
}
