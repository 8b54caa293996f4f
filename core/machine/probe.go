// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"math"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Probe visits all state that machines and links change while data flows, at instants that are one period
// apart, and finds out whether the later state is the earlier one up to a shift: of instants by the period, of
// PSNs by a number of packets, of counters by the increase in the period. The owner of state that cannot be
// compared refuses the visit. If all state agrees, every following period repeats the last, as long as no
// number meets one that stays: then Advance moves the state over many periods at once.
//
// A machine hands all of its words to the Probe in the same order at each visit, by the method of their kind,
// whatever the visit is for. Words that no packet of data and no acknowledgement changes need not be visited.
type Probe struct {
	words []uint64 // of the last visit
	next  []uint64 // of this one
	steps []int64  // difference of each from one visit to the next
	at    int

	visit   visit
	known   bool // steps have been found
	now     vtime.Time
	period  vtime.Duration
	packets int
	room    int64 // periods for which no number meets one that stays
	periods int64 // by which Advance moves
	why     string
	shape   wire.Shape
	groups  wire.GroupRange
}

type visit uint8

const (
	visitFirst visit = iota
	visitCompare
	visitAdvance
)

// Begin starts the first visit, at an instant. groups are the addresses of the fabric's groups.
func (p *Probe) Begin(now vtime.Time, groups wire.GroupRange) {
	*p = Probe{words: p.words[:0], next: p.next[:0], steps: p.steps[:0], now: now, groups: groups}
}

// Compare starts a visit at a later instant. PSNs have moved by packets since the last one.
func (p *Probe) Compare(now vtime.Time, packets int) {
	p.visit, p.at, p.why, p.next = visitCompare, 0, "", p.next[:0]
	if !p.known {
		p.steps = p.steps[:0]
	}
	if period := now.Sub(p.now); p.known && (period != p.period || packets != p.packets) {
		p.Refuse("the period is another one")
	}
	p.period, p.packets, p.room = now.Sub(p.now), packets, math.MaxInt64
	p.now = now
}

// Equal ends a visit of Compare. It reports whether the state is that of the last visit up to a shift, by the
// same steps as before if there was a visit between.
func (p *Probe) Equal() bool {
	if p.why == "" && p.at != len(p.words) {
		p.Refuse("the number of words")
	}
	if p.why != "" {
		p.now = p.now.Add(-p.period)
		return false
	}
	p.words, p.next, p.known = p.next, p.words, true
	return true
}

// Advance starts a visit that moves the state over the given number of periods, at most Room.
func (p *Probe) Advance(periods int64) {
	p.visit, p.at, p.periods = visitAdvance, 0, periods
}

// Room returns the number of periods for which no number that moves meets one that stays.
func (p *Probe) Room() int64 { return p.room }

// Period returns the distance of the last two visits: a time, and the number of packets by which PSNs
// have moved.
func (p *Probe) Period() (d vtime.Duration, packets int) { return p.period, p.packets }

// Why names the first state that differed, or was refused; it is empty if none did.
func (p *Probe) Why() string { return p.why }

// Ended reports whether the comparison has failed, so that the rest of the visit is useless.
func (p *Probe) Ended() bool { return p.why != "" }

// Refuse ends the comparison: the state is not known to repeat.
func (p *Probe) Refuse(why string) {
	if p.why == "" {
		p.why = why
	}
}

// Within bounds the periods by a number that moves by step in each and has left before its limit.
func (p *Probe) Within(left, step uint64) { p.room = min(p.room, int64(left/max(1, step))) }

// Compares reports whether this visit compares with an earlier one.
func (p *Probe) Compares() bool { return p.visit == visitCompare }

// Whole requires the packets of a period to be a multiple of every.
func (p *Probe) Whole(every uint64) {
	if uint64(p.packets)%every != 0 {
		p.Refuse("part of what comes every so many packets")
	}
}

// Ahead bounds the periods by the number of packets that may still move.
func (p *Probe) Ahead(packets uint64) { p.Within(packets, uint64(p.packets)) }

// word takes a word of the state. It returns the one of the last visit.
func (p *Probe) word(v uint64) (last uint64) {
	i := p.at
	p.at++
	if p.visit == visitFirst {
		p.words = append(p.words, v)
		return v
	}
	if i >= len(p.words) {
		p.Refuse("the number of words")
		return v
	}
	p.next = append(p.next, v)
	return p.words[i]
}

// moved takes note that a word has moved by step since the last visit.
func (p *Probe) moved(step int64, what string) {
	if !p.known {
		p.steps = append(p.steps, step)
	} else if p.steps[p.at-1] != step {
		p.Refuse(what)
	}
}

// move returns a word moved over the periods of an Advance.
func (p *Probe) move(v uint64) uint64 {
	v += uint64(p.steps[p.at] * p.periods)
	p.at++
	return v
}

// Same visits a word that stays.
func (p *Probe) Same(v uint64, what string) {
	if p.visit == visitAdvance {
		p.at++
		return
	}
	if last := p.word(v); p.visit == visitCompare {
		if last != v {
			p.Refuse(what)
		}
		p.moved(0, what)
	}
}

