package sim

import (
	"errors"
	"fmt"

	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/topo"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// ErrCrashed says that the host of a rank crashed.
var ErrCrashed = errors.New("host crashed")

// LinkStats counts what faults did at the end of one direction of a link.
type LinkStats struct {
	Lost      uint64 // frames that went no further
	Copied    uint64 // frames that came twice
	Held      uint64 // frames that came later
	Malformed uint64 // frames that were cut short, of which nothing was left
}

// NewTimeline returns a timeline that applies faults to the simulation. reconverge is how
// long it takes until all switches know of a link that went down.
func (n *Net) NewTimeline(reconverge vtime.Duration) *faults.Timeline {
	if n.linkStats == nil {
		n.linkStats = make([]LinkStats, len(n.ports))
	}
	return faults.NewTimeline(faults.Config{
		Graph: n.graph, Seed: n.cfg.Seed, Reconverge: reconverge, Latency: n.cfg.Latency,
	}, target{n})
}

// LinkStats returns what faults did at the end of the direction of a link that leaves the
// given port.
func (n *Net) LinkStats(port int) (s LinkStats) {
	if n.linkStats != nil {
		s = n.linkStats[port]
	}
	return s
}

// target is the simulation as faults see it (faults.Target).
type target struct{ n *Net }

// id returns the number of the transmitter at a port.
func (t target) id(at topo.End) int { return t.n.PortID(at.Node, at.Port) }

// At implements faults.Target.
func (t target) At(at vtime.Time, keep faults.Keep, f func(now vtime.Time)) {
	n := t.n
	var waiting *int
	switch keep {
	case faults.KeepNot:
		waiting = &n.begins
	case faults.KeepWhile:
		waiting = &n.ends
	default:
		n.At(max(at, n.now), f)
		return
	}
	*waiting++
	n.At(max(at, n.now), func(now vtime.Time) {
		*waiting--
		if n.done() {
			n.held = append(n.held, func() { t.At(at, keep, f) })
			return
		}
		n.began = n.began || keep == faults.KeepNot
		f(now)
	})
}

// done says that no program is left, nor anything that one has begun: of frames only those
// by which faults pause switches. Faults that come again and again would have some under way
// at any time, and timers of switches that wait for the end of a pause.
func (n *Net) done() bool {
	if n.reference != nil || !n.parked(false) || !n.quiet() {
		return false
	}
	pauses := 0
	for i := range n.ports {
		for k := range n.ports[i].InFlight() {
			if n.ports[i].Flying(k).Frame.Kind() == wire.KindPFC {
				pauses++
			}
		}
	}
	return n.pool.Live == pauses
}

// resume has what faults did not do any more when the last program had ended happen now.
func (n *Net) resume() {
	held := n.held
	n.held = nil
	for _, put := range held {
		put()
	}
}

// idle says that nothing is left to do but what faults do, which come and go as if
// somebody were there to see it. While they still move pause frames and routes it is asked
// when one begins.
func (n *Net) idle() bool {
	if len(n.held) > 0 && n.pool.Live == 0 {
		return true
	}
	if n.begins+n.ends == 0 || n.reference != nil {
		return false
	}
	if n.queue.n <= n.begins+n.ends && (n.ends == 0 || n.pool.Live == 0 && n.parked(false)) {
		return true
	}
	if !n.began {
		return false
	}
	n.began = false
	return n.parked(true) && n.quiet() && (!n.parked(false) || n.pool.Live == 0)
}

// parked says that no program runs or, if waiting is all right, that those that do wait
// for something that has no time.
func (n *Net) parked(waiting bool) bool {
	for _, t := range n.tasks {
		if !t.done && (!waiting || t.queued || !t.asleep || t.until != vtime.Never) {
			return false
		}
	}
	return true
}

// quiet says that nothing is under way that could end a wait: no work request and no
// registration, which includes that all frames that matter have come.
func (n *Net) quiet() bool {
	for i := range n.nodes {
		if h := n.nodes[i].host; h != nil {
			if _, armed := h.agent.NextTimeout(); armed {
				return false
			}
		}
	}
	return n.open() == nil
}

// SetFault implements faults.Target.
func (t target) SetFault(from topo.End, l faults.Link) { t.n.SetFault(t.id(from), l) }

// SetCarrier implements faults.Target.
func (t target) SetCarrier(now vtime.Time, at topo.End, up bool) {
	if sw := t.n.nodes[at.Node].sw; sw != nil {
		sw.SetCarrier(now, at.Port, up)
	} else {
		t.n.nodes[at.Node].nic.SetCarrier(now, up)
	}
}

// SetRoutes implements faults.Target.
func (t target) SetRoutes(_ vtime.Time, down []int) {
	g := t.n.graph
	tables := g.Routes()
	if len(down) > 0 {
		tables = g.RoutesWithout(down...)
	}
	for i := range tables {
		t.n.nodes[g.Hosts+i].sw.SetRoutes(t.n.cfg.FIB(g.Hosts+i, &tables[i]))
	}
}

// SetRate implements faults.Target.
func (t target) SetRate(now vtime.Time, at topo.End, rate int64) {
	t.n.nodes[at.Node].m.Settle(now, at.Port)
	t.n.ports[t.id(at)].SetRate(rate)
}

// Sent implements faults.Target.
func (t target) Sent(at topo.End) uint64 { return t.n.ports[t.id(at)].Frames }

// Pause implements faults.Target.
func (t target) Pause(_ vtime.Time, node int, classes uint8, quanta uint16) {
	t.n.Pause(node, classes, quanta)
}

// Restart implements faults.Target.
func (t target) Restart(now vtime.Time, node int) (lost int) {
	n := t.n
	nd := &n.nodes[node]
	if nd.sw != nil {
		return nd.sw.Restart(now)
	}
	h := nd.host
	for _, k := range h.tasks {
		if k.done {
			continue
		}
		if k.rank >= 0 {
			k.job.errs[k.rank] = fmt.Errorf("%w: %s at %v", ErrCrashed, n.graph.Nodes[node].Name, now)
			k.job.lose(k.rank)
		}
		k.stop()
		k.done = true // also if it had not begun
	}
	_, led := h.agent.Groups()
	n.orphans += led
	h.agent.Restart()
	return nd.nic.Restart(now)
}

// WipeGroups implements faults.Target.
func (t target) WipeGroups(_ vtime.Time, node int) (groups int) {
	if sw := t.n.nodes[node].sw; sw != nil {
		groups = sw.WipeGroups()
	}
	return groups
}

// LimitGroups implements faults.Target.
func (t target) LimitGroups(_ vtime.Time, node int, room int) {
	if sw := t.n.nodes[node].sw; sw != nil {
		sw.LimitGroups(room)
	}
}

// Refused implements faults.Target.
func (t target) Refused(node int) (refused uint64) {
	if sw := t.n.nodes[node].sw; sw != nil {
		refused = sw.Stats().Refused
	}
	return refused
}

// Stall implements faults.Target.
func (t target) Stall(now vtime.Time, node int, on bool) {
	if nd := &t.n.nodes[node]; nd.nic != nil {
		nd.nic.Stall(now, on)
		nd.host.look()
	}
}

// SetIntake implements faults.Target.
func (t target) SetIntake(now vtime.Time, node int, rate int64) {
	if nd := &t.n.nodes[node]; nd.nic != nil {
		nd.nic.SetIntake(now, rate)
		nd.host.look()
	}
}

// Waited implements faults.Target.
func (t target) Waited(node int) (waited uint64) {
	if nic := t.n.nodes[node].nic; nic != nil {
		waited = nic.Stats().Waited
	}
	return waited
}

// SetControl implements faults.Target: a simulation has no controllers.
func (t target) SetControl(vtime.Time, []string, []faults.Way) {}

// HeldBack implements faults.Target.
func (t target) HeldBack([]faults.Way) uint64 { return 0 }
