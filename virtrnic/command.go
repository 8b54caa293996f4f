package virtrnic

import (
	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// Note puts what the host's software did among the events of its NIC.
func (n *NIC) Note(now vtime.Time, e machine.Event) {
	if n.trace != nil {
		n.trace.Trace(now, e)
	}
}

// Restart makes the NIC what it was when it was made, but for its counters: queue pairs,
// memory regions and all else that was made with verbs, and the frames it holds, are gone,
// without a completion to anybody; numbers and keys are not used again soon. It returns how many frames it held; they count as
// dropped.
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
	for _, m := range n.chosen { // each by itself
		n.forget(m)
	}
	n.mcast, n.unacked, n.events, n.deadEvents = nil, 0, ring[AsyncEvent]{}, 0
	n.life++
	n.made = Made{}
	t := &n.tx
	for prio := range t.made {
		for r := &t.made[prio]; r.n > 0; {
			n.drop(now, r.pop(), DropRestart)
		}
	}
	for t.pauses.n > 0 {
		n.drop(now, t.pauses.pop().f, DropRestart)
	}
	if in := n.intake; in != nil {
		for in.fifo.n > 0 {
			n.drop(now, in.fifo.pop().f, DropRestart)
		}
		in.bytes, in.xoff, in.refresh = 0, 0, vtime.Never
	}
	n.tx = transmit{stalled: t.stalled}
	n.timers.Stop(timerPause)
	n.timers.Stop(timerIntake)
	n.start(now)
	return int(n.dropped() - before)
}

func (n *NIC) dropped() (all uint64) {
	for _, d := range n.stats.Drops {
		all += d
	}
	return all
}

// SetCarrier says whether the NIC's link is there. Without it, nothing that the switch has
// paused stays so; when it comes back, the NIC says again what it has paused itself.
func (n *NIC) SetCarrier(now vtime.Time, up bool) {
	n.settleBefore(now)
	if !up {
		n.resume(now, n.tx.paused)
		n.tx.until = [8]vtime.Time{}
		n.armPause()
	} else if in := n.intake; in != nil && in.xoff != 0 && !in.stalled {
		n.SendPause(now, in.xoff, intakeQuanta)
	}
	n.start(now)
}

// takeFrame does what a NIC does with a frame it has taken.
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
