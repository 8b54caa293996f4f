package faults

import (
	"slices"

	"github.com/mcastlab/mcastlab/prng"
	"github.com/mcastlab/mcastlab/topo"
	"github.com/mcastlab/mcastlab/vtime"
)

// State is a timeline as another process may take it over, with encoding/gob: what came about,
// and what is still to come. What a fault is its Spec says, which goes along as a message.
type State struct {
	Faults   []FaultState
	Carriers []CarrierState
	Down     []int // links
	Coming   []RoutesState
	Calls    []CallState
}

// FaultState is what came about of one fault.
type FaultState struct {
	ID, Text string // of its Spec
	Message  []byte // the rest of it, by Encode
	On       int
	Until    vtime.Time
	Seen     uint64
	Hit      uint64
	Base     map[topo.End]uint64
	Frames   []FramesState // by port at whose far end it is hit
}

// FramesState is where a fault of frames has come to in one direction of a link.
type FramesState struct {
	Random    prng.Stream
	Bad       bool // of a burst
	Seen, Hit uint64
	Last      vtime.Time
}

// CarrierState is one direction of a link.
type CarrierState struct {
	From         topo.End
	Down, Ever   bool
	Since, Until vtime.Time
	Blame        []int // of the faults
}

// RoutesState are routes on their way to switches.
type RoutesState struct {
	At   vtime.Time
	Down []int
}

// CallState is a call that the timeline waits for. Of is the number of the fault or of the
// routes that are coming.
type CallState struct {
	Act    uint8
	Of     int
	At     vtime.Time
	Keep   Keep
	Number int64
}

// State takes down where the timeline has come to.
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
	for from, c := range t.carriers { // each by itself
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
		if x.Of >= 0 { // else the fault was taken away
			s.Calls = append(s.Calls, x)
		}
	}
	return s, nil
}

// Resume makes a timeline without faults go on where another one has come to, and its target
// what the faults that are on say. specs are those of the state's faults, in their order. Routes
// that switches have already are not among what it tells.
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
