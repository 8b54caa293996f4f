// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"math/bits"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// transmit is the NIC's egress. Each priority has a FIFO of complete frames (acknowledgements and
// those of the host's stack), which go first, and a round of queue pairs, which send one packet
// each in turn. Priorities are strict or share the link by weights, and a pause frame goes before all of them.
//
// Invariant: a bit of ready is set if and only if made or round of that priority is not empty. Invariant: a
// queue pair is at most once in round and held together, and its queued flag is set while it is.
type transmit struct {
	ready  uint8 // by bit: priorities with frames or queue pairs
	paused uint8 // by bit: priorities that the switch has paused
	// stalled is set while the NIC is stopped by Stall. Nothing starts then, not even pause frames.
	stalled bool
	// queues has by bit the priorities that have something in made or round. Invariant: the others that are ready have
	// first alone.
	queues uint8
	// first is a ready-made frame that goes before all that is in made or round of its priority, prio, or nil. Most
	// frames of a receiver, an acknowledgement at a time, are never anywhere else.
	prio    uint8
	first   *wire.Frame
	elig    vtime.Time
	held    queue.Heap[*QP] // queue pairs that their rate does not let send yet (pacing.go)
	pauses  queue.FIFO[pauseFrame]
	weights *weights // nil: all priorities are strict
	made    [8]queue.FIFO[*wire.Frame]
	round   [8]queue.FIFO[*QP]
	until   [8]vtime.Time // when a received pause runs out
}

type pauseFrame struct {
	at vtime.Time
	f  *wire.Frame
}

// pausesMax is the number of pause frames that may wait for the link. When that many wait, a new one is
// merged into the last of them, and its quanta replace those of the classes that it names.
const pausesMax = 1024

// markReady marks a priority as ready: it has something to send from now on, in made or round.
func (n *NIC) markReady(now vtime.Time, prio uint8) {
	n.tx.markReady(now, prio)
	n.tx.queues |= 1 << prio
}

func (t *transmit) markReady(now vtime.Time, prio uint8) {
	if t.ready&^t.paused == 0 {
		t.elig = max(t.elig, now)
	}
	t.ready |= 1 << prio
}

// queue puts a ready-made frame into the egress.
func (n *NIC) queue(now vtime.Time, f *wire.Frame, prio uint8) {
	t := &n.tx
	if t.first == nil && t.ready>>prio&1 == 0 {
		t.first, t.prio = f, prio
		t.markReady(now, prio)
		return
	}
	n.markReady(now, prio)
	t.made[prio].Push(f)
}

// offer puts a queue pair into the round if it has something to send.
func (n *NIC) offer(now vtime.Time, q *QP) {
	if !q.queued && q.sq.sendable(q) {
		q.queued = true
		if q.cc != nil && n.hold(now, q) {
			return
		}
		n.markReady(now, q.prio)
		if round := &n.tx.round[q.prio]; !round.Place(q) {
			round.Push(q)
		}
	}
}

// SendFrame queues a complete frame of the host's other traffic, and takes the frame over. The
// frame's DSCP decides its priority.
func (n *NIC) SendFrame(now vtime.Time, f *wire.Frame) {
	n.settleBefore(now)
	n.stats.Made++
	prio := n.priority(f.Traffic())
	if n.raw && n.vlan != 0 { // forwarded frames have no VLAN tag
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

// settleBefore commits frames that started strictly before now (machine: settle before input).
func (n *NIC) settleBefore(now vtime.Time) {
	if n.port.Next() < now {
		n.settle(now - 1)
	}
}

// start commits the frames that can start at now and gives the driver the next deadline.
func (n *NIC) start(now vtime.Time) {
	if at, _ := n.tx.next(n.port.Free()); at <= now {
		n.commit(now)
	} else if at != n.port.Next() {
		n.port.SetNext(at)
	}
}

func (n *NIC) settle(until vtime.Time) {
	if n.port.Next() <= until {
		n.commit(until)
	}
}

// commit starts the frames that are due by the instant until, and gives the driver the next deadline.
func (n *NIC) commit(until vtime.Time) {
	p := n.port
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
			continue // the queue pair has nothing to send; pick has taken it out of the round
		}
		if n.turns && n.turnBack(start, f) {
			continue
		}
		n.stats.SentPkts++
		p.Commit(f, f.WireLen(), start)
		if n.credits && !pause {
			n.spendCredit(f)
		}
	}
}

// spendCredit stops the priority of a frame that has started until the switch resumes it.
func (n *NIC) spendCredit(f *wire.Frame) {
	prio := n.priority(f.Traffic())
	if p, tagged := f.PCP(); tagged {
		prio = p
	}
	if f.Kind() == wire.KindRoCE && n.lossy>>prio&1 == 0 {
		n.tx.paused |= 1 << prio
		n.tx.until[prio] = vtime.Never // no time ends it
	}
}

// pick returns the frame that starts now, or nil if the queue pair whose turn it is has nothing
// to send any more.
func (n *NIC) pick(now vtime.Time) *wire.Frame {
	t := &n.tx
	if t.held.Len() > 0 {
		if n.unhold(now); t.ready&^t.paused == 0 {
			return nil
		}
	}
	prio := uint8(bits.Len8(t.ready&^t.paused) - 1)
	if t.weights != nil {
		prio = t.weights.choose(t.ready &^ t.paused)
	}
	if t.first != nil && t.prio == prio {
		return n.pickFirst(prio)
	}
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
				if !round.Place(q) {
					round.Push(q)
				}
			}
		}
	}
	if made.Len() == 0 && round.Len() == 0 {
		t.ready &^= 1 << prio
		t.queues &^= 1 << prio
	}
	if t.weights != nil && f != nil {
		t.weights.spend(prio, f.WireLen())
	}
	return f
}

// pickFirst is pick of a priority that has first.
func (n *NIC) pickFirst(prio uint8) *wire.Frame {
	t := &n.tx
	f := t.first
	t.first = nil
	t.ready &^= 1 << prio &^ t.queues
	if t.weights != nil {
		t.weights.spend(prio, f.WireLen())
	}
	return f
}

// SendPause sends a PFC frame to the switch. Each class whose bit is set in classes stops for the
// given number of quanta, of 512 bit times each, or resumes if quanta is 0. The NIC calls it when
// its intake runs out of room; faults call it, too.
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

// handlePause obeys a pause frame, except in priorities without PFC.
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

// Pauses returns the number of pause frames that wait to be sent.
func (n *NIC) Pauses() int { return n.tx.pauses.Len() }

// Stands reports whether the NIC does nothing until a frame arrives or a method is called. No
// timer of a queue pair is armed then, and a pause or a stall holds back all that waits.
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

// Queued returns the number of frames that the NIC holds: those that wait to be sent, those in the
// intake, those to itself, and those in reorder buffers.
func (n *NIC) Queued() int {
	k := n.tx.pauses.Len() + n.reordered + n.back.Len()
	if n.intake != nil {
		k += n.intake.fifo.Len()
	}
	if n.tx.first != nil {
		k++
	}
	for i := range n.tx.made {
		k += n.tx.made[i].Len()
	}
	return k
}

// Paused returns the bit mask of the priorities that the switch has paused.
func (n *NIC) Paused() uint8 { return n.tx.paused }
