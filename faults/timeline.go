// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Config describes a timeline.
type Config struct {
	Graph *topo.Graph
	Seed  uint64
	// Reconverge is the time from the failure or return of a link until all switches have new routes.
	// The switches at the link react at once.
	Reconverge vtime.Duration
	// Owns reports whether the driver runs a node. nil means that it runs all.
	Owns func(node int) bool
	// Controller is the name of the controller that the driver runs, or empty.
	Controller string
	// Latency returns the latency of a node's pipeline, which a frame passes between the end of a
	// link and its arrival event.
	Latency func(node int) vtime.Duration
}

// Timeline applies faults to a driver's links and nodes when they are due. All drivers share it,
// so that a fault has the same meaning in virtual time and in wall time.
type Timeline struct {
	c        Config
	t        Target
	root     prng.Stream
	all      []*entry
	carriers map[topo.End]*carrier // by sending port
	down     []int                 // links that are down, ascending
	coming   []*routes             // changes of routes that switches have not received, by instant
	calls    []*pending            // pending calls, in the order in which they were requested
	perRow   []Spec                // faults that begin again with each row (PerRow)
}

// act is the action of a pending call.
type act uint8

const (
	actBegin  act = iota // a fault begins
	actEnd               // a fault ends
	actPause             // a fault makes hosts send pause frames
	actRoutes            // switches receive new routes
)

// pending is a call that a timeline has requested from its driver. It is kept as data, because
// another process may continue the timeline (State).
type pending struct {
	act    act
	e      *entry  // the fault; nil for actRoutes
	r      *routes // the change of routes, for actRoutes
	at     vtime.Time
	keep   Keep
	number int64 // actBegin: number of the beginning; actPause: entry.seen of the beginning it belongs to
}

// entry is a fault of a timeline with its state.
type entry struct {
	Spec
	own   []topo.End    // sending ports of the affected directions that end at this driver's nodes
	imps  []*Impairment // by index of own
	names []string      // Status.Applied
	on    int           // 1 while the fault is on, else 0
	until vtime.Time    // when the present occurrence ends, if it has an end
	gone  bool          // the fault has been removed
	seen  uint64        // how often a fault of another kind than frames has begun
	hit   uint64
	base  map[topo.End]uint64 // values of the driver's counters at the beginning, by port or by node
}

// NewTimeline returns a timeline without faults.
func NewTimeline(c Config, t Target) *Timeline {
	return &Timeline{c: c, t: t, root: prng.New(c.Seed), carriers: map[topo.End]*carrier{}}
}

func (t *Timeline) owns(node int) bool { return t.c.Owns == nil || t.c.Owns(node) }

func (t *Timeline) ownsHost(node int) bool { return node < t.c.Graph.Hosts && t.owns(node) }

func (t *Timeline) ownsSwitch(node int) bool { return node >= t.c.Graph.Hosts && t.owns(node) }

// Add adds a fault to those of the timeline.
func (t *Timeline) Add(now vtime.Time, s Spec) {
	if e := t.insert(s); !s.Kind.OfFrames() {
		t.plan(now, e, 0)
	}
}

// insert enters a fault without planning its beginnings. A fault of frames takes effect by its
// Impairment.
func (t *Timeline) insert(s Spec) *entry {
	e := &entry{Spec: s, base: map[topo.End]uint64{}}
	name := streamOf(s.ID)
	e.Window.Random = t.root.Derive(timesOf(s.ID))
	t.all = append(t.all, e)
	g := t.c.Graph
	for _, from := range s.Ends {
		to := g.Peer(from.Node, from.Port)
		if !t.owns(to.Node) {
			continue
		}
		own := s.Frames
		own.Window = e.Window
		own.Random = t.root.Derive(name + "/" + g.PortName(from))
		if s.Frames.Burst != nil {
			b := *s.Frames.Burst
			own.Burst = &b
		}
		e.own, e.imps = append(e.own, from), append(e.imps, &own)
		e.names = append(e.names, g.PortName(to))
		t.rewire(from)
	}
	for _, l := range s.Links {
		for _, at := range [2]topo.End{g.Links[l].A, g.Links[l].B} {
			if t.owns(at.Node) {
				e.names = append(e.names, g.PortName(at))
			}
		}
	}
	for _, n := range s.Nodes {
		if t.owns(n) {
			e.names = append(e.names, g.Nodes[n].Name)
		}
	}
	if s.Kind == KindControllerCrash && slices.Contains(s.Controllers, t.c.Controller) ||
		slices.ContainsFunc(s.Cut, func(c Way) bool { return c.From == t.c.Controller }) {
		e.names = append(e.names, t.c.Controller)
	}
	return e
}

