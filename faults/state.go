// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// State is the state of a timeline in a form that encoding/gob can carry to another process, which
// continues the timeline by Resume. It holds past effects and pending calls. The Spec of each
// fault travels as a message (Encode).
type State struct {
	Faults   []FaultState
	Carriers []CarrierState
	Down     []int // links that are down
	Coming   []RoutesState
	Calls    []CallState
}

// FaultState is the state of one fault.
type FaultState struct {
	ID, Text string // ID and Text of the Spec
	Message  []byte // the other fields of the Spec, by Encode
	On       int
	Until    vtime.Time
	Seen     uint64
	Hit      uint64
	Base     map[topo.End]uint64
	Frames   []FramesState // by affected direction of a link, in the order of Spec.Ends
}

// FramesState is the state of a fault of frames in one direction of a link.
type FramesState struct {
	Random    prng.Stream
	Bad       bool // Burst.Bad
	Seen, Hit uint64
	Last      vtime.Time
}

// CarrierState is the physical layer of one direction of a link.
type CarrierState struct {
	From         topo.End
	Down, Ever   bool
	Since, Until vtime.Time
	Blame        []int // numbers of the faults that keep the link down
}

// RoutesState is a change of routes that switches have not received yet.
type RoutesState struct {
	At   vtime.Time
	Down []int
}

// CallState is a pending call. Of is the index of its fault in Faults, or of its change of routes
// in Coming.
type CallState struct {
	Act    uint8
	Of     int
	At     vtime.Time
	Keep   Keep
	Number int64
}

// State returns the timeline's state. It returns an error for a fault that no message can carry.
func (t *Timeline) State() (s State, err error) {
	for _, e := range t.all {
		m, err := Encode(&e.Spec, t.c.Graph)
		if err != nil {
			return s, err
		}
		f := FaultState{ID: e.ID, Text: e.Text, Message: m, On: e.on, Until: e.until, Seen: e.seen, Hit: e.hit, Base: e.base}
		for _, m := range e.imps {
			f.Frames = append(f.Frames, FramesState{m.Random, m.Burst != nil && m.Burst.Bad, m.Seen, m.Hit, m.last})
		}
		s.Faults = append(s.Faults, f)
	}
	for from, c := range t.carriers { // a map; Resume does not depend on the order
		x := CarrierState{From: from, Down: c.down, Ever: c.ever, Since: c.since, Until: c.until}
		for _, e := range c.blame {
			if i := slices.Index(t.all, e); i >= 0 {
				x.Blame = append(x.Blame, i)
			}
		}
		s.Carriers = append(s.Carriers, x)
	}
	s.Down = t.down
	for _, r := range t.coming {
		s.Coming = append(s.Coming, RoutesState{r.at, r.down})
	}
	for _, p := range t.calls {
		x := CallState{uint8(p.act), slices.Index(t.all, p.e), p.at, p.keep, p.number}
		if p.act == actRoutes {
			x.Of = slices.Index(t.coming, p.r)
		}
		if x.Of >= 0 { // the fault has not been removed
			s.Calls = append(s.Calls, x)
		}
	}
	return s, nil
}

// Resume continues, in a timeline without faults, the timeline whose state is s, and applies the
// faults that are on to its target. specs are the Specs of the state's faults, in their order.
// Resume does not call SetRoutes for routes that the switches already have.
func (t *Timeline) Resume(now vtime.Time, specs []Spec, s State) {
	for i, f := range s.Faults {
		e := t.insert(specs[i])
		e.on, e.until, e.seen, e.hit = f.On, f.Until, f.Seen, f.Hit
		if f.Base != nil {
			e.base = f.Base
		}
		for k, x := range f.Frames {
			m := e.imps[k]
			m.Random, m.Seen, m.Hit, m.last = x.Random, x.Seen, x.Hit, x.Last
			if m.Burst != nil {
				m.Burst.Bad = x.Bad
			}
		}
	}
	for _, x := range s.Carriers {
		c := t.carrierOf(x.From)
		c.down, c.ever, c.since, c.until = x.Down, x.Ever, x.Since, x.Until
		for _, i := range x.Blame {
			c.blame = append(c.blame, t.all[i])
		}
	}
	t.down = s.Down
	for _, link := range t.down {
		l := &t.c.Graph.Links[link]
		for _, at := range [2]topo.End{l.A, l.B} {
			if t.owns(at.Node) {
				t.t.Links.SetCarrier(now, at, false)
			}
		}
	}
	for _, e := range t.all {
		if e.on > 0 {
			t.settle(now, e)
		}
	}
	for _, r := range s.Coming {
		t.coming = append(t.coming, &routes{r.At, r.Down})
	}
	for _, x := range s.Calls {
		p := &pending{act: act(x.Act), at: x.At, keep: x.Keep, number: x.Number}
		if p.act == actRoutes {
			p.r = t.coming[x.Of]
		} else {
			p.e = t.all[x.Of]
		}
		t.await(p)
	}
}
