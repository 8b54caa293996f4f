package faults

import (
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// Arrival is a frame that has come to the end of a link.
type Arrival struct {
	Port  int // the driver's number of the link's end
	Frame *wire.Frame
	Pool  *wire.Pool // where the frame comes from
	Count *Counts    // of the link's end; nil: nothing is counted
}

// Counts says what faults did at the end of a link.
type Counts struct {
	Lost      uint64 // frames that went no further
	Copied    uint64 // frames that came twice
	Held      uint64 // frames that came later
	Malformed uint64 // frames that were cut short, of which nothing was left
}

// Sink is the driver to which Apply hands what a fault has left of a frame.
type Sink interface {
	// Decided is told what is about to happen to a frame, so that a driver can digest, log and
	// report it. Damage has been done to it, and nothing else yet.
	Decided(port int, f *wire.Frame, v Verdict)
	// Deliver hands a frame to the machine.
	Deliver(port int, f *wire.Frame)
	// Hold keeps a frame, which may be a copy, and delivers it a while later. No fault sees
	// it again.
	Hold(port int, f *wire.Frame, d vtime.Duration)
}

// Apply does to a frame what a fault has decided, in the same way under every driver. A
// copy is made of what is left after damage and cutting, and it arrives even if the original
// is lost. Apply reports whether the frame goes on, now or later.
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
	if v.Cut && !v.Drop {
		if f = cut(a.Pool, f, v.Bit); f == nil {
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

// cut returns what is left of a frame that a fault has cut, if anything: a frame that is
// shorter than its headers say is none, as a receiver's port finds. The frame goes back
// to the pool.
func cut(p *wire.Pool, f *wire.Frame, bit uint64) *wire.Frame {
	b := f.AppendTo(nil)
	p.Put(f)
	left, err := p.Parse(b[:bit%uint64(len(b))])
	if err != nil {
		return nil
	}
	return left
}
