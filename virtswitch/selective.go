package virtswitch

import "github.com/mcastlab/mcastlab/wire"

// Members that repeat selectively (IRN) keep what comes out of order and say so in each
// acknowledgement (the BTH's selective bit), and their NAKs tell what they have (wire.SACK).
// An aggregated NAK is the smallest PSN missing anywhere, as always, without the latter:
// what one member has another may lack, so the only bitmap true of all is their
// intersection, for which a switch would have to keep one per path, with state that grows
// with the packets under way. The cumulative minimum stays safe whatever members do.
//
// The bit is kept if it is true of every member: then the source knows that nobody drops
// what follows the gap, and repeats the one packet asked for, and the next when it is asked
// for. With a member that goes back N the bit is clear and the source repeats all.

// heard takes note of whether feedback from a path has the bit.
func (g *group) heard(i int, selective bool) {
	if g.path[i].selective != selective {
		g.path[i].selective = selective
		g.agree()
	}
}

// agree finds out whether all members but the source keep what comes out of order. A path
// that has said nothing yet does not.
func (g *group) agree() {
	g.selective = true
	for i := range g.path {
		g.selective = g.selective && (i == g.ackOut || g.path[i].selective)
	}
}

// recall makes the pending NAK that of the path that holds the minimum m, if it lacks the
// packet after that and nobody has asked for it.
func (g *group) recall(m wire.PSN) {
	p := &g.path[g.tri]
	if next := m.Add(1); p.lacks && p.missing == next && !(g.asks && g.asked == next) {
		g.nak, g.hasNak, g.nakSyn = next, true, wire.SyndromePSNSequence
	}
}
