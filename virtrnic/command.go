// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Note adds an event of the host's software to the events of its NIC.
func (n *NIC) Note(now vtime.Time, e machine.Event) {
	if n.trace != nil {
		n.trace.Trace(now, e)
	}
}

// Restart loses all but the counters: queue pairs, memory regions and all else that was made with
// verbs, and the frames that the NIC holds, without any completion. Numbers and keys are still reused
// as late as possible. It returns the number of frames lost; they count as dropped.
func (n *NIC) Restart(now vtime.Time) (lost int) {
	n.settleBefore(now)
	before := n.dropped()
	for _, q := range n.qps {
		if q != nil {
			q.becomeReset(now)
			n.remove(q)
		}
	}
	for _, m := range n.mrs {
		if m != nil {
			n.forget(m)
		}
	}
	for _, m := range n.chosen { // independent of each other
		n.forget(m)
	}
	n.mcast, n.unacked, n.events, n.deadEvents = nil, 0, queue.FIFO[AsyncEvent]{}, 0
	n.incarnation++
	n.made = Made{}
	t := &n.tx
	for prio := range t.made {
		if t.first != nil && int(t.prio) == prio {
			n.drop(now, t.first, DropRestart)
		}
		for r := &t.made[prio]; r.Len() > 0; {
			n.drop(now, r.Pop(), DropRestart)
		}
	}
	for t.pauses.Len() > 0 {
		n.drop(now, t.pauses.Pop().f, DropRestart)
	}
	if in := n.intake; in != nil {
		for in.fifo.Len() > 0 {
			n.drop(now, in.fifo.Pop().f, DropRestart)
		}
		in.bytes, in.xoff, in.refresh = 0, 0, vtime.Never
	}
	n.tx = transmit{stalled: t.stalled, weights: t.weights}
	if t.weights != nil {
		t.weights.reset()
	}
	for n.back.Len() > 0 {
		n.drop(now, n.back.Pop().f, DropRestart)
	}
	for _, slot := range []int{timerPause, timerIntake, timerBack} {
		n.timers.Stop(slot)
	}
	n.start(now)
	return int(n.dropped() - before)
}

func (n *NIC) dropped() (all uint64) {
	for _, d := range n.stats.Drops {
		all += d
	}
	return all
}

// SetCarrier sets whether the NIC's link is up. When it goes down, all that the switch has
// paused is resumed; when it comes up, the NIC repeats the pauses that it has asked for.
func (n *NIC) SetCarrier(now vtime.Time, up bool) {
	n.settleBefore(now)
	if !up {
		n.resume(now, n.tx.paused)
		n.tx.until = [8]vtime.Time{}
		n.armPause()
	} else if in := n.intake; in != nil && in.xoff != 0 && !in.stalled {
		n.SendPause(now, in.xoff, intakeQuanta)
	}
	if w, ok := n.stack.(LinkWatcher); ok && up {
		w.LinkUp(now)
	}
	n.start(now)
}

// takeFrame handles a frame that has left the intake.
func (n *NIC) takeFrame(now vtime.Time, f *wire.Frame) {
	switch kind := f.Kind(); {
	case kind == wire.KindPFC:
		n.handlePause(now, f)
	case kind == wire.KindRoCE && !n.raw:
		n.receive(now, f)
	default:
		if n.stack == nil {
			n.drop(now, f, DropForeign)
		} else {
			n.stack.HandleFrame(now, f)
		}
	}
}