// streamOf and timesOf name a fault's random streams.
func streamOf(id string) string { return "fault/" + strings.TrimPrefix(id, LabPrefix) }

func timesOf(id string) string { return streamOf(id) + "/times" }

// rewire sets the faults of a direction of a link.
func (t *Timeline) rewire(from topo.End) {
	if !t.owns(t.c.Graph.Peer(from.Node, from.Port).Node) {
		return
	}
	var all Chain
	if c := t.carriers[from]; c != nil {
		all = append(all, c)
	}
	for _, e := range t.all {
		if i := slices.Index(e.own, from); i >= 0 {
			all = append(all, e.imps[i])
		}
	}
	switch {
	case all == nil:
		t.t.Links.SetFault(from, nil)
	case len(all) == 1 && prompt(all[0]):
		t.t.Links.SetFault(from, all[0])
	default:
		t.t.Links.SetFault(from, all)
	}
}

// prompt reports whether a fault delays no frame. Its verdict is then that of a Chain of it alone, which takes longer to compute.
func prompt(l Link) bool {
	m, ok := l.(*Impairment)
	return ok && m.Duplicate == 0 && m.Reorder == 0 && m.Hold == 0 && m.Jitter == 0
}

// plan requests the call of the fault's next beginning, from number k on.
func (t *Timeline) plan(now vtime.Time, e *entry, k int64) {
	if e.Every > 0 && now > e.From && k == 0 { // the fault was added late: skip the occurrences that are over
		k = max(0, int64(now.Sub(e.From.Add(e.For))/e.Every))
	}
	k, at, ok := e.next(k)
	if !ok || e.Every == 0 && e.Over(now) {
		return
	}
	t.await(&pending{act: actBegin, e: e, at: at, keep: e.keep(), number: k})
}

// await requests a call from the driver.
func (t *Timeline) await(p *pending) {
	t.calls = append(t.calls, p)
	t.t.Clock.At(p.at, p.keep, func(now vtime.Time) {
		t.calls = slices.DeleteFunc(t.calls, func(o *pending) bool { return o == p })
		switch p.act {
		case actBegin:
			t.occur(now, p.e, p.at, p.number)
		case actEnd:
			t.end(now, p.e)
		case actPause:
			t.pause(now, p.e, uint64(p.number))
		case actRoutes:
			t.install(now, p.r)
		}
	})
}

// occur begins occurrence number k of a fault, which is due at the given instant, and plans its end
// and the next occurrence.
func (t *Timeline) occur(now vtime.Time, e *entry, at vtime.Time, k int64) {
	if e.gone {
		return
	}
	keep, end := e.keep(), at.Add(e.For)
	if e.For > 0 && end <= now {
		t.plan(now, e, k+1)
		return
	}
	if e.until = end; e.For > 0 {
		t.await(&pending{act: actEnd, e: e, at: end, keep: max(keep, e.keepEnd())})
	}
	t.begin(now, e)
	if e.Every > 0 {
		t.plan(now, e, k+1)
	}
}

// keep returns the Keep of the calls that begin the fault.
func (e *entry) keep() Keep {
	if e.Kind == KindPause && e.Every == 0 && e.Probability == 0 {
		return KeepAlways // a run includes a single pause to its end
	}
	return KeepNot
}

// keepEnd returns the Keep of the calls that end the fault.
func (e *entry) keepEnd() Keep {
	if e.Kind == KindAgentCrash {
		return KeepAlways // no program can start on a node without a process
	}
	return KeepWhile
}

// begin makes a fault take effect.
func (t *Timeline) begin(now vtime.Time, e *entry) {
	e.seen++
	if e.Kind.Lasts() {
		e.on = 1
		t.count(e, func(at topo.End, v uint64) { e.base[at] = v })
	}
	switch e.Kind {
	case KindCrash, KindAgentCrash, KindRestart:
		for _, n := range e.Nodes {
			switch {
			case !t.owns(n):
			case e.Kind == KindAgentCrash:
				e.hit += uint64(t.t.Links.EndAgent(now, n))
			default:
				e.hit += uint64(t.t.Links.Restart(now, n))
			}
		}
	case KindWipe:
		for _, n := range e.Nodes {
			if t.ownsSwitch(n) {
				e.hit += uint64(t.t.Switches.WipeGroups(now, n))
			}
		}
	case KindPause, KindPauseStorm:
		t.pause(now, e, e.seen)
	case KindControllerCrash:
		if slices.Contains(e.Controllers, t.c.Controller) {
			e.hit++
		}
	}
	t.settle(now, e)
}

