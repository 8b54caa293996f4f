// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// The order of the events of one instant follows from a mask of that instant, so that a period which repeats has
// another order each time. Most of it does not show:
//
//   - Arrivals come before starts, in any order (machine: arrivals, starts, timers).
//   - Nodes affect each other by links only, which take time, so events at two nodes may change places. So may
//     starts at two ports.
//   - A NIC has one port, at which one frame arrives at a time.
//   - Two frames may change places that come to a switch at one instant if they leave by different ports: they share
//     counters, and an account of the buffer that has room for both.
//   - So may acknowledgements of one group for the same packet. Whichever of them comes last, of those that the
//     minimum waits for, moves it, and the group sends its source one acknowledgement (TestTies of package virtswitch).
//   - So may such an acknowledgement and a later packet of its group.
//
// ties finds two frames of which none of this is known.
type ties struct {
	net  *Net
	at   vtime.Time
	all  []tie // at this instant
	free []vtime.Time
	held []int
	why  string
}

// tie is a frame that has arrived at a switch.
type tie struct {
	node  int
	group uint32 // 0: it is not of a group
	ack   bool
	psn   wire.PSN
	ports []int // by which something has left, or waits
	waits bool  // something waits
}

func (t *ties) reset(n *Net) {
	*t = ties{net: n, at: -1, all: t.all[:0], free: t.free, held: t.held}
}

// before records a frame that is about to reach the end of a link.
func (t *ties) before(at vtime.Time, place int, f *wire.Frame) {
	if at != t.at {
		t.at, t.all = at, t.all[:0]
	}
	l := t.net.links.At(place)
	x := tie{node: int(l.Node), ack: f.OpCode() == wire.OpAcknowledge, psn: f.PSN()}
	if ip := f.DstIP(); t.net.graph.Groups.Has(ip) {
		x.group = ip
	}
	t.all = append(t.all, x)
	t.free, t.held = t.free[:0], t.held[:0]
	if sw := t.net.nodes[x.node].sw; sw != nil {
		for p := range sw.Ports() {
			free, held := sw.Touched(p)
			t.free, t.held = append(t.free, free), append(t.held, held)
		}
	}
}

// after records the effects of the frame, and reports whether it might as well have come before or after the others
// of its instant.
func (t *ties) after() bool {
	x := &t.all[len(t.all)-1]
	for p := range t.free {
		if free, held := t.net.nodes[x.node].sw.Touched(p); free != t.free[p] || held != t.held[p] {
			x.ports = append(x.ports, p)
			x.waits = x.waits || held > t.held[p]
		}
	}
	if len(t.free) == 0 {
		return true
	}
	for i := range t.all[:len(t.all)-1] {
		if y := &t.all[i]; y.node == x.node && !commute(x, y) {
			t.why = "two frames at one switch and instant whose order shows"
			return false
		}
	}
	return true
}

// commute reports whether two frames at one switch and instant may change places.
func commute(x, y *tie) bool {
	if x.group != 0 && x.group == y.group {
		switch {
		case x.ack && y.ack:
			return x.psn == y.psn
		case x.ack == y.ack || x.ack && !y.psn.After(x.psn) || y.ack && !x.psn.After(y.psn):
			return false
		}
	}
	for _, p := range x.ports {
		for _, q := range y.ports {
			if p == q {
				return false
			}
		}
	}
	return true
}
