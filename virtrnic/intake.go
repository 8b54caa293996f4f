// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// intake is the buffer behind the port of a NIC that takes frames more slowly than they arrive,
// because it is stalled or because its bus is slow. A slow NIC pauses its switch; a stalled NIC
// sends nothing. Invariant: bytes is the sum of the sizes in fifo, and at most intakeBytes.
type intake struct {
	stalled  bool
	bytePs16 int64      // time of a byte, in 1/65536 picoseconds; 0: no bound
	free     vtime.Time // when all frames in fifo have been taken
	fifo     queue.FIFO[waiting]
	bytes    int
	xoff     uint8      // classes in which the switch is paused
	refresh  vtime.Time // when the pause is repeated
}

// waiting is a frame and the instant at which it has been taken.
type waiting struct {
	f    *wire.Frame
	size int
	at   vtime.Time
}

// Bounds of the intake, in bytes on the wire.
const (
	intakeBytes = 1 << 20
	intakeXOFF  = intakeBytes / 8
	intakeXON   = intakeXOFF / 2
)

// intakeQuanta is the pause that a slow NIC asks for, the longest there is.
const intakeQuanta = 0xffff

// Stalled reports whether the NIC is stopped by Stall.
func (n *NIC) Stalled() bool { return n.tx.stalled }

// Stall stops the NIC, or lets it continue from the state in which it was stopped. A stalled NIC sends
// nothing, holds arriving frames, and fires no timer of a queue pair. Verbs may be called meanwhile.
func (n *NIC) Stall(now vtime.Time, on bool) {
	if on == (n.intake != nil && n.intake.stalled) {
		return
	}
	n.settleBefore(now)
	if on {
		n.open().stalled = true
		n.tx.stalled = true
		n.timers.Stop(timerIntake)
		n.start(now)
		return
	}
	n.intake.stalled, n.tx.stalled = false, false
	// Transmissions that were held during the stall start now at the earliest.
	n.port.HoldUntil(now)
	n.retime(now)
}

// SetIntake bounds the rate at which the NIC takes arriving frames, in bit/s on the wire; with
// 0 it takes them at once. The NIC pauses its switch when more than a threshold waits.
func (n *NIC) SetIntake(now vtime.Time, bitsPerSec int64) {
	n.settleBefore(now)
	in := n.open()
	in.bytePs16 = 0
	if bitsPerSec > 0 {
		in.bytePs16 = machine.BytePs16(bitsPerSec)
	}
	if !in.stalled {
		n.retime(now)
	}
}

func (n *NIC) open() *intake {
	if n.intake == nil {
		n.intake = &intake{refresh: vtime.Never}
	}
	return n.intake
}

// retime recomputes when each waiting frame will have been taken.
func (n *NIC) retime(now vtime.Time) {
	in := n.intake
	in.free = now
	for i := range in.fifo.Len() {
		w := in.fifo.At(i)
		in.free = in.free.Add(in.serialize(w.size))
		w.at = in.free
	}
	n.takeDue(now)
	n.start(now)
}

func (in *intake) serialize(size int) vtime.Duration {
	return vtime.Duration((int64(size)*in.bytePs16 + 1<<15) >> 16)
}

// holdFrame reports whether the intake has taken charge of a frame: it waits there, or is dropped if
// there is no room. Pause frames never wait.
func (n *NIC) holdFrame(now vtime.Time, f *wire.Frame) bool {
	in := n.intake
	if f.Kind() == wire.KindPFC {
		return false // the port itself obeys pause frames
	}
	size := f.WireLen()
	if in.bytes+size > intakeBytes {
		n.drop(now, f, DropIntakeFull)
		return true
	}
	in.free = max(in.free, now).Add(in.serialize(size))
	in.fifo.Push(waiting{f, size, in.free})
	in.bytes += size
	n.stats.Waited++
	if in.stalled {
		return true
	}
	if prio := n.priority(f.Traffic()); in.bytes > intakeXOFF && n.lossy>>prio&1 == 0 {
		n.pausePeer(now, 1<<prio)
	}
	n.armIntake()
	return true
}

// pausePeer asks the switch to pause classes, and repeats it before the pause runs out.
func (n *NIC) pausePeer(now vtime.Time, classes uint8) {
	in := n.intake
	if in.xoff|classes == in.xoff && now < in.refresh {
		return
	}
	in.xoff |= classes
	n.SendPause(now, in.xoff, intakeQuanta)
	in.refresh = now.Add(n.port.Serialize(intakeQuanta*wire.PauseQuantumBits/8) / 2)
}

// armIntake sets the timer for the frame that is taken next, and for the next pause.
func (n *NIC) armIntake() {
	in := n.intake
	at := in.refresh
	if in.fifo.Len() > 0 {
		at = min(at, in.fifo.At(0).at)
	}
	if at == vtime.Never {
		n.timers.Stop(timerIntake)
	} else {
		n.timers.Set(timerIntake, at)
	}
}

// takeDue takes the frames that are due by now, and resumes the switch when few are left.
func (n *NIC) takeDue(now vtime.Time) {
	in := n.intake
	for in.fifo.Len() > 0 && in.fifo.At(0).at <= now {
		w := in.fifo.Pop()
		in.bytes -= w.size
		n.takeFrame(now, w.f)
	}
	switch {
	case in.xoff != 0 && in.bytes <= intakeXON:
		n.SendPause(now, in.xoff, 0)
		in.xoff, in.refresh = 0, vtime.Never
	case in.xoff != 0 && now >= in.refresh:
		n.pausePeer(now, in.xoff)
	}
	if in.fifo.Len() == 0 && in.bytePs16 == 0 && !in.stalled && in.xoff == 0 {
		n.intake = nil
		n.timers.Stop(timerIntake)
		return
	}
	n.armIntake()
}
