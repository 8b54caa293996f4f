// SPDX-License-Identifier: Apache-2.0

package virtswitch

import "github.com/mcastlab/mcastlab/core/vtime"

// DropReason is the reason for which a switch dropped a frame.
type DropReason uint8

// Reasons, in the order of Stats.Drops. Names appear in outputs and are not changed.
const (
	DropNoRoute         DropReason = iota // destination not in the forwarding table
	DropTTL                               // time to live used up
	DropBufferFull                        // lossy class, shared buffer full
	DropHeadroom                          // lossless class beyond its headroom: never, if headroom is right
	DropUnknownGroup                      // McstID not registered here
	DropNotInTree                         // port is not a path of the group
	DropNotActive                         // before ACTIVATE or after deletion
	DropStaleSource                       // old source's packet after a source switch
	DropGroupOp                           // operation that makes no sense on a group (READ, atomics, UD)
	DropOwnPath                           // feedback from the side the data comes from
	DropMalformed                         // control packet that does not parse, or announcement of regions that is damaged
	DropForeign                           // neither RoCE, PFC nor MRP
	DropWatchdog                          // the neighbour has paused the class for too long
	DropProcessorFull                     // the feedback processor or the accelerator has no room
	DropRegionsFull                       // a member has acknowledged too few of its announced regions
	DropNoRegion                          // the announcement that a WRITE names has not come here
	DropICRC                              // feedback of a group, or a packet that would change its source, with a wrong invariant CRC
	DropReduceChunk                       // chunk of a reduction that is over, or has not begun
	DropRestart                           // the switch restarted while it held the frame
	DropMembershipsFull                   // report of a group of programs that the table has no room for
	dropReasons
)

var dropNames = [dropReasons]string{
	"no-route", "ttl", "buffer-full", "headroom", "unknown-group", "not-in-tree", "not-active",
	"stale-source", "group-op", "own-path", "malformed", "foreign", "watchdog", "processor-full", "regions-full", "no-region",
	"icrc", "reduce-chunk", "restart", "memberships-full",
}

// String returns the reason's name.
func (r DropReason) String() string { return dropNames[r] }

// DropReasons lists all reasons in order.
func DropReasons() []DropReason {
	all := make([]DropReason, dropReasons)
	for i := range all {
		all[i] = DropReason(i)
	}
	return all
}

// Stats counts the actions of a switch since it was made.
type Stats struct {
	Received  uint64 // frames handed to the switch
	Forwarded uint64 // frames committed to a port, copies and own ones included
	Cloned    uint64 // copies made for groups
	Made      uint64 // frames the switch itself made: pauses, MRP, repeated ACKs
	Absorbed  uint64 // frames that ended here as intended: pauses, MRP, feedback that was merged or held back
	Drops     [dropReasons]uint64

	PausesSent, PausesReceived uint64
	PausesIgnored              uint64 // of those received, those that name a priority without PFC
	AcksIn, AcksOut            uint64 // group feedback that acknowledges
	NaksIn, NaksOut            uint64
	NaksHeld                   uint64 // of those in, held back because the source had been asked for the PSN (CEP-54)
	AcksRepeated               uint64 // CEP-34
	Filtered                   uint64 // copies not made because the path has the packet (CEP-33)
	SourceSwitches             uint64
	Marked                     uint64 // packets marked with congestion experienced
	PauseStorms                uint64 // priorities of ports the watchdog took over
	Refused                    uint64 // registrations that could not be installed
	MembershipsExpired         uint64 // ports of programs' groups removed because no member behind them answered queries
	AgedOut                    uint64 // groups deleted because they were idle
	MRUpdates                  uint64 // regions of members taken from WRITEs that announce them (GLE-8)
	RETHsRewritten             uint64 // WRITEs sent to a member's own region (CEP-25)
	ReducedIn, ReducedOut      uint64 // packets of reductions that gave to a sum; sums sent up or to their member, repeats included
	CNPsIn, CNPsOut            uint64 // group feedback that notifies of congestion; those in and not out were filtered
}

// PortStats counts a port's packets of groups (GEN-11).
type PortStats struct {
	AcksIn, NaksIn, CNPsIn uint64 // group feedback that came by the port
	CNPsFiltered           uint64 // of CNPsIn, those not passed on because another path is more congested (CEP-43)
	Filtered               uint64 // copies not sent by the port because its path has the packet (CEP-33)
}

// Dropped returns the frames dropped for any reason.
func (s *Stats) Dropped() (n uint64) {
	for _, d := range s.Drops {
		n += d
	}
	return n
}

// Holding counts the resources that a switch holds. All fields are 0 in a new switch.
type Holding struct {
	Groups     int // groups that are not deleted
	Buried     int // deleted groups that are remembered
	PortLoad   int // sum of PortLoad over all ports
	MFTBytes   int
	Reductions int
	Multicast  int // entries of the plain multicast table
	Members    int // ports in the groups of programs
	Frames     int
	Buffered   int // bytes of the buffer that are charged
	Timers     int // armed timers, that of queries left out
}

// Holding returns the number of objects that the switch holds.
func (s *Switch) Holding() Holding {
	h := Holding{
		MFTBytes: s.mftUsed, Reductions: s.reductions, Multicast: len(s.multicast), Frames: s.Queued(),
		Buffered: s.buffer.lossyBytes + s.buffer.losslessBytes + s.buffer.used, Timers: s.timers.Armed(),
	}
	if s.snoop != nil {
		h.Members = s.snoop.members
		if s.timers.At(s.timerQuery()) != vtime.Never {
			h.Timers--
		}
	}
	s.groups.each(func(g *group) {
		if g.forgetAt == 0 {
			h.Groups++
		} else {
			h.Buried++
		}
	})
	for _, load := range s.portLoad {
		h.PortLoad += int(load)
	}
	return h
}
