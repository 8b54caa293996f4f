package faults

import (
	"github.com/mcastlab/mcastlab/topo"
	"github.com/mcastlab/mcastlab/vtime"
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

// Target is what a driver lets faults do. A part that a driver has nothing of is nil: an
// agent has the part of a switch or that of a host, a controller only that of the control
// plane. Calls come from within Add, Remove and the calls that were asked for, and are
// about the driver's own nodes only, but for SetRoutes.
type Target struct {
	Clock    Clock
	Links    LinkTarget
	Switches SwitchTarget
	Hosts    HostTarget
	Control  ControlTarget
}

// Clock makes calls when they are due.
type Clock interface {
	// At arranges for a call at an instant, or at once if that has passed.
	At(at vtime.Time, keep Keep, f func(now vtime.Time))
}

// LinkTarget is what faults do to ports, and to nodes of any kind.
type LinkTarget interface {
	// SetFault puts a fault on the direction of a link that leaves the port; nil takes it away.
	SetFault(from topo.End, l Link)
	// SetCarrier tells the node at a port whether its link is there.
	SetCarrier(now vtime.Time, at topo.End, up bool)
	// SetRate makes a port's transmitter send at bits per second.
	SetRate(now vtime.Time, at topo.End, rate int64)
	// Sent returns how many frames a port has sent.
	Sent(at topo.End) uint64
	// Restart makes a node lose all it knows and holds; lost is how many frames that were.
	// On a host the programs end.
	Restart(now vtime.Time, node int) (lost int)
	// EndAgent does the same to the process that is the node, which is started and configured
	// anew: what faults say of it afterwards, among it that its links are down, holds for the
	// new one.
	EndAgent(now vtime.Time, node int) (lost int)
}

// SwitchTarget is what faults do to switches.
type SwitchTarget interface {
	// SetRoutes gives all switches the routes without the links that are down.
	SetRoutes(now vtime.Time, down []int)
	// WipeGroups makes a switch forget its groups and returns how many it had.
	WipeGroups(now vtime.Time, node int) (groups int)
	// LimitGroups bounds the groups of a switch; -1: it is what it was configured with.
	LimitGroups(now vtime.Time, node int, room int)
	// Refused returns how many registrations a switch has refused.
	Refused(node int) uint64
}

// HostTarget is what faults do to hosts.
type HostTarget interface {
	// Pause makes a host send a PFC frame.
	Pause(now vtime.Time, node int, classes uint8, quanta uint16)
	// Stall stops a host's adapter, or lets it go on.
	Stall(now vtime.Time, node int, on bool)
	// SetIntake bounds the rate at which a host takes what arrives; 0: no bound.
	SetIntake(now vtime.Time, node int, rate int64)
	// Waited returns how many frames have waited at a host that was stalled or slow.
	Waited(node int) uint64
}

// ControlTarget is what faults do to the control plane.
type ControlTarget interface {
	// SetControl says which controllers are crashed, and in which directions nothing gets
	// through between them.
	SetControl(now vtime.Time, crashed []string, cut []Way)
	// HeldBack returns how often something could not be sent at once for a cut that begins at
	// one of these controllers.
	HeldBack(from []Way) uint64
}
