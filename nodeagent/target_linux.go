// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// target is the node as faults see it, whether host or switch (faults.LinkTarget). The loop
// calls it under its lock.
type target struct{ n *node }

// At implements faults.Clock.
func (t target) At(at vtime.Time, _ faults.Keep, f func(now vtime.Time)) { t.n.loop.At(at, f) }

// SetFault implements faults.LinkTarget.
func (t target) SetFault(from topo.End, l faults.Link) {
	t.n.loop.SetFault(t.n.graph.Peer(from.Node, from.Port).Port, l)
}

// SetCarrier implements faults.LinkTarget.
func (t target) SetCarrier(now vtime.Time, at topo.End, up bool) {
	if t.n.sw != nil {
		t.n.sw.SetCarrier(now, at.Port, up)
	} else {
		t.n.nic.SetCarrier(now, up)
	}
}

// SetRate implements faults.LinkTarget.
func (t target) SetRate(now vtime.Time, at topo.End, rate int64) {
	t.n.machine().Settle(now, at.Port)
	t.n.loop.SetLinkRate(at.Port, rate)
}

// Arrived implements faults.LinkTarget.
func (t target) Arrived(at topo.End) uint64 {
	arrived := t.n.loop.Arrived(at.Port)
	if b := t.n.before; b != nil {
		arrived += b.Ports[at.Port].Received
	}
	return arrived
}

// Restart implements faults.LinkTarget.
func (t target) Restart(now vtime.Time, _ int) (lost int) {
	n := t.n
	if n.sw != nil {
		return n.sw.Restart(now)
	}
	n.agent.Restart()
	if n.programs != nil {
		n.programs.Restart(now)
	}
	lost = n.nic.Restart(now)
	select {
	case n.crashed <- fmt.Errorf(nodeapi.Crashed+"%s at %v", n.name, now):
	default: // it has not been noticed yet
	}
	return lost // the job, if there is one, unwinds its own tasks and no later one's
}

// switchTarget is a switch as faults see it.
type switchTarget struct{ n *node }

// SetRoutes implements faults.SwitchTarget.
func (t switchTarget) SetRoutes(_ vtime.Time, down []int) { t.n.routes.want(down) }

// WipeGroups implements faults.SwitchTarget.
func (t switchTarget) WipeGroups(vtime.Time, int) int { return t.n.sw.WipeGroups() }

// LimitGroups implements faults.SwitchTarget.
func (t switchTarget) LimitGroups(_ vtime.Time, _ int, room int) { t.n.sw.LimitGroups(room) }

// Refused implements faults.SwitchTarget.
func (t switchTarget) Refused(int) uint64 {
	return t.n.sw.Stats().Refused + t.n.countedBefore("refused")
}

// hostTarget is a host as faults see it.
type hostTarget struct{ n *node }

// Pause implements faults.HostTarget.
func (t hostTarget) Pause(now vtime.Time, _ int, classes uint8, quanta uint16) {
	t.n.nic.SendPause(now, classes, quanta)
}

// Stall implements faults.HostTarget.
func (t hostTarget) Stall(now vtime.Time, _ int, on bool) { t.n.nic.Stall(now, on) }

// SetIntake implements faults.HostTarget.
func (t hostTarget) SetIntake(now vtime.Time, _ int, rate int64) { t.n.nic.SetIntake(now, rate) }

// Waited implements faults.HostTarget.
func (t hostTarget) Waited(int) uint64 { return t.n.nic.Stats().Waited + t.n.countedBefore("waited") }

// countedBefore returns a counter of the processes before this one.
func (n *node) countedBefore(name string) uint64 {
	if n.before == nil {
		return 0
	}
	return n.before.Counts[name]
}
