// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Arrival is a frame that has reached the end of a link.
type Arrival struct {
	Port  int // the driver's number of the link's end
	Frame *wire.Frame
	Pool  *wire.Pool // the pool that owns the frame
	Count *Counts    // counters of the link's end; nil if nothing is counted
}

// Counts counts the frames that faults affected at the end of one direction of a link.
type Counts struct {
	Lost      uint64 // frames dropped
	Copied    uint64 // frames duplicated
	Held      uint64 // frames delayed
	Malformed uint64 // frames cut or damaged so that they no longer parse, which the port drops
}

// Sink is the driver's side of Apply: it takes the frames on which a fault has decided.
type Sink interface {
	// Decided is called before the verdict takes effect, so that a driver can digest, log and
	// report the frame. Its bit has already been flipped if the verdict says so.
	Decided(port int, f *wire.Frame, v Verdict)
	// Deliver passes a frame to the machine now.
	Deliver(port int, f *wire.Frame)
	// Hold keeps a frame, which may be a copy, and delivers it after d. No fault sees it
	// again.
	Hold(port int, f *wire.Frame, d vtime.Duration)
}

// Apply carries out a fault's verdict on a frame, in the same way under every driver. A copy is
// made after damage and truncation, and it arrives even if the original is dropped. Apply reports
// whether the original is delivered, now or later.
func Apply(v Verdict, a Arrival, s Sink) bool {
	f := a.Frame
	count := a.Count
	if count == nil {
		count = &Counts{}
	}
	if v.Damage {
		a.Pool.Damage(f, v.Bit)
	}
	s.Decided(a.Port, f, v)
	if (v.Cut || v.Damage) && !v.Drop {
		if f = reread(a.Pool, f, v); f == nil {
			count.Malformed++
			return false
		}
	}
	if v.Twice {
		count.Copied++
		s.Hold(a.Port, a.Pool.Clone(f), v.Delay2)
	}
	switch {
	case v.Drop:
		count.Lost++
		a.Pool.Put(f)
		return false
	case v.Delay > 0:
		count.Held++
		s.Hold(a.Port, f, v.Delay)
	default:
		s.Deliver(a.Port, f)
	}
	return true
}

// reread returns the frame to the pool and parses the rest of it after damage and truncation: its
// headers may differ now. It returns nil if they contradict the rest, because a receiver's port drops
// such a frame. Of a trusted frame no bit has been flipped.
func reread(p *wire.Pool, f *wire.Frame, v Verdict) *wire.Frame {
	if !v.Cut && f.Trusted() {
		return f
	}
	b, trusted := f.AppendTo(nil), f.Trusted()
	p.Put(f)
	if v.Cut {
		b = b[:v.Bit%uint64(len(b))]
	}
	left, err := p.Parse(b)
	if err != nil {
		return nil
	}
	if trusted {
		left.Trust()
	}
	return left
}
