// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// PauseQuantaMax is the longest pause that one PFC frame can ask for, in quanta of 512 bit times
// (IEEE 802.1Qbb).
const PauseQuantaMax = 0xffff

// LabPrefix begins the ids of the faults of a lab file. The ids of faults that are added to a
// running lab begin otherwise. The names of random streams leave the prefix out.
const LabPrefix = "lab-"

// Kind names a kind of fault. The names are keys of the lab file and arguments of the
// command line.
type Kind string

// Kinds of faults.
const (
	KindLoss         Kind = "loss"
	KindCorrupt      Kind = "corrupt"
	KindTruncate     Kind = "truncate"
	KindDuplicate    Kind = "duplicate"
	KindReorder      Kind = "reorder"
	KindDelay        Kind = "delay"
	KindRateCut      Kind = "rate-cut"
	KindLinkDown     Kind = "link-down"
	KindPause        Kind = "pause"
	KindPauseStorm   Kind = "pause-storm"
	KindCrash        Kind = "crash"
	KindAgentCrash   Kind = "agent-crash"
	KindRestart      Kind = "restart"
	KindWipe         Kind = "wipe-mft"
	KindRoom         Kind = "mft-full"
	KindStall        Kind = "nic-stall"
	KindSlowReceiver Kind = "slow-receiver"

	KindControlPartition Kind = "control-partition"
	KindControllerCrash  Kind = "controller-crash"
)

// kinds lists all kinds, in the order of the documentation: kinds of frames, other kinds of links,
// kinds of nodes, kinds of the control plane.
var kinds = []Kind{
	KindLoss, KindCorrupt, KindTruncate, KindDuplicate, KindReorder, KindDelay, KindRateCut, KindLinkDown,
	KindPause, KindPauseStorm, KindCrash, KindAgentCrash, KindRestart, KindWipe, KindRoom, KindStall, KindSlowReceiver,
	KindControlPartition, KindControllerCrash,
}

// Kinds returns all kinds, in the order of the documentation.
func Kinds() []Kind { return slices.Clone(kinds) }

// Known reports whether there is such a kind.
func (k Kind) Known() bool { return slices.Contains(kinds, k) }

// OfFrames reports whether the kind affects single frames at the end of a link.
func (k Kind) OfFrames() bool {
	return k.Known() && slices.Index(kinds, k) <= slices.Index(kinds, KindDelay)
}

// OfLinks reports whether the kind affects links rather than nodes.
func (k Kind) OfLinks() bool {
	return k.Known() && slices.Index(kinds, k) <= slices.Index(kinds, KindLinkDown)
}

// OfControl reports whether the kind affects the lab's controllers. A simulation has none.
func (k Kind) OfControl() bool { return k == KindControlPartition || k == KindControllerCrash }

// Kills reports whether the affected nodes are down while the fault is on.
func (k Kind) Kills() bool { return k == KindCrash || k == KindAgentCrash }

// Lasts reports whether the kind has a duration. Restart and wipe-mft are over at once.
func (k Kind) Lasts() bool { return k != KindRestart && k != KindWipe }

// Spec is one fault of a timeline with the links or nodes that it affects.
type Spec struct {
	ID   string // names the fault and its random streams
	Kind Kind
	Text string // the fault in the syntax of a lab file
	Window

	// Ends is for kinds of frames. It lists the sending ports of the affected directions of
	// links. Frames is the template of the Impairment of each of them.
	Ends   []topo.End
	Frames Impairment
	Links  []int // affected links, for the other kinds of links
	Nodes  []int // affected nodes, for kinds of nodes

	Rate     int64          // rate-cut and slow-receiver: bit/s
	Priority uint8          // pause and pause-storm: priority, 0 to 7
	Gap      vtime.Duration // pause-storm: time between two pause frames
	Room     int            // mft-full: number of groups for which there is room

	Controllers []string // affected controllers, for kinds of the control plane
	Cut         []Way    // control-partition: directions in which messages are lost
}

// Way is one direction between two controllers, each given by its name.
type Way struct{ From, To string }

// Where returns the names of the affected links, nodes or controllers.
func (s *Spec) Where(g *topo.Graph) (names []string) {
	for _, e := range s.Ends {
		far := g.Peer(e.Node, e.Port)
		names = append(names, g.PortName(e)+">"+g.PortName(far))
	}
	for _, l := range s.Links {
		names = append(names, g.LinkName(l))
	}
	for _, n := range s.Nodes {
		names = append(names, g.Nodes[n].Name)
	}
	for _, c := range s.Cut {
		names = append(names, c.From+">"+c.To)
	}
	if s.Kind == KindControllerCrash {
		names = append(names, s.Controllers...)
	}
	return names
}

// Status is the state of a fault that has been added to a timeline.
type Status struct {
	ID      string
	Kind    Kind
	Text    string
	On      bool     // the fault is in force now
	Over    bool     // the fault will not be in force again
	Seen    uint64   // kinds of frames: frames that matched; other kinds: how often the fault began
	Hit     uint64   // frames, registrations or messages that the fault affected
	Applied []string // receiving ports, nodes or controllers of this driver that the fault affects
}
