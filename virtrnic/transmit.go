package virtrnic

import (
	"math/bits"

	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/machine/queue"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// transmit is the NIC's egress: per priority the ready-made frames (acknowledgements,
// the host stack's), then the queue pairs that have something to send, in a round,
// a packet each. The higher priority goes first; pause frames go before everything.
type transmit struct {
	ready  uint8 // priorities with frames or queue pairs
	paused uint8
	// stalled keeps everything from starting, pause frames too.
	stalled bool
	elig    vtime.Time
	held    queue.Heap[*QP] // queue pairs whose time has not come (pacing.go)
	pauses  queue.FIFO[pauseFrame]
	until   [8]vtime.Time // when a received pause runs out
	made    [8]queue.FIFO[*wire.Frame]
	round   [8]queue.FIFO[*QP]
}

type pauseFrame struct {
	at vtime.Time
	f  *wire.Frame
}

// pausesMax is how many pause frames may wait for the link. What would be one too many is
// said by the last of them: for each class what came later counts.
const pausesMax = 1024

// markReady marks a priority as ready: it has something to send from now on.
func (n *NIC) markReady(now vtime.Time, prio uint8) {
	t := &n.tx
	if t.ready&^t.paused == 0 {
		t.elig = max(t.elig, now)
	}
	t.ready |= 1 << prio
}

// queue puts a ready-made frame into the egress.
func (n *NIC) queue(now vtime.Time, f *wire.Frame, prio uint8) {
	n.markReady(now, prio)
	n.tx.made[prio].Push(f)
}

// offer puts a queue pair into the round if it has something to send.
func (n *NIC) offer(now vtime.Time, q *QP) {
	if !q.queued && q.sq.sendable(q) {
		q.queued = true
		if q.cc != nil && n.hold(now, q) {
			return
		}
		n.markReady(now, q.prio)
		n.tx.round[q.prio].Push(q)
	}
}

// SendFrame queues a complete frame of the host's other traffic. Its class is that
// of its DSCP.
func (n *NIC) SendFrame(now vtime.Time, f *wire.Frame) {
	n.settleBefore(now)
	n.stats.Made++
	prio := n.priority(f.Traffic())
	if n.raw && n.vlan != 0 { // what it passes on knows of no VLAN
		f.SetTag(wire.VLAN{PCP: prio, ID: n.vlan})
	}
	n.queue(now, f, prio)
	n.start(now)
}

// next returns when the next frame would start and whether it is a pause frame.
func (t *transmit) next(free vtime.Time) (at vtime.Time, pause bool) {
	at = vtime.Never
	if t.stalled {
		return at, false
	}
	if t.ready&^t.paused != 0 {
		at = max(free, t.elig)
	}
	if t.held.Len() > 0 {
		at = min(at, max(free, t.held.Next()))
	}
	if t.pauses.Len() > 0 {
		if p := max(free, t.pauses.At(0).at); p <= at {
			return p, true
		}
	}
	return at, false
}

// settleBefore commits what started strictly before now (rule R1).
func (n *NIC) settleBefore(now vtime.Time) {
	if n.port.Next() < now {
		n.settle(now - 1)
	}
}

// start commits what can start at now and tells the driver what comes next.
func (n *NIC) start(now vtime.Time) {
	if at, _ := n.tx.next(n.port.Free()); at != n.port.Next() {
		n.port.SetNext(at)
	}
	n.settle(now)
}

func (n *NIC) settle(until vtime.Time) {
	p := n.port
	if p.Next() > until {
		return
	}
	for {
		start, pause := n.tx.next(p.Free())
		if start > until {
			p.SetNext(start)
			return
		}
		var f *wire.Frame
		if pause {
			f = n.tx.pauses.Pop().f
		} else if f = n.pick(start); f == nil {
			continue // what was ready no longer was; ready has shrunk
		}
		n.stats.SentPkts++
		p.Commit(f, f.WireLen(), start)
	}
}

// pick returns the frame that starts now, or nil if the queue pair whose turn it was
// has nothing to send any more.
func (n *NIC) pick(now vtime.Time) *wire.Frame {
	t := &n.tx
	if t.held.Len() > 0 {
		if n.unhold(now); t.ready&^t.paused == 0 {
			return nil
		}
	}
	prio := bits.Len8(t.ready&^t.paused) - 1
	made, round := &t.made[prio], &t.round[prio]
	var f *wire.Frame
	if made.Len() > 0 {
		f = made.Pop()
	} else {
		q := round.Pop()
		q.queued = false
		if q.sq.sendable(q) {
			f = q.sq.nextPacket(now, q)
		}
		if q.cc != nil && f != nil {
			q.cc.sent(now, f.WireLen())
		}
		if !q.queued && (f != nil && q.sq.follows(q) || q.sq.sendable(q)) {
			q.queued = true
			if q.cc == nil || !n.hold(now, q) {
				round.Push(q)
			}
		}
	}
	if made.Len() == 0 && round.Len() == 0 {
		t.ready &^= 1 << prio
	}
	return f
}

// SendPause sends a PFC frame: each class of the mask stops for so many quanta, or
// resumes if quanta is 0. A NIC that runs out of room calls it, and so do faults.
func (n *NIC) SendPause(now vtime.Time, classes uint8, quanta uint16) {
	n.settleBefore(now)
	p := wire.PFC{Src: n.mac, Enable: classes}
	for i := range p.Quanta {
		if classes>>i&1 != 0 {
			p.Quanta[i] = quanta
		}
	}
	if k := n.tx.pauses.Len(); k >= pausesMax {
		last := n.tx.pauses.At(k - 1).f
		old := last.PFC()
		p.Enable |= old.Enable
		for i := range p.Quanta {
			if classes>>i&1 == 0 {
				p.Quanta[i] = old.Quanta[i]
			}
		}
		last.BuildPFC(p)
		return
	}
	f := n.pool.Get()
	f.BuildPFC(p)
	n.stats.Made++
	n.stats.PausesSent++
	n.tx.pauses.Push(pauseFrame{now.Add(pauseGap), f})
	if n.trace != nil {
		n.trace.Trace(now, machine.Event{Kind: machine.EventPauseSent, Priority: classes, Value: int64(quanta)})
	}
	n.start(now)
}

// handlePause obeys a pause frame, but for priorities without PFC.
func (n *NIC) handlePause(now vtime.Time, f *wire.Frame) {
	h := f.PFC()
	n.consume(f)
	n.stats.PausesReceived++
	if h.Enable&n.lossy != 0 {
		n.stats.PausesIgnored++
		h.Enable &^= n.lossy
	}
	t := &n.tx
	for i, q := range h.Quanta {
		if h.Enable>>i&1 == 0 {
			continue
		}
		if n.trace != nil {
			n.trace.Trace(now, machine.Event{Kind: machine.EventPauseReceived, Priority: 1 << i, Value: int64(q)})
		}
		t.until[i] = now.Add(n.port.Serialize(int(q) * wire.PauseQuantumBits / 8))
		if q == 0 {
			n.resume(now, 1<<i)
		} else {
			t.paused |= 1 << i
		}
	}
	n.armPause()
}

func (n *NIC) resume(now vtime.Time, classes uint8) {
	t := &n.tx
	if t.ready&^t.paused == 0 {
		t.elig = max(t.elig, now)
	}
	t.paused &^= classes
}

func (n *NIC) pauseExpired(now vtime.Time) {
	for i, at := range n.tx.until {
		if n.tx.paused>>i&1 != 0 && at <= now {
			n.resume(now, 1<<i)
		}
	}
	n.armPause()
}

func (n *NIC) armPause() {
	first := vtime.Never
	for i, at := range n.tx.until {
		if n.tx.paused>>i&1 != 0 {
			first = min(first, at)
		}
	}
	if first == vtime.Never {
		n.timers.Stop(timerPause)
	} else {
		n.timers.Set(timerPause, first)
	}
}

// Pauses returns how many pause frames wait to be sent.
func (n *NIC) Pauses() int { return n.tx.pauses.Len() }

// Stands reports whether nothing that the NIC has to send or to take goes on, and no timer of
// a queue pair fires, unless a frame or a call comes: a pause or a stall keeps all of it.
func (n *NIC) Stands() bool {
	own := 0
	for _, slot := range []int{timerPause, timerIntake} {
		if n.timers.At(slot) != vtime.Never {
			own++
		}
	}
	fires := n.timers.Armed() > own || n.tx.held.Len() > 0
	moves := n.tx.ready&^n.tx.paused != 0 || n.intake != nil && n.intake.fifo.Len() > 0
	return !fires && (n.tx.stalled || !moves)
}

// Queued returns the frames waiting in the NIC, to be sent or for their turn.
func (n *NIC) Queued() int {
	k := n.tx.pauses.Len() + n.reordered
	if n.intake != nil {
		k += n.intake.fifo.Len()
	}
	for i := range n.tx.made {
		k += n.tx.made[i].Len()
	}
	return k
}
