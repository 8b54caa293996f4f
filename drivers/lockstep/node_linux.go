// SPDX-License-Identifier: Apache-2.0

package lockstep

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/drivers/window"
	"github.com/mcastlab/mcastlab/rank/outofband"
)

// IO moves frames through the socket of one port.
type IO interface {
	FD() int // readable when a frame waits
	Receive(take func(wall int64, b []byte)) (n int, err error)
	Send(frames [][]byte) (sent int, err error)
}

// NodeConfig describes one node's end of a run.
type NodeConfig struct {
	Sim    sim.Config // of the whole lab; Local and Edge are not used
	Node   int
	IO     []IO // by port
	Memory *NodeMemory

	// Key is of the tags of frames, where no program runs on a node and strangers may send: frames that no node
	// has announced are refused. Without one they are taken. All nodes have the same.
	Key []byte

	// Orders are the coordinator's orders to the node over the stream, in order. The channel is closed
	// when the stream has ended.
	Orders <-chan func() error

	// Alone is set if the process has no other node: this one may keep its processor while it sleeps.
	Alone bool
	// Patience is the time that the node waits, on the wall clock, for a frame that was announced, and
	// for room in the kernel; 0 means PatienceDefault.
	Patience time.Duration

	// Request sends a request of a rank over the stream as a word, with the instant at which it
	// arrives.
	Request func(at vtime.Time, rank int, q outofband.Request) error

	// Programs are programs of the server on the node; nil if there can be none.
	Programs Programs
}

// Programs are programs of the server whose time is the lab's. They may wait for events outside the lab: for each other by
// sockets of the server, for files, for children. Their conditions are checked while no node has a turn, so that it does
// not matter which of two programs was faster.
type Programs interface {
	// Outside returns the number of threads that wait like that, and a count that grows with every action of a program
	// that others may wait for.
	Outside() (waiting, touched uint64)
	// Stuck returns the number of programs that wait, with all their threads and without an end, for an action of another program of the
	// lab.
	Stuck() uint64
	// Check has those threads check their conditions, and reports whether any could resume.
	Check() (ready bool)
	// Proceed resumes the threads that could.
	Proceed()
}

// Node is a process's end of a run.
type Node struct {
	c     NodeConfig
	part  *sim.Net
	ports []port
	m     *NodeMemory
	tags  *tagger

	passed window.Grantee
	orders uint64 // carried out
	words  uint64 // sent
	err    error
	over   atomic.Bool // End was called
	sleep  func(word *atomic.Uint32, v uint32, limit time.Duration)
}

// port is one port of the node, with the frames that it is sending and receiving.
type port struct {
	io      IO
	name    string // of the port at the far end
	out, in ring
	toID    int // number of the transmitter here
	fromID  int // number of the transmitter at the far end
	sent    uint64
	got     uint64
	started int // frames since the last round

	pausesSent, pausesGot int
	latest                vtime.Time
	first                 vtime.Time
	early                 [][]byte // frames that came before they were announced
	foreign               uint64   // frames that no node has announced: those of other programs
	frames                [][]byte
	arrivals              [batch]vtime.Time
	store                 [batch][]byte
}

// batch is the largest number of frames that are handed to the kernel in one call.
const batch = 64

// startsMax is the number of frames that a node starts on one port before it ends a round early. The
// frames under way on a link stay below ringEntries, because the coordinator lets the far end take them
// before a node continues.
const startsMax = 256

// NewNode builds the node's part of the lab.
func NewNode(c NodeConfig) (*Node, error) {
	if c.Patience == 0 {
		c.Patience = PatienceDefault
	}
	n := &Node{m: c.Memory, sleep: sleep}
	if c.Alone {
		n.sleep = doze
	}
	g := c.Sim.Graph
	c.Sim.Local, c.Sim.Edge = make([]bool, len(g.Nodes)), n
	c.Sim.Local[c.Node] = true
	n.c = c
	var err error
	if n.tags, err = newTagger(c.Key); err != nil {
		return nil, err
	}
	if n.part, err = sim.New(c.Sim); err != nil {
		return nil, err
	}
	for i, io := range c.IO {
		far := g.Peer(c.Node, i)
		n.ports = append(n.ports, port{
			io: io, name: g.PortName(far), out: c.Memory.out[i], in: c.Memory.in[i], first: vtime.Never,
			toID: n.part.PortID(c.Node, i), fromID: n.part.PortID(far.Node, far.Port),
		})
	}
	return n, n.clear()
}

