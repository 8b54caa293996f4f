package faults

import (
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/prng"
	"github.com/mcastlab/mcastlab/topo"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// Keep says what a call that a timeline asks for means to a driver that stops when
// nothing is left to do.
type Keep uint8

// What calls mean.
const (
	KeepNot   Keep = iota // a fault begins: nobody waits for that
	KeepWhile             // it ends: somebody may, as long as programs run or frames are held
	KeepAlways
)

// Target is what a driver lets faults do to its links and nodes. Nodes and ports that are
// not the driver's own it ignores. Calls come from within Add, Remove and the calls that
// were asked for.
type Target interface {
	// At arranges for a call at an instant, or at once if that has passed.
	At(at vtime.Time, keep Keep, f func(now vtime.Time))
	// SetFault puts a fault on the direction of a link that leaves the port; nil takes it away.
	SetFault(from topo.End, l Link)
	// SetCarrier tells the node at a port whether its link is there.
	SetCarrier(now vtime.Time, at topo.End, up bool)
	// SetRoutes gives all switches the routes without the links that are down.
	SetRoutes(now vtime.Time, down []int)
	// SetRate makes a port's transmitter send at bits per second.
	SetRate(now vtime.Time, at topo.End, rate int64)
	// Sent returns how many frames a port has sent.
	Sent(at topo.End) uint64
	// Pause makes a host send a PFC frame.
	Pause(now vtime.Time, node int, classes uint8, quanta uint16)
	// Restart makes a node lose all it knows and holds; lost is how many frames that were.
	// On a host the programs end.
	Restart(now vtime.Time, node int) (lost int)
	// WipeGroups makes a switch forget its groups and returns how many it had.
	WipeGroups(now vtime.Time, node int) (groups int)
	// LimitGroups bounds the groups of a switch; -1: it is what it was configured with.
	LimitGroups(now vtime.Time, node int, room int)
	// Refused returns how many registrations a switch has refused.
	Refused(node int) uint64
	// Stall stops a host's adapter, or lets it go on.
	Stall(now vtime.Time, node int, on bool)
	// SetIntake bounds the rate at which a host takes what arrives; 0: no bound.
	SetIntake(now vtime.Time, node int, rate int64)
	// Waited returns how many frames have waited at a host that was stalled or slow.
	Waited(node int) uint64
	// SetControl says which controllers are crashed, and in which directions nothing gets
	// through between them.
	SetControl(now vtime.Time, crashed []string, cut []Way)
	// HeldBack returns how often something could not be sent at once for a cut that begins at
	// one of these controllers.
	HeldBack(from []Way) uint64
}

// Config describes a timeline.
type Config struct {
	Graph *topo.Graph
	Seed  uint64
	// Reconverge is how long it takes until all switches know of a link that went down or
	// came back. The switch at the link knows at once.
	Reconverge vtime.Duration
	// Owns says which nodes are the driver's; nil: all.
	Owns func(node int) bool
	// Controller is the controller that is the driver's; empty: none.
	Controller string
	// Latency is that of a node's pipeline, which a frame passes before it is handed over.
	Latency func(node int) vtime.Duration
}

// Timeline applies faults to a driver's links and nodes at their times. It is what gives
// a fault one meaning under every clock.
type Timeline struct {
	c        Config
	t        Target
	root     prng.Stream
	all      []*entry
	carriers map[topo.End]*carrier // by sending port
	down     []int                 // links, ascending
	coming   []*routes             // on their way to switches, in the order of their times
}

// entry is a fault that is applied.
type entry struct {
	Spec
	own   []topo.End // sending ports
	imps  []*Impairment
	names []string
	on    int        // times it is on now; 0 or 1
	until vtime.Time // when this time of it ends, if it lasts and has an end
	gone  bool
	seen  uint64 // of kinds that are not of frames: how often it came on
	hit   uint64
	base  map[topo.End]uint64 // of counters, when it came on; by port, or by node
}

// NewTimeline returns a timeline without faults.
func NewTimeline(c Config, t Target) *Timeline {
	return &Timeline{c: c, t: t, root: prng.New(c.Seed), carriers: map[topo.End]*carrier{}}
}

func (t *Timeline) owns(node int) bool { return t.c.Owns == nil || t.c.Owns(node) }

// Add applies a fault beside those that are.
func (t *Timeline) Add(now vtime.Time, s Spec) {
	e := &entry{Spec: s, base: map[topo.End]uint64{}}
	name := "fault/" + strings.TrimPrefix(s.ID, LabPrefix)
	e.Window.Random = t.root.Derive(name + "/times")
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
	if s.Kind.OfFrames() {
		return
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
	t.plan(now, e, 0)
}

// rewire puts what faults there are on a direction of a link.
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
	if all == nil {
		t.t.SetFault(from, nil)
		return
	}
	t.t.SetFault(from, all)
}

// plan arranges for the fault's next beginning, from number k on.
func (t *Timeline) plan(now vtime.Time, e *entry, k int64) {
	if e.Every > 0 && now > e.From && k == 0 { // added late: what is over does not come any more
		k = max(0, int64(now.Sub(e.From.Add(e.For))/e.Every))
	}
	k, at, ok := e.next(k)
	if !ok || e.Every == 0 && e.Over(now) {
		return
	}
	keep := e.keep()
	t.t.At(at, keep, func(now vtime.Time) {
		if e.gone {
			return
		}
		end := at.Add(e.For)
		if e.For > 0 && end <= now {
			t.plan(now, e, k+1)
			return
		}
		if e.until = end; e.For > 0 {
			t.t.At(end, max(keep, e.keepEnd()), func(now vtime.Time) { t.end(now, e) })
		}
		t.begin(now, e)
		if e.Every > 0 {
			t.plan(now, e, k+1)
		}
	})
}

// keep returns what a beginning of the fault means to a driver.
func (e *entry) keep() Keep {
	if e.Kind == KindPause && e.Every == 0 && e.Probability == 0 {
		return KeepAlways // a plain pause is a part of the run to its end
	}
	return KeepNot
}

// keepEnd returns what an end of the fault means to a driver.
func (e *entry) keepEnd() Keep {
	if e.Kind == KindAgentCrash {
		return KeepAlways // no program is started on a node that has no process
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
			if t.owns(n) {
				e.hit += uint64(t.t.Restart(now, n))
			}
		}
	case KindWipe:
		for _, n := range e.Nodes {
			if t.owns(n) {
				e.hit += uint64(t.t.WipeGroups(now, n))
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

// end takes a fault's effect back.
func (t *Timeline) end(now vtime.Time, e *entry) {
	if e.on == 0 {
		return
	}
	t.count(e, func(at topo.End, v uint64) { e.hit += v - e.base[at] })
	e.on = 0
	if e.Kind == KindPause {
		for _, n := range e.Nodes {
			if t.owns(n) {
				e.hit++
				t.t.Pause(now, n, 1<<e.Priority, 0)
			}
		}
	}
	t.settle(now, e)
}

// Remove takes away the faults whose id begins so, and their effects, and returns their
// ids.
func (t *Timeline) Remove(now vtime.Time, prefix string) (ids []string) {
	return t.RemoveIf(now, func(id string) bool { return strings.HasPrefix(id, prefix) })
}

// RemoveIf is Remove of the faults whose id it is asked about and says so.
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

// List returns the faults in the order in which they were added.
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

// count visits the counters that say what a fault hit while it is on.
func (t *Timeline) count(e *entry, visit func(at topo.End, v uint64)) {
	switch e.Kind {
	case KindControlPartition:
		visit(topo.End{Node: -1}, t.t.HeldBack(e.Cut))
	case KindRateCut:
		for _, l := range e.Links {
			for _, at := range [2]topo.End{t.c.Graph.Links[l].A, t.c.Graph.Links[l].B} {
				if t.owns(at.Node) {
					visit(at, t.t.Sent(at))
				}
			}
		}
	case KindRoom, KindStall, KindSlowReceiver:
		for _, n := range e.Nodes {
			switch {
			case !t.owns(n):
			case e.Kind == KindRoom:
				visit(topo.End{Node: n}, t.t.Refused(n))
			default:
				visit(topo.End{Node: n}, t.t.Waited(n))
			}
		}
	}
}

// pause makes hosts send pause frames for as long as this time of the fault lasts: a
// pause is renewed before it runs out, and a storm repeats it much more often.
func (t *Timeline) pause(now vtime.Time, e *entry, number uint64) {
	if e.on == 0 || e.gone || e.seen != number {
		return
	}
	next := now.Add(e.Gap)
	for _, n := range e.Nodes {
		if e.Kind == KindPause {
			next = now.Add(t.fullPause(n) / 2)
		}
		if t.owns(n) {
			e.hit++
			t.t.Pause(now, n, 1<<e.Priority, PauseQuantaMax)
		}
	}
	keep := KeepNot
	if e.Kind == KindPause && e.For > 0 {
		if next >= e.until {
			return // it ends before
		}
		keep = max(e.keep(), KeepWhile)
	}
	t.t.At(next, keep, func(now vtime.Time) { t.pause(now, e, number) })
}

// fullPause returns how long the longest pause lasts on a host's link.
func (t *Timeline) fullPause(node int) vtime.Duration {
	rate := t.c.Graph.Links[t.c.Graph.Nodes[node].Links[0]].Rate
	return vtime.Duration(float64(PauseQuantaMax*wire.PauseQuantumBits) / float64(rate) * float64(vtime.Second))
}
