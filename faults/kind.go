package faults

import (
	"slices"

	"github.com/mcastlab/mcastlab/topo"
	"github.com/mcastlab/mcastlab/vtime"
)

// PauseQuantaMax is the longest pause one PFC frame asks for.
const PauseQuantaMax = 0xffff

// LabPrefix begins the ids of the faults of a lab file; those that are added by hand begin
// otherwise. Streams of random numbers are named without it.
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

// kinds are all kinds, in the order of the docs.
var kinds = []Kind{
	KindLoss, KindCorrupt, KindTruncate, KindDuplicate, KindReorder, KindDelay, KindRateCut, KindLinkDown,
	KindPause, KindPauseStorm, KindCrash, KindAgentCrash, KindRestart, KindWipe, KindRoom, KindStall, KindSlowReceiver,
	KindControlPartition, KindControllerCrash,
}

// Kinds returns all kinds.
func Kinds() []Kind { return slices.Clone(kinds) }

// OfFrames reports whether the kind is one that happens to single frames at the end of a link.
func (k Kind) OfFrames() bool { return slices.Index(kinds, k) <= slices.Index(kinds, KindDelay) }

// OfLinks reports whether the kind concerns links, and not nodes.
func (k Kind) OfLinks() bool { return slices.Index(kinds, k) <= slices.Index(kinds, KindLinkDown) }

// OfControl reports whether the kind concerns the lab's controllers, which a simulation has none
// of.
func (k Kind) OfControl() bool { return k == KindControlPartition || k == KindControllerCrash }

// Kills reports whether the kind's nodes are dead while it is on.
func (k Kind) Kills() bool { return k == KindCrash || k == KindAgentCrash }

// Lasts reports whether the kind has a duration; restart and wipe-mft happen and are over.
func (k Kind) Lasts() bool { return k != KindRestart && k != KindWipe }

// Spec is one fault of a timeline, with the links or nodes that it concerns.
type Spec struct {
	ID   string // names it, and its streams of random numbers
	Kind Kind
	Text string // as a lab file says it
	Window

	// Ends are, for kinds of frames, the ports at whose far end they are hit; each direction
	// of a link has its own Impairment, made like Frames.
	Ends   []topo.End
	Frames Impairment
	Links  []int // for other kinds of links
	Nodes  []int // for kinds of nodes

	Rate     int64          // bit/s: of rate-cut and slow-receiver
	Priority uint8          // of pause and pause-storm
	Gap      vtime.Duration // between the pause frames of a storm
	Room     int            // groups, of mft-full

	Controllers []string // for kinds of the control plane
	Cut         []Way    // of control-partition
}

// Way is one direction between two controllers.
type Way struct{ From, To string }

// Where names the links or nodes concerned.
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

// Status is a fault as it is applied.
type Status struct {
	ID      string
	Kind    Kind
	Text    string
	On      bool // at this moment
	Over    bool // it never comes again
	Seen    uint64
	Hit     uint64
	Applied []string // ports at whose arrivals it looks, or nodes
}