// clear drops frames in the sockets from before the run.
func (n *Node) clear() error {
	for i := range n.ports {
		for {
			k, err := n.ports[i].io.Receive(func(int64, []byte) {})
			if err != nil {
				return fmt.Errorf("port %d: %w", i, err)
			}
			if k == 0 {
				break
			}
		}
	}
	return nil
}

// Reply gives the node's rank a reply of the out-of-band channel. Only orders may call it.
func (n *Node) Reply(at vtime.Time, r outofband.Reply) { n.part.Reply(at, n.c.Node, r) }

// SetEntry changes an entry of the node's multicast table, at once if at is below 0. Only orders may call it.
func (n *Node) SetEntry(at vtime.Time, e wire.MulticastEntry) {
	e.Switch = n.c.Node
	n.part.SetEntry(at, e)
}

// Rest makes now the current instant of a node that has no event left. Only orders may call it. The
// node may have come further, to calls of the fault timeline that were put off.
func (n *Node) Rest(now vtime.Time) {
	n.part.Rest(now)
	n.passed.Rest(now)
}

// Part returns the node's part of the lab. Only orders may use it.
func (n *Node) Part() *sim.Net { return n.part }

// End makes Run return soon, also from a wait for a frame. Any goroutine may call it.
func (n *Node) End() { n.over.Store(true) }

// errOver ends a wait after End.
var errOver = errors.New("the run has ended")

// look is the interval at which a node that sleeps checks whether the stream has ended, and the
// coordinator whether a node has died.
const look = 50 * time.Millisecond

// Run uses up grants until the stream ends, and returns the reason if the node cannot continue.
func (n *Node) Run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	round := uint32(0)
	n.publish(round)
	for {
		for n.m.grant.round().Load() == round {
			select {
			case f, open := <-n.c.Orders:
				if !open {
					return nil
				}
				if err := n.carryOut(f); err != nil {
					return err
				}
			default:
				n.sleep(n.m.grant.round(), round, look)
			}
		}
		round = n.m.grant.round().Load()
		over, err := n.use()
		if over || errors.Is(err, errOver) {
			return nil
		}
		if err != nil {
			return err
		}
		n.publish(round)
	}
}

// carryOut carries out an order.
func (n *Node) carryOut(f func() error) error {
	n.orders++
	return errors.Join(f(), n.err)
}

// use uses up a grant. over reports that the stream has ended.
func (n *Node) use() (over bool, err error) {
	bound, orders := vtime.Time(n.m.grant.bound().Load()), n.m.grant.orders().Load()
	for n.orders < orders {
		f, open := <-n.c.Orders
		if !open {
			return true, nil
		}
		if err := n.carryOut(f); err != nil {
			return false, err
		}
	}
	n.passed.Begin(vtime.Time(n.m.grant.floor().Load()), vtime.Time(n.m.grant.look().Load()))
	for i := range n.ports {
		if err := n.receive(&n.ports[i]); err != nil {
			return false, err
		}
	}
	n.takeLook()
	switch step := n.m.grant.step().Load(); step {
	case stepAdvance:
		err = n.part.Advance(bound)
	case stepMeet:
		err = n.part.Meet(bound)
	default:
		err = n.part.Call(bound, window.Verdict(step-stepCall))
	}
	err = errors.Join(err, n.err)
	for i := range n.ports {
		err = errors.Join(err, n.flush(&n.ports[i]))
	}
	if n.m.grant.step().Load() != stepAdvance {
		n.takeCensus()
	}
	if n.passed.Advanced(bound, n.part.Next()); n.m.grant.step().Load() != stepAdvance {
		n.passed.Rest(bound) // a manual action may come before the node's granted instant
	}
	return false, err
}

