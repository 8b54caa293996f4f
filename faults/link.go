// Package faults holds what can go wrong in a lab, as wrappers around links and
// nodes: the protocol cores know none of it. A Timeline says when, and tells a driver.
package faults

import (
	"github.com/mcastlab/mcastlab/prng"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// Verdict says what becomes of a frame at the end of a link.
type Verdict struct {
	Drop   bool
	Damage bool           // flip the bit with number Bit (wire.Pool.Damage)
	Cut    bool           // only the beginning arrives: Bit modulo its length so many bytes
	Twice  bool           // deliver a copy as well, Delay2 later
	Delay  vtime.Duration // deliver it so much later
	Delay2 vtime.Duration
	Bit    uint64
}

// Link is a fault of one direction of a link. It is asked about every frame, in the
// order of arrival.
type Link interface {
	Arrive(now vtime.Time, f *wire.Frame) Verdict
}

// Impairment is random loss, damage, duplication and reordering of the frames that
// match its filter, each with a probability of its own, or delay of all of them.
type Impairment struct {
	Window
	Loss, Corrupt, Truncate, Duplicate, Reorder float64
	// Burst decides about loss in place of the probability; nil: it does not.
	Burst *Burst
	// Numbers and EveryNth decide in place of probabilities: frames that match are counted
	// from 1.
	Numbers  map[int]bool
	EveryNth int
	// Delay is by how much a reordered frame, and a duplicate, comes later at the most.
	Delay vtime.Duration
	// Hold is by how much each frame comes later, and Jitter by how much more at the most.
	// No frame passes another.
	Hold, Jitter vtime.Duration
	// Match, if set, picks the frames concerned; nil: all but pause frames. A lab's is a *Match.
	Match  Matcher
	Random prng.Stream

	Seen, Hit uint64 // frames that matched; frames that something happened to

	last vtime.Time // when the last frame that was held comes
}

// Burst is loss in bursts, the model of Gilbert and Elliott: a link is good or bad, and
// may change with each frame.
type Burst struct {
	ToBad, ToGood     float64 // probability of a change, per frame
	LossGood, LossBad float64 // probability of loss
	Bad               bool    // what it is now
}

// lost decides about the next frame.
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

// hits decides whether something of probability p happens to the frame.
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

// behind returns how long a frame has to wait for not to pass one that is held.
func (m *Impairment) behind(now vtime.Time) vtime.Duration {
	if m.last < now || m.last == 0 {
		return 0
	}
	return m.last.Sub(now) + 1
}

// Chain asks several faults in order; a drop by one ends it.
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

// Nth drops the frames whose number among those that match is in the set, counted
// from 1: "the third acknowledgement on this link".
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