// Flags visits conditions that stay.
func (p *Probe) Flags(what string, flags ...bool) {
	var v uint64
	for i, f := range flags {
		if f {
			v |= 1 << i
		}
	}
	p.Same(v, what)
}

// Count visits a word that moves by the same number in each period, on which nothing depends.
func (p *Probe) Count(v *uint64, what string) {
	switch p.visit {
	case visitAdvance:
		*v = p.move(*v)
		return
	case visitFirst:
		p.word(*v)
	default:
		p.moved(int64(*v-p.word(*v)), what)
	}
}

// Seq visits the number of a packet that wraps nowhere, which moves by the packets of a period or stays. Seq reports
// whether it moves.
func (p *Probe) Seq(v *uint64, what string) (moves bool) {
	if p.visit == visitAdvance {
		*v = p.move(*v)
		return false
	}
	last := p.word(*v)
	if p.visit == visitFirst {
		return false
	}
	step := int64(*v - last)
	if step != 0 && step != int64(p.packets) {
		p.Refuse(what)
	}
	p.moved(step, what)
	return step != 0
}

// PSN visits a PSN, which moves by the packets of a period or stays, and must not wrap. PSN reports whether it moves.
func (p *Probe) PSN(v *wire.PSN, what string) (moves bool) {
	n := uint64(*v)
	if moves = p.Seq(&n, what); moves {
		p.Within(uint64(wire.PSNMask)-n, uint64(p.packets))
	}
	*v = wire.PSN(n)
	return moves
}

// Time visits an instant that moves with the period, or is vtime.Never.
func (p *Probe) Time(t *vtime.Time, what string) {
	p.instant(t, what, func() bool { return *t == vtime.Never })
}

// Past visits an instant that moves with the period, or is so far back that it means no more than that it is
// over.
func (p *Probe) Past(t *vtime.Time, what string) {
	p.instant(t, what, func() bool { return *t == vtime.Never || *t <= p.now.Add(-p.period) })
}

// Deadline visits an instant at which something is due. It moves with the period or stays, and then the periods
// end before it.
func (p *Probe) Deadline(t *vtime.Time, what string) {
	p.instant(t, what, func() bool {
		if *t > p.now && *t != vtime.Never {
			p.Until(*t)
		}
		return *t > p.now
	})
}

// Until bounds the periods: all of them end before an instant.
func (p *Probe) Until(t vtime.Time) {
	if t <= p.now {
		p.Refuse("something is due")
		return
	}
	p.Within(uint64(t.Sub(p.now))-1, uint64(p.period))
}

// instant visits an instant, which may stay if stays says so.
func (p *Probe) instant(t *vtime.Time, what string, stays func() bool) {
	if p.visit == visitAdvance {
		*t = vtime.Time(p.move(uint64(*t)))
		return
	}
	last := p.word(uint64(*t))
	if p.visit == visitFirst {
		return
	}
	step := int64(uint64(*t) - last)
	if step != int64(p.period) && (step != 0 || !stays()) {
		p.Refuse(what)
	}
	p.moved(step, what)
}

// Decremented reports whether the last to change the IPv4 checksum of a packet was the switch that has decremented its
// TTL. switched is set if it has left a switch, or is about to. A switch makes the feedback of groups itself, and bridges
// packets to a member or to the source, whose address is the group's then.
func (p *Probe) Decremented(f *wire.Frame, switched bool) bool {
	return switched && !p.groups.Has(f.SrcIP()) && !(f.OpCode() == wire.OpAcknowledge && p.groups.Has(f.DstIP()))
}

// Frame visits a packet, which has left a switch, or is about to, or not. All packets are of flows that move.
func (p *Probe) Frame(f *wire.Frame, switched bool) {
	if p.visit == visitAdvance {
		f.Shift(int(p.periods)*p.packets, p.Decremented(f, switched))
		p.at += 1 + len(f.Shape(&p.shape))
		return
	}
	if !f.Shifts() {
		p.Refuse("a packet with bytes, or of another kind than data and acknowledgements")
		return
	}
	psn := f.PSN()
	if !p.PSN(&psn, "the PSN of a packet") && p.visit == visitCompare {
		p.Refuse("a packet is sent again")
	}
	for _, w := range f.Shape(&p.shape) {
		p.Same(w, "a header")
	}
}

// Probe visits the link, which begins at a switch or not: the time at which its transmitter is free, the frames on the way, and those that
// have arrived. The caller that makes the Probe owns the digest.
func (l *Link) Probe(p *Probe, switched bool) {
	if l.listed || l.list.pauses > 0 {
		p.Refuse("a link with an event to come, or a pause frame")
	}
	p.Time(&l.next, "a start")
	p.Past(&l.free, "a transmission")
	p.Time(&l.wake, "an event of a start")
	p.Flags("an event of a link", l.keyed)
	p.Count(&l.Frames, "frames")
	p.Count(&l.Bytes, "bytes")
	p.Count(&l.Payload, "payload")
	p.Same(uint64(l.flights.Len()), "frames on a link")
	for i := range l.flights.Len() {
		x := l.flights.At(i)
		p.Time(&x.At, "an arrival")
		p.Frame(x.Frame, switched)
		if p.Ended() {
			return
		}
	}
}
