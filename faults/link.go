// Package faults holds what can go wrong in a lab, as wrappers around links and
// nodes: the protocol cores know none of it.
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
// match its filter, each with a probability of its own.
type Impairment struct {
	Loss, Corrupt, Duplicate, Reorder float64
	// Delay is by how much a reordered frame, and a duplicate, comes later at the most.
	Delay vtime.Duration
	// From and Until bound the fault in time; a zero Until means without end.
	From, Until vtime.Time
	// Match, if set, picks the frames concerned.
	Match  func(f *wire.Frame) bool
	Random prng.Stream

	Seen, Hit uint64 // frames that matched; frames that something happened to
}

// Arrive implements Link. Pause frames are left alone: a link that loses them is not
// lossy but broken.
func (m *Impairment) Arrive(now vtime.Time, f *wire.Frame) (v Verdict) {
	if now < m.From || m.Until != 0 && now >= m.Until || f.Kind() == wire.KindPFC || m.Match != nil && !m.Match(f) {
		return v
	}
	m.Seen++
	switch {
	case m.Loss > 0 && m.Random.Chance(m.Loss):
		v.Drop = true
	case m.Corrupt > 0 && m.Random.Chance(m.Corrupt):
		v.Damage, v.Bit = true, m.Random.Uint64()
	}
	if m.Duplicate > 0 && m.Random.Chance(m.Duplicate) {
		v.Twice, v.Delay2 = true, m.delay()
	}
	if m.Reorder > 0 && m.Random.Chance(m.Reorder) {
		v.Delay = m.delay()
	}
	if v != (Verdict{}) {
		m.Hit++
	}
	return v
}

func (m *Impairment) delay() vtime.Duration {
	return 1 + vtime.Duration(m.Random.Float64()*float64(m.Delay))
}

// Chain asks several faults in order; a drop by one ends it.
type Chain []Link

// Arrive implements Link.
func (c Chain) Arrive(now vtime.Time, f *wire.Frame) (v Verdict) {
	for _, l := range c {
		w := l.Arrive(now, f)
		v.Damage, v.Twice = v.Damage || w.Damage, v.Twice || w.Twice
		v.Delay += w.Delay
		v.Delay2 += w.Delay2
		if w.Damage {
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
