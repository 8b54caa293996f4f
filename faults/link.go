// SPDX-License-Identifier: Apache-2.0

// Package faults injects faults into the links, nodes and controllers of a lab. A Timeline holds
// the faults, decides when each begins and ends, and applies them through a Target that the driver
// implements. The protocol cores contain no fault code. All decisions are drawn from streams of
// the lab's seed, so that the same timeline has the same effect under every driver.
package faults

import (
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Verdict decides over a frame at the end of a link. The zero Verdict delivers it.
type Verdict struct {
	Drop   bool
	Damage bool           // flip the bit with number Bit (wire.Pool.Damage)
	Cut    bool           // keep only the first Bit modulo length bytes
	Twice  bool           // deliver a copy too
	Delay  vtime.Duration // delay of the frame
	Delay2 vtime.Duration // delay of the copy
	Bit    uint64         // random number for Damage and Cut
}

// Link is the faults of one direction of a link. Arrive is called for every frame, in the order of
// arrival.
type Link interface {
	Arrive(now vtime.Time, f *wire.Frame) Verdict
}

// Impairment is the loss, damage, truncation, duplication and reordering of the frames that its
// matcher selects, each with its own probability (0 to 1), and the delay of all of them.
type Impairment struct {
	Window
	Loss, Corrupt, Truncate, Duplicate, Reorder float64
	// Burst, if set, decides about loss in place of the probability Loss.
	Burst *Burst
	// Numbers and EveryNth, if set, decide in place of all probabilities above 0. They select
	// frames by their number among the selected frames, counted from 1.
	Numbers  map[int]bool
	EveryNth int
	// Delay is the longest delay of a reordered frame and of a duplicate.
	Delay vtime.Duration
	// Hold is the delay of every frame, and Jitter the longest random delay on top of it. Frames
	// keep their order.
	Hold, Jitter vtime.Duration
	// Match selects the frames. nil selects all but pause frames. In a lab file's fault it is a
	// *Match.
	Match  Matcher
	Random prng.Stream

	Seen, Hit uint64 // number of selected frames, and of affected frames among them

	last vtime.Time // when the last delayed frame arrives
}

// Burst is loss in bursts, by the model of Gilbert and Elliott: a link is in a good or a bad state,
// and may change its state before each frame.
type Burst struct {
	ToBad, ToGood     float64 // probability of a change, per frame
	LossGood, LossBad float64 // probability of loss
	Bad               bool    // the present state
}

// lost reports whether the next frame is lost. It first draws the change of state.
func (b *Burst) lost(r *prng.Stream) bool {
	if b.Bad {
		b.Bad = !r.Chance(b.ToGood)
	} else {
		b.Bad = r.Chance(b.ToBad)
	}
	if b.Bad {
		return r.Chance(b.LossBad)
	}
	return r.Chance(b.LossGood)
}

// Arrive implements Link.
func (m *Impairment) Arrive(now vtime.Time, f *wire.Frame) (v Verdict) {
	if m.Match == nil && f.Kind() == wire.KindPFC || m.Match != nil && !m.Match.Frame(f) {
		return v
	}
	if !m.On(now) {
		if v.Delay = m.behind(now); v.Delay > 0 {
			m.last = now.Add(v.Delay)
		}
		return v
	}
	m.Seen++
	switch {
	case m.Burst != nil:
		v.Drop = m.Burst.lost(&m.Random)
	case m.hits(m.Loss):
		v.Drop = true
	case m.hits(m.Corrupt):
		v.Damage, v.Bit = true, m.Random.Uint64()
	case m.hits(m.Truncate):
		v.Cut, v.Bit = true, m.Random.Uint64()
	}
	if m.hits(m.Duplicate) {
		v.Twice, v.Delay2 = true, m.delay()
	}
	if m.hits(m.Reorder) {
		v.Delay = m.delay()
	}
	if m.Hold > 0 || m.Jitter > 0 {
		d := m.Hold
		if m.Jitter > 0 {
			d += vtime.Duration(m.Random.Float64() * float64(m.Jitter))
		}
		v.Delay = max(d, m.behind(now))
		m.last = now.Add(v.Delay)
	}
	if v != (Verdict{}) {
		m.Hit++
	}
	return v
}

// hits reports whether an effect of probability p occurs to the frame.
func (m *Impairment) hits(p float64) bool {
	switch {
	case p == 0:
		return false
	case m.Numbers != nil || m.EveryNth > 0:
		return m.Numbers[int(m.Seen)] || m.EveryNth > 0 && m.Seen%uint64(m.EveryNth) == 0
	}
	return m.Random.Chance(p)
}

func (m *Impairment) delay() vtime.Duration {
	return 1 + vtime.Duration(m.Random.Float64()*float64(m.Delay))
}

// behind returns how long a frame must be delayed so that it does not pass a delayed one.
func (m *Impairment) behind(now vtime.Time) vtime.Duration {
	if m.last < now || m.last == 0 {
		return 0
	}
	return m.last.Sub(now) + 1
}

// Chain combines several faults of one direction in order. A drop by one of them ends the chain.
type Chain []Link

// Arrive implements Link.
func (c Chain) Arrive(now vtime.Time, f *wire.Frame) (v Verdict) {
	for _, l := range c {
		w := l.Arrive(now, f)
		v.Damage, v.Twice, v.Cut = v.Damage || w.Damage, v.Twice || w.Twice, v.Cut || w.Cut
		v.Delay = min(v.Delay+w.Delay, vtime.SpanMax)
		v.Delay2 = min(v.Delay2+w.Delay2, vtime.SpanMax)
		if w.Damage || w.Cut {
			v.Bit = w.Bit
		}
		if v.Drop = w.Drop; v.Drop {
			return v
		}
	}
	return v
}

// Nth drops frames by their number among those that match, counted from 1: for example the third
// acknowledgement on a link.
type Nth struct {
	Match func(f *wire.Frame) bool
	Drop  map[int]bool
	Seen  int
}

// Arrive implements Link.
func (n *Nth) Arrive(_ vtime.Time, f *wire.Frame) Verdict {
	if !n.Match(f) {
		return Verdict{}
	}
	n.Seen++
	return Verdict{Drop: n.Drop[n.Seen]}
}
