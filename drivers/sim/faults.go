// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/window"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/rank/outofband"
)

// ErrCrashed is wrapped by the error of a rank whose host crashed.
var ErrCrashed = errors.New("host crashed")

// NewTimeline returns a timeline that applies the given faults to the simulation. reconverge is the time
// from the failure of a link to the moment at which all switches route around it.
func (n *Net) NewTimeline(reconverge vtime.Duration, specs ...faults.Spec) *faults.Timeline {
	if n.linkStats == nil {
		n.linkStats = make([]faults.Counts, n.links.Len())
	}
	for i := range n.own {
		n.notePauseSpan(i)
	}
	t := target{n}
	timeline := faults.NewTimeline(faults.Config{
		Graph: n.graph, Seed: n.cfg.Seed, Reconverge: reconverge, Latency: n.cfg.Latency, Owns: n.local,
	}, faults.Target{Clock: t, Links: t, Switches: t, Hosts: t, Control: n.Control})
	for _, s := range specs {
		timeline.Add(n.now, s)
	}
	return timeline
}

// LinkStats returns the counts of the faults that acted on frames of the transmitter with the
// given number. All counts are zero in a simulation without a timeline.
func (n *Net) LinkStats(port int) (s faults.Counts) {
	if at, ok := n.linkOf(port); ok && n.linkStats != nil {
		s = n.linkStats[at]
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
	n.await(timed{at: at, f: f, fault: true, keep: keep})
}

// await schedules a call of the timeline.
func (n *Net) await(call timed) {
	n.calls[call.keep]++
	n.callAt(call)
}

// makeCall makes a call of the timeline that is due, or puts it off. before is the instant of the event
// before it.
func (n *Net) makeCall(call timed, before vtime.Time) {
	v := n.judge(window.Due{At: n.now, Keep: call.keep, Ends: n.calls[faults.KeepWhile], Always: n.calls[faults.KeepAlways], LastEnd: n.lastEnd})
	n.calls[call.keep]--
	switch v {
	case window.Make:
		n.applying = true
		call.f(n.now)
		n.applying = false
		n.settled()
		return
	case window.Halt:
		n.stuck = true
		n.happens()
	case window.PutOff:
		n.now = before // nothing has happened
	}
	n.postponed = append(n.postponed, call)
}

// judgeWhole decides on a call of the timeline that is due in a simulation of the whole lab.
func (n *Net) judgeWhole(due window.Due) window.Verdict {
	c := n.tasksCensus()
	if n.reference != nil || n.decider.Busy(due, &c) {
		return window.Make
	}
	n.nodesCensus(&c)
	return n.decider.Decide(due, &c)
}

// resume schedules the calls of the timeline that have been put off.
func (n *Net) resume() {
	n.stuck = false
	postponed := n.postponed
	n.postponed = nil
	for _, call := range postponed {
		n.await(call)
	}
}

// SetFault implements faults.LinkTarget.
func (t target) SetFault(from topo.End, l faults.Link) { t.n.SetFault(t.id(from), l) }

// SetCarrier implements faults.LinkTarget.
func (t target) SetCarrier(now vtime.Time, at topo.End, up bool) {
	if t.n.check != nil && !up {
		t.n.check.gap(at)
	}
	if nd := t.n.at(at.Node); nd.sw != nil {
		nd.sw.SetCarrier(now, at.Port, up)
	} else {
		nd.nic.SetCarrier(now, up)
	}
}

// SetRoutes implements faults.SwitchTarget.
func (t target) SetRoutes(now vtime.Time, down []int) {
	n := t.n
	var own []*node // the switches of this part of the lab
	for at := range n.nodes {
		if nd := &n.nodes[at]; nd.sw != nil {
			own = append(own, nd)
		}
	}
	if len(own) == 1 {
		nd := own[0]
		table := n.graph.RoutesAt(int(nd.id), down...)
		nd.sw.SetRoutes(now, n.cfg.FIB(int(nd.id), &table, down...))
		return
	}
	for _, nd := range own {
		nd.sw.SetRoutes(now, n.cfg.FIB(int(nd.id), &n.cfg.routes.without(down)[int(nd.id)-n.graph.Hosts], down...))
	}
	if n.place == nil {
		n.cfg.routes.forget()
	}
}

// SetRate implements faults.LinkTarget.
func (t target) SetRate(now vtime.Time, at topo.End, rate int64) {
	t.n.at(at.Node).m.Settle(now, at.Port)
	place := t.n.startOf(t.id(at))
	t.n.links.At(place).SetRate(rate)
	t.n.notePauseSpan(place)
}

// notePauseSpan raises pauseMax to the longest time from the sending of a pause frame by a port
// to the expiry of the pause at the far end.
func (n *Net) notePauseSpan(place int) {
	l := n.links.At(place)
	n.pauseMax = max(n.pauseMax, l.Delay+l.Serialize(faults.PauseQuantaMax*wire.PauseQuantumBits/8+2*pauseBehind))
}

// pauseBehind is more than the bytes that the largest frame occupies on a link. A pause frame
// may have to wait for such a frame.
const pauseBehind = 1 << 14

// Arrived implements faults.LinkTarget.
func (t target) Arrived(at topo.End) uint64 {
	return t.n.Link(t.id(t.n.graph.Peer(at.Node, at.Port))).Frames
}

// Pause implements faults.HostTarget.
func (t target) Pause(_ vtime.Time, node int, classes uint8, quanta uint16) {
	t.n.Pause(node, classes, quanta)
}

// Restart implements faults.LinkTarget.
func (t target) Restart(now vtime.Time, node int) (lost int) {
	n := t.n
	nd := n.at(node)
	if nd.sw != nil {
		n.forgotten(node)
		return nd.sw.Restart(now)
	}
	h := nd.host
	for _, k := range h.tasks {
		if k.done {
			continue
		}
		if k.rank >= 0 {
			k.job.errs[k.rank] = fmt.Errorf("%w: %s at %v", ErrCrashed, n.graph.Nodes[node].Name, now)
			if n.channel != nil {
				n.channel.send(node, k.rank, &outofband.Request{Kind: outofband.Lose})
			} else {
				k.job.resume(k.job.board.Lose(k.rank))
			}
		}
		k.stop()
		k.done = true // stop does not set it for a task that has not begun
	}
	_, led := h.agent.Groups()
	n.orphans += led
	h.agent.Restart()
	if f, ok := nd.m.(interface{ Restart(now vtime.Time) }); ok { // Config.Front: programs no longer have their objects
		f.Restart(now)
	}
	return nd.nic.Restart(now)
}

// EndAgent implements faults.LinkTarget.
func (t target) EndAgent(now vtime.Time, node int) (lost int) { return t.Restart(now, node) }

// WipeGroups implements faults.SwitchTarget.
func (t target) WipeGroups(_ vtime.Time, node int) int {
	t.n.forgotten(node)
	return t.n.at(node).sw.WipeGroups()
}

// LimitGroups implements faults.SwitchTarget.
func (t target) LimitGroups(_ vtime.Time, node int, room int) {
	t.n.at(node).sw.LimitGroups(room)
}

// Refused implements faults.SwitchTarget.
func (t target) Refused(node int) uint64 { return t.n.at(node).sw.Stats().Refused }

// Stall implements faults.HostTarget.
func (t target) Stall(now vtime.Time, node int, on bool) {
	nd := t.n.at(node)
	if on && !nd.nic.Stalled() {
		nd.stalled = now
	}
	nd.nic.Stall(now, on)
	nd.host.look()
}

// SetIntake implements faults.HostTarget.
func (t target) SetIntake(now vtime.Time, node int, rate int64) {
	nd := t.n.at(node)
	nd.nic.SetIntake(now, rate)
	nd.host.look()
}

// Waited implements faults.HostTarget.
func (t target) Waited(node int) uint64 { return t.n.at(node).nic.Stats().Waited }
