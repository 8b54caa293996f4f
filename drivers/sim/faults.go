package sim

import (
	"errors"
	"fmt"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// ErrCrashed is wrapped by the error of a rank whose host crashed.
var ErrCrashed = errors.New("host crashed")

// NewTimeline returns a timeline that applies faults to the simulation. reconverge is the time
// from the failure of a link to the moment at which all switches route around it.
func (n *Net) NewTimeline(reconverge vtime.Duration) *faults.Timeline {
	if n.linkStats == nil {
		n.linkStats = make([]faults.Counts, n.links.Len())
	}
	for i := range n.links.Len() {
		n.notePauseSpan(i)
	}
	t := target{n}
	return faults.NewTimeline(faults.Config{
		Graph: n.graph, Seed: n.cfg.Seed, Reconverge: reconverge, Latency: n.cfg.Latency,
	}, faults.Target{Clock: t, Links: t, Switches: t, Hosts: t})
}

// LinkStats returns the counts of the faults that acted on frames of the transmitter with the
// given number. All counts are zero in a simulation without a timeline.
func (n *Net) LinkStats(port int) (s faults.Counts) {
	if n.linkStats != nil {
		s = n.linkStats[port]
	}
	return s
}

// target applies faults to the simulation. It implements every part of faults.Target but the
// control plane, because a simulation has no controllers.
type target struct{ n *Net }

// id returns the number of the transmitter at a port.
func (t target) id(at topo.End) int { return t.n.PortID(at.Node, at.Port) }

// At implements faults.Clock.
func (t target) At(at vtime.Time, keep faults.Keep, f func(now vtime.Time)) {
	n := t.n
	if n.applying && keep != faults.KeepNot {
		n.lastEnd = max(n.lastEnd, at) // the call that is being made has begun a fault that ends then
	}
	call := func(now vtime.Time) {
		n.applying = true
		f(now)
		n.applying = false
	}
	var waiting *int
	switch keep {
	case faults.KeepNot:
		waiting = &n.begins
	case faults.KeepWhile:
		waiting = &n.ends
	default:
		n.At(max(at, n.now), call)
		return
	}
	*waiting++
	n.At(max(at, n.now), func(now vtime.Time) {
		*waiting--
		if n.done() {
			n.postponed = append(n.postponed, func() { t.At(at, keep, f) })
			return
		}
		n.began = n.began || keep == faults.KeepNot
		call(now)
	})
}

// SetFault implements faults.LinkTarget.
func (t target) SetFault(from topo.End, l faults.Link) { t.n.SetFault(t.id(from), l) }

// SetCarrier implements faults.LinkTarget.
func (t target) SetCarrier(now vtime.Time, at topo.End, up bool) {
	if sw := t.n.nodes[at.Node].sw; sw != nil {
		sw.SetCarrier(now, at.Port, up)
	} else {
		t.n.nodes[at.Node].nic.SetCarrier(now, up)
	}
}

// SetRoutes implements faults.SwitchTarget.
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

// SetRate implements faults.LinkTarget.
func (t target) SetRate(now vtime.Time, at topo.End, rate int64) {
	t.n.nodes[at.Node].m.Settle(now, at.Port)
	t.n.links.At(t.id(at)).SetRate(rate)
	t.n.notePauseSpan(t.id(at))
}

// notePauseSpan raises pauseMax to the longest time from the sending of a pause frame by a port
// to the expiry of the pause at the far end.
func (n *Net) notePauseSpan(port int) {
	l := n.links.At(port)
	n.pauseMax = max(n.pauseMax, l.Delay+l.Serialize(faults.PauseQuantaMax*wire.PauseQuantumBits/8+2*pauseBehind))
}

// pauseBehind is more than the bytes that the largest frame occupies on a link. A pause frame
// may have to wait for such a frame.
const pauseBehind = 1 << 14

// Sent implements faults.LinkTarget.
func (t target) Sent(at topo.End) uint64 { return t.n.links.At(t.id(at)).Frames }

// Pause implements faults.HostTarget.
func (t target) Pause(_ vtime.Time, node int, classes uint8, quanta uint16) {
	t.n.Pause(node, classes, quanta)
}

// Restart implements faults.LinkTarget.
func (t target) Restart(now vtime.Time, node int) (lost int) {
	n := t.n
	nd := &n.nodes[node]
	if nd.sw != nil {
		n.forgotten()
		return nd.sw.Restart(now)
	}
	h := nd.host
	for _, k := range h.tasks {
		if k.done {
			continue
		}
		if k.rank >= 0 {
			k.job.errs[k.rank] = fmt.Errorf("%w: %s at %v", ErrCrashed, n.graph.Nodes[node].Name, now)
			k.job.resume(k.job.board.Lose(k.rank))
		}
		k.stop()
		k.done = true // stop does not set it for a task that has not begun
	}
	_, led := h.agent.Groups()
	n.orphans += led
	h.agent.Restart()
	return nd.nic.Restart(now)
}

// EndAgent implements faults.LinkTarget.
func (t target) EndAgent(now vtime.Time, node int) (lost int) { return t.Restart(now, node) }

// WipeGroups implements faults.SwitchTarget.
func (t target) WipeGroups(_ vtime.Time, node int) int {
	t.n.forgotten()
	return t.n.nodes[node].sw.WipeGroups()
}

// LimitGroups implements faults.SwitchTarget.
func (t target) LimitGroups(_ vtime.Time, node int, room int) {
	t.n.nodes[node].sw.LimitGroups(room)
}

// Refused implements faults.SwitchTarget.
func (t target) Refused(node int) uint64 { return t.n.nodes[node].sw.Stats().Refused }

// Stall implements faults.HostTarget.
func (t target) Stall(now vtime.Time, node int, on bool) {
	nd := &t.n.nodes[node]
	if on && !nd.nic.Stalled() {
		nd.stalled = now
	}
	nd.nic.Stall(now, on)
	nd.host.look()
}

// SetIntake implements faults.HostTarget.
func (t target) SetIntake(now vtime.Time, node int, rate int64) {
	nd := &t.n.nodes[node]
	nd.nic.SetIntake(now, rate)
	nd.host.look()
}

// Waited implements faults.HostTarget.
func (t target) Waited(node int) uint64 { return t.n.nodes[node].nic.Stats().Waited }