// takeLook has programs check their conditions outside the lab, if that is granted. Their next events may be earlier
// than the instant granted before.
func (n *Node) takeLook() {
	at := vtime.Time(n.m.grant.check().Load())
	n.m.slot.ready().Store(0)
	if p := n.c.Programs; at > 0 && p != nil && p.Check() {
		n.m.slot.ready().Store(1)
		n.passed.Allow(at)
		n.part.At(at, func(vtime.Time) { p.Proceed() })
	}
}

// takeCensus reports the contents of the node. Its frames on links are those that it has sent, less
// those that it has taken.
func (n *Node) takeCensus() {
	c := n.part.Census()
	for i := range n.ports {
		p := &n.ports[i]
		frames, pauses := int(int64(p.sent-p.got)), p.pausesSent-p.pausesGot
		c.Live, c.Flying = c.Live+frames, c.Flying+frames
		c.Pauses, c.FlyingPauses = c.Pauses+pauses, c.FlyingPauses+pauses
	}
	n.m.slot.putCensus(&c)
}

// publish reports to the coordinator that a grant is used up.
func (n *Node) publish(round uint32) {
	s := n.m.slot
	s.next().Store(int64(n.part.Next()))
	s.last().Store(int64(n.part.Last()))
	s.now().Store(int64(n.part.Now()))
	s.words().Store(n.words)
	s.hops().Store(n.part.Stats().Hops)
	if p := n.c.Programs; p != nil {
		waiting, touched := p.Outside()
		s.outside().Store(waiting)
		s.touched().Store(touched)
		s.stuck().Store(p.Stuck())
	}
	for i := range n.ports {
		p := &n.ports[i]
		s.first(i).Store(int64(p.first))
		p.first, p.started = vtime.Never, 0 // an order may start frames before the next grant
	}
	s.round().Store(round)
	if round != 0 && n.m.bell.running().Add(^uint32(0)) == 0 {
		wake(n.m.bell.running())
	}
}

// Said notes that a word has been sent over the stream. The sender of a word calls it.
func (n *Node) Said() { n.words++ }

// Request implements sim.Edge.
func (n *Node) Request(at vtime.Time, _, rank int, q *outofband.Request) {
	if err := n.c.Request(at, rank, *q); err != nil && n.err == nil {
		n.err = err
	}
}

// Frame implements sim.Edge. It keeps the bytes, and not the frame.
func (n *Node) Frame(id int, at vtime.Time, f *wire.Frame) (kept bool) {
	p := &n.ports[id-n.ports[0].toID]
	k := len(p.frames)
	p.store[k] = f.AppendTo(p.store[k][:0])
	p.arrivals[k] = at
	p.frames = append(p.frames, p.store[k])
	p.first = min(p.first, at)
	if f.Kind() == wire.KindPFC {
		p.pausesSent++
	}
	if p.started++; p.started >= startsMax {
		n.part.Interrupt()
	}
	if len(p.frames) == batch {
		if err := n.flush(p); err != nil {
			n.err = errors.Join(n.err, err)
			p.frames = p.frames[:0] // the run ends
			n.part.Interrupt()
		}
	}
	return false
}

// flush hands frames to the kernel, and then announces them.
func (n *Node) flush(p *port) error {
	if len(p.frames) == 0 {
		return nil
	}
	begin := time.Now()
	for rest := p.frames; len(rest) > 0; {
		sent, err := p.io.Send(rest)
		if err != nil {
			return fmt.Errorf("send to %s: %w", p.name, err)
		}
		if rest = rest[sent:]; sent == 0 {
			if n.over.Load() {
				return errOver
			}
			if time.Since(begin) > n.c.Patience {
				return fmt.Errorf("send to %s: the kernel has taken no frame for %v", p.name, n.c.Patience)
			}
			time.Sleep(time.Millisecond)
		}
	}
	for i, b := range p.frames {
		p.out.at(p.sent).Store(int64(p.arrivals[i]))
		p.out.tag(p.sent).Store(n.tags.of(p.toID, p.sent, b))
		p.sent++
	}
	p.out.tail().Store(p.sent)
	p.frames = p.frames[:0]
	return nil
}

