// SPDX-License-Identifier: Apache-2.0

//go:build linux

package live

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// Left is the state of a halted loop from which a loop in another process continues: its clock, and the
// frames that have not reached its machine. Frames that arrive in between wait in the kernel.
type Left struct {
	Last        vtime.Time // lab time of the last input
	Rate        Rate
	Next        *Rate // announced rate, or nil
	Sent, Acted *hdrhistogram.Snapshot
	Frames      []LeftFrame // in the order of their due times
}

// LeftFrame is a frame on a link into a node.
type LeftFrame struct {
	Port  int
	At    vtime.Time
	Held  bool // delayed by a fault, which does not handle it again
	Bytes []byte
}

// Halt makes the current input the machine's last. It must be called from within Call or At.
func (l *Loop) Halt() {
	l.stop = true
	l.wait.wake()
}

// Leave returns the state that a halted loop leaves, and the counters of its ports. Frames
// that the machine was sending count as sent, so Leave hands them to the kernel. Run must have
// returned.
func (l *Loop) Leave() (left Left, links []LinkStats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.wires.Len() {
		l.handOver(i)
	}
	left = Left{Last: l.last, Rate: l.clock.now, Sent: l.lag.Sent.Export(), Acted: l.lag.Acted.Export()}
	if l.clock.changing {
		left.Next = &l.clock.next
	}
	for i := range l.links {
		k := &l.links[i]
		for k.coming.Len() > 0 {
			x := k.coming.Pop()
			left.Frames = append(left.Frames, LeftFrame{Port: i, At: x.At, Bytes: x.Frame.AppendTo(nil)})
		}
		k.counts.KernelDrops, k.counts.Cut = k.io.Drops(), k.io.Cut()
		links = append(links, k.counts)
	}
	slices.SortStableFunc(left.Frames, func(a, b LeftFrame) int { return cmp.Compare(a.At, b.At) })
	for l.late.Len() > 0 {
		x := l.late.Pop()
		left.Frames = append(left.Frames, LeftFrame{x.Value.port, x.At, true, x.Value.f.AppendTo(nil)})
	}
	return left, links
}

// handOver hands the frames that a port is sending to the kernel. Frames that the kernel has
// no room for are lost, as they would be at the neighbour.
func (l *Loop) handOver(port int) {
	p, k := l.wires.At(port), &l.links[port]
	for p.InFlight() > 0 {
		if len(k.out) == batch && !l.flush(port, k) {
			return
		}
		fl := p.Land()
		if l.watch != nil {
			start, d := p.Began(fl.At, fl.Frame)
			l.watch.Sent(port, start, d, fl.At, fl.Frame)
		}
		l.queue(k, fl, p.Delay)
	}
	l.flush(port, k)
}

// goOn takes over the state that another loop has left.
func (l *Loop) goOn(left *Left) error {
	l.clock = Clock{now: left.Rate}
	if left.Next != nil {
		l.clock.Set(*left.Next)
	}
	l.last = left.Last
	l.lag.Sent, l.lag.Acted = hdrhistogram.Import(left.Sent), hdrhistogram.Import(left.Acted)
	for _, x := range left.Frames {
		if x.Port >= len(l.links) {
			return fmt.Errorf("a frame was left at port %d, there are %d", x.Port, len(l.links))
		}
		f, err := l.pool.Parse(x.Bytes)
		switch {
		case err != nil:
			return fmt.Errorf("a frame that was left: %w", err)
		case x.Held:
			l.hold(x.At, x.Port, f)
		default:
			l.links[x.Port].coming.Push(machine.Flight{At: x.At, Frame: f})
		}
	}
	return nil
}
