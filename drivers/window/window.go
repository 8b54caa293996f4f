// SPDX-License-Identifier: Apache-2.0

// Package window decides how far the parts of a lab may advance by themselves. Each part drives some
// nodes of the lab: a process drives one node, a partition of a simulation drives many. A part may
// handle all its events before a bound, because nothing that another part does can reach it earlier
// (conservative synchronisation). All engines that divide a lab share these bounds, the order of
// events at one instant, and the server's end of the out-of-band channel.
//
// Nothing here waits, reads a clock or depends on the way of frames.
package window

import (
	"math"
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// Order decides the order of events of one class at one instant: in the order of their ids, each
// XORed with a mask that depends on the seed and the instant, so that no fixed order of ties favours
// one sender.
type Order struct {
	Key  uint64 // from the run's seed
	Bits uint   // of an id, 1 to 63
}

// Mask returns the value that is XORed into all ids of an instant.
func (o Order) Mask(at vtime.Time) uint64 {
	return (o.Key ^ uint64(at)) * 0x9e3779b97f4a7c15 >> (-o.Bits & 63)
}

// Path is a way from one part to another: a link, or the out-of-band channel.
type Path struct {
	From, To int

	// Delay is the shortest time from an event of From to its effect at To, above 0: of a link the
	// serialization of the shortest frame and the delay.
	Delay vtime.Duration
}

// Plan holds the shortest delays between all parts of a lab.
type Plan struct {
	// delay is indexed by the part that is affected, and then by the part that causes it. Of a part
	// to itself it is the shortest way there and back. Invariant: it is the length of the shortest
	// path, or far where there is none.
	delay [][]vtime.Duration
}

// far is longer than any path and does not overflow when it is added to an instant.
const far = vtime.Duration(math.MaxInt64 / 4)

// NewPlan returns the plan of a lab of the given number of parts.
func NewPlan(parts int, paths []Path) *Plan {
	p := &Plan{delay: make([][]vtime.Duration, parts)}
	for to := range p.delay {
		p.delay[to] = make([]vtime.Duration, parts)
		for from := range p.delay[to] {
			p.delay[to][from] = far
		}
	}
	for _, x := range paths {
		p.delay[x.To][x.From] = min(p.delay[x.To][x.From], x.Delay)
	}
	for by := range parts { // Floyd and Warshall
		for to := range parts {
			first := p.delay[to][by]
			if first == far {
				continue
			}
			for from, d := range p.delay[by] {
				p.delay[to][from] = min(p.delay[to][from], first+d)
			}
		}
	}
	return p
}

// Bound returns the instant before which nothing can reach a part any more. next holds the instant
// of each part's next event, vtime.Never for a part without one. The bound is vtime.Never if nothing
// can reach the part.
func (p *Plan) Bound(part int, next []vtime.Time) vtime.Time {
	bound := vtime.Never
	for from, d := range p.delay[part] {
		if at := next[from]; at < bound && d != far {
			bound = min(bound, at.Add(d))
		}
	}
	return bound
}

// Parts are the parts of a lab as their driver sees them. They also take the messages of the channel's
// server.
type Parts interface {
	Outlet

	// Next sets next[i] to the instant of the next event of part i, vtime.Never if it has none.
	Next(next []vtime.Time)
	// Grant lets a part advance to a bound in the next round.
	Grant(part int, bound vtime.Time)
	// Round lets the parts advance that have been granted something.
	Round() error

	// Meet lets all parts handle the events that come before the calls of the fault timeline at an
	// instant, and returns the census then.
	Meet(at vtime.Time) (*Census, error)
	// Call has all parts make the next of these calls, or put it off. Except for Halt it continues as
	// Meet.
	Call(at vtime.Time, v Verdict) (*Census, error)
}

// Schedule is the fault timeline of a lab. It has all calls that the timelines of the parts have.
type Schedule interface {
	// Next returns when the next call is due, or vtime.Never if none is.
	Next() vtime.Time
	// Call decides on the next call and makes it, given the census of all parts.
	Call(c *Census) (Verdict, error)
}

// Drain lets parts advance until none has an event, or until the run is halted (Verdict). The channel
// is the last part of the plan. No part gets past a call of the fault timeline before all have reached
// it. If only events after the end of lab time are left, it returns rankhost.ErrEnd.
func (p *Plan) Drain(parts Parts, c *Channel, s Schedule) (halted bool, err error) {
	server := len(p.delay) - 1
	next := make([]vtime.Time, server+1)
	for {
		parts.Next(next[:server])
		fault := s.Next()
		if next[server] = c.Next(); next[server] <= vtime.End {
			if bound := min(p.Bound(server, next), fault); next[server] < bound {
				c.Advance(bound, parts)
				continue // the replies are events
			}
		}
		if first := min(slices.Min(next), fault); first > vtime.End && first != vtime.Never {
			return false, rankhost.ErrEnd
		}
		granted := false
		for i, at := range next[:server] {
			if at == vtime.Never {
				continue
			}
			if bound := min(p.Bound(i, next), fault); at < bound {
				parts.Grant(i, bound)
				granted = true
			}
		}
		if granted {
			err = parts.Round()
		} else if fault == vtime.Never {
			return false, nil // no part has an event: the earliest one is before its bound
		} else {
			halted, err = call(parts, c, s, fault)
		}
		if halted || err != nil {
			return halted, err
		}
	}
}

// call has parts make the calls of the fault timeline that are due at an instant.
func call(parts Parts, c *Channel, s Schedule, at vtime.Time) (halted bool, err error) {
	held, err := parts.Meet(at)
	for err == nil && s.Next() == at {
		held.Awake = held.Awake || c.Next() != vtime.Never
		var v Verdict
		if v, err = s.Call(held); err == nil {
			held, err = parts.Call(at, v)
		}
		if v == Halt {
			return true, err
		}
	}
	return false, err
}
