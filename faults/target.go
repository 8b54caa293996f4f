// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// Keep decides whether a pending call of a timeline keeps a run from ending. It matters to drivers that
// stop when no event is left.
type Keep uint8

// Values of Keep, from the weakest to the strongest.
const (
	KeepNot    Keep = iota // the call begins a fault, for which no program waits
	KeepWhile              // the call ends a fault: the run continues while programs run or frames wait
	KeepAlways             // the run continues until the call is made
)

// Target is the driver's side of a timeline: the operations that apply faults. A part for which
// a driver has no nodes is nil: an agent has the part of a switch or that of a host, and a
// controller has that of the control plane only. The timeline calls a Target from within Add,
// Remove and the calls of its Clock. Except for SetRoutes, all calls are about nodes that the
// driver owns (Config.Owns).
type Target struct {
	Clock    Clock
	Links    LinkTarget
	Switches SwitchTarget
	Hosts    HostTarget
	Control  ControlTarget
}

// Clock makes calls at instants of lab time.
type Clock interface {
	// At arranges for f to be called at an instant, or at once if the instant has passed.
	At(at vtime.Time, keep Keep, f func(now vtime.Time))
}

// LinkTarget applies faults to ports and to nodes of any kind.
type LinkTarget interface {
	// SetFault sets the fault of the direction of a link that leaves the port. nil removes it.
	SetFault(from topo.End, l Link)
	// SetCarrier sets the carrier of a node's port: up or down.
	SetCarrier(now vtime.Time, at topo.End, up bool)
	// SetRate sets the rate of a port's transmitter, in bit/s.
	SetRate(now vtime.Time, at topo.End, rate int64)
	// Arrived returns the number of frames that have arrived at a port.
	Arrived(at topo.End) uint64
	// Restart makes a node lose its state and its queued frames, and returns the number of those
	// frames. On a host the programs end.
	Restart(now vtime.Time, node int) (lost int)
	// EndAgent does the same by ending the node's process, which is then started and configured
	// again. Later calls for the node, such as SetCarrier, apply to the new process.
	EndAgent(now vtime.Time, node int) (lost int)
}

// SwitchTarget applies faults to switches.
type SwitchTarget interface {
	// SetRoutes gives all switches the routes that avoid the links that are down.
	SetRoutes(now vtime.Time, down []int)
	// WipeGroups makes a switch lose its groups and returns their number.
	WipeGroups(now vtime.Time, node int) (groups int)
	// LimitGroups bounds the number of groups of a switch. -1 restores the configured bound.
	LimitGroups(now vtime.Time, node int, room int)
	// Refused returns the number of registrations that a switch has refused.
	Refused(node int) uint64
}

// HostTarget applies faults to hosts.
type HostTarget interface {
	// Pause makes a host send a PFC frame. classes is the bit mask of the paused priorities, and
	// quanta the time to pause in units of 512 bit times, or 0 to resume.
	Pause(now vtime.Time, node int, classes uint8, quanta uint16)
	// Stall stops a host's NIC, or lets it continue.
	Stall(now vtime.Time, node int, on bool)
	// SetIntake bounds the rate at which a host processes arriving frames, in bit/s. 0 removes the
	// bound.
	SetIntake(now vtime.Time, node int, rate int64)
	// Waited returns the number of frames that have waited at a stalled or slow host.
	Waited(node int) uint64
}

// ControlTarget applies faults to the control plane.
type ControlTarget interface {
	// SetControl sets the controllers that are crashed and the directions in which no message
	// between controllers arrives.
	SetControl(now vtime.Time, crashed []string, cut []Way)
	// HeldBack returns the number of messages that could not be sent at once because of cuts. It
	// is 0 unless one of the given directions begins at the driver's controller.
	HeldBack(from []Way) uint64
}