// end undoes the effect of a fault.
func (t *Timeline) end(now vtime.Time, e *entry) {
	if e.on == 0 {
		return
	}
	t.count(e, func(at topo.End, v uint64) { e.hit += v - e.base[at] })
	e.on = 0
	if e.Kind == KindPause {
		for _, n := range e.Nodes {
			if t.ownsHost(n) {
				e.hit++
				t.t.Hosts.Pause(now, n, 1<<e.Priority, 0)
			}
		}
	}
	t.settle(now, e)
}

// Remove removes the faults whose id begins with prefix, undoes their effects, and returns their
// ids.
func (t *Timeline) Remove(now vtime.Time, prefix string) (ids []string) {
	return t.RemoveIf(now, func(id string) bool { return strings.HasPrefix(id, prefix) })
}

// RemoveIf removes the faults for whose id goes returns true, undoes their effects, and returns
// their ids.
func (t *Timeline) RemoveIf(now vtime.Time, goes func(id string) bool) (ids []string) {
	var left, gone []*entry
	for _, e := range t.all {
		if goes(e.ID) {
			gone = append(gone, e)
		} else {
			left = append(left, e)
		}
	}
	t.all = left
	for _, e := range gone {
		t.end(now, e)
		e.gone = true
		for _, from := range e.own {
			t.rewire(from)
		}
		ids = append(ids, e.ID)
	}
	return ids
}

// List returns the state of all faults, in the order in which they were added.
func (t *Timeline) List(now vtime.Time) (all []Status) {
	for _, e := range t.all {
		s := Status{ID: e.ID, Kind: e.Kind, Text: e.Text, On: e.on > 0, Over: e.Over(now), Seen: e.seen, Hit: e.hit, Applied: e.names}
		if !e.Kind.Lasts() {
			s.Over = e.Every == 0 && now >= e.From
		}
		for _, m := range e.imps {
			s.Seen, s.Hit, s.On = s.Seen+m.Seen, s.Hit+m.Hit, s.On || m.On(now)
		}
		if e.on > 0 {
			t.count(e, func(at topo.End, v uint64) { s.Hit += v - e.base[at] })
		}
		all = append(all, s)
	}
	return all
}

// count visits the driver's counters from which Status.Hit of a fault is computed.
func (t *Timeline) count(e *entry, visit func(at topo.End, v uint64)) {
	switch e.Kind {
	case KindControlPartition:
		if t.t.Control != nil {
			visit(topo.End{Node: -1}, t.t.Control.HeldBack(e.Cut))
		}
	case KindRateCut:
		for _, l := range e.Links {
			for _, at := range [2]topo.End{t.c.Graph.Links[l].A, t.c.Graph.Links[l].B} {
				if t.owns(at.Node) {
					visit(at, t.t.Links.Arrived(at))
				}
			}
		}
	case KindRoom, KindStall, KindSlowReceiver:
		for _, n := range e.Nodes {
			switch {
			case e.Kind == KindRoom && t.ownsSwitch(n):
				visit(topo.End{Node: n}, t.t.Switches.Refused(n))
			case e.Kind != KindRoom && t.ownsHost(n):
				visit(topo.End{Node: n}, t.t.Hosts.Waited(n))
			}
		}
	}
}

// pause makes hosts send pause frames while the present occurrence of the fault lasts. A pause is
// renewed before it expires. A storm repeats it every Gap. number is entry.seen of the occurrence.
func (t *Timeline) pause(now vtime.Time, e *entry, number uint64) {
	if e.on == 0 || e.gone || e.seen != number {
		return
	}
	next := now.Add(e.Gap)
	for _, n := range e.Nodes {
		if e.Kind == KindPause {
			next = now.Add(t.fullPause(n) / 2)
		}
		if t.ownsHost(n) {
			e.hit++
			t.t.Hosts.Pause(now, n, 1<<e.Priority, PauseQuantaMax)
		}
	}
	keep := KeepNot
	if e.Kind == KindPause && e.For > 0 {
		if next >= e.until {
			return // the fault ends before the next renewal
		}
		keep = max(e.keep(), KeepWhile)
	}
	t.await(&pending{act: actPause, e: e, at: next, keep: keep, number: int64(number)})
}

// fullPause returns the duration of the longest pause on a host's link.
func (t *Timeline) fullPause(node int) vtime.Duration {
	return FullPause(t.c.Graph.Links[t.c.Graph.Nodes[node].Links[0]].Rate)
}

// FullPause returns the duration of the longest pause on a link of the given rate in bit/s.
func FullPause(rate int64) vtime.Duration {
	return vtime.Duration(float64(PauseQuantaMax*wire.PauseQuantumBits) / float64(rate) * float64(vtime.Second))
}