// PatienceDefault is the time, on the wall clock, that a node waits for a frame that was announced. The
// coordinator waits twice as long for a node that runs.
const PatienceDefault = time.Minute

// receive takes the frames that are announced.
func (n *Node) receive(p *port) error {
	tail := p.in.tail().Load()
	if tail == p.got {
		return nil
	}
	if tail < p.got || tail-p.got > ringEntries {
		return fmt.Errorf("%s announces %d frames, and %d have been taken: more than can be under way", p.name, tail, p.got)
	}
	for len(p.early) > 0 && p.got < tail {
		b := p.early[0]
		p.early = p.early[1:]
		if err := n.take(p, b); err != nil {
			return err
		}
	}
	begin := time.Now()
	for p.got < tail {
		var failed error
		k, err := p.io.Receive(func(_ int64, b []byte) {
			if p.got < tail {
				failed = errors.Join(failed, n.take(p, b))
			} else {
				p.early = append(p.early, append([]byte(nil), b...))
			}
		})
		if err = errors.Join(err, failed); err != nil {
			return err
		}
		if k > 0 {
			begin = time.Now()
			continue
		}
		if n.over.Load() {
			return errOver
		}
		if time.Since(begin) > n.c.Patience {
			return fmt.Errorf("%s announced frame %d, and it has not come within %v; %d others have, that nobody announced", p.name, p.got, n.c.Patience, p.foreign)
		}
		fds := []unix.PollFd{{Fd: int32(p.io.FD()), Events: unix.POLLIN}}
		_, _ = unix.Poll(fds, 100) // an interrupted or early end does no harm
	}
	return nil
}

// take hands a frame to the part: the next one that was announced, or one of a program that is no node.
func (n *Node) take(p *port, b []byte) error {
	if got := n.tags.of(p.fromID, p.got, b); got != p.in.tag(p.got).Load() {
		if n.c.Key != nil {
			p.foreign++ // or one that has overtaken another: the wait for that ends
			return nil
		}
		for k := p.got + 1; k < min(p.in.tail().Load(), p.got+ringEntries); k++ {
			if p.in.tag(k).Load() == got {
				return fmt.Errorf("frame %d of %s was announced, and frame %d has come without it", p.got, p.name, k)
			}
		}
		return n.takeForeign(p, b)
	}
	at := vtime.Time(p.in.at(p.got).Load())
	if soonest := max(n.passed.Soonest(), p.latest); at < soonest {
		return fmt.Errorf("%s announces that frame %d arrives at %v, and can have sent none that arrives before %v", p.name, p.got, at, soonest)
	}
	p.got++
	p.latest = at
	f, err := n.parse(b)
	if err != nil {
		return fmt.Errorf("frame %d of %s: %w", p.got-1, p.name, err)
	}
	if f.Kind() == wire.KindPFC {
		p.pausesGot++
	}
	n.part.Arrive(p.fromID, at, f)
	return nil
}

// parse makes a frame of bytes, such as the simulation of the lab has.
func (n *Node) parse(b []byte) (*wire.Frame, error) {
	f, err := n.part.Pool().Parse(b)
	if err == nil && n.c.Sim.TrustICRC {
		f.Trust()
	}
	return f, err
}

// takeForeign hands over a frame that no node has announced. It arrives with the next announced frame of its
// link: by the node's report to the coordinator nothing happens there before.
func (n *Node) takeForeign(p *port, b []byte) error {
	p.foreign++
	f, err := n.parse(b)
	if err != nil {
		return nil // no frame that a lab has
	}
	p.latest = max(p.latest, n.passed.Soonest(), vtime.Time(p.in.at(p.got).Load()))
	n.part.Arrive(p.fromID, p.latest, f)
	return nil
}

// Foreign returns the number of frames of other programs that have arrived at a port. Such a run is no simulation, unless they
// were refused.
func (n *Node) Foreign(port int) uint64 { return n.ports[port].foreign }
