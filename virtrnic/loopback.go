// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// A packet to the NIC's own address does not leave it: it waits for its turn at the port and occupies it for as long as any
// other of its size, so that a host's packets to itself and to others share one rate, and it arrives when its last bit has
// passed. It does not cross the link, so that no fault, capture or switch sees it, and a link that is down or slow does not hold
// it back; a pause of its class does, since it stands in that queue. It goes past the receive buffer, which is behind the port.
//
// The fabric returns no copy of a packet to a group. A copy for the NIC's own members (Loopback) arrives at the same instant,
// while the packet itself leaves.

// turned is a frame on its way back.
type turned struct {
	at vtime.Time // when its last bit has passed
	f  *wire.Frame
}

// meets notes that packets may be sent to an address. From the first time that it is the NIC's own, each
// packet is checked.
func (n *NIC) meets(ip uint32) {
	if ip == n.ip {
		n.turns = true
	}
}

// turnBack makes a frame that starts now come back, if it is for the NIC itself. It reports whether it is.
func (n *NIC) turnBack(start vtime.Time, f *wire.Frame) bool {
	if f.Kind() != wire.KindRoCE {
		return false
	}
	if dst := f.DstIP(); dst != n.ip {
		if wire.IsMulticast(dst) && n.turnsBack(dst, f) {
			n.stats.Made++
			n.stats.Loopback++
			n.back.Push(turned{start.Add(n.port.Serialize(f.WireLen())), n.pool.Clone(f)})
			n.armBack()
		}
		return false
	}
	at := start.Add(n.port.Serialize(f.WireLen()))
	n.port.HoldUntil(at)
	n.back.Push(turned{at, f})
	n.armBack()
	n.stats.Loopback++
	return true
}

// turnsBack reports whether a queue pair here receives a packet that the NIC sends to a group.
func (n *NIC) turnsBack(group uint32, f *wire.Frame) bool {
	return f.OpCode().Service() == wire.UD && slices.ContainsFunc(n.mcast[group], func(q *QP) bool { return q.hears(f) })
}

// hears reports whether a queue pair receives a datagram that its own NIC has sent to a group.
func (q *QP) hears(f *wire.Frame) bool {
	return q.loopback == LoopbackAll || q.loopback == LoopbackOthers && f.DETH().SrcQP != q.num
}

// SetReturn has frames to the NIC itself handed to take, which becomes the owner of the frame and gives
// it to HandleReturned then or later. It is for a driver that handles frames before the NIC does.
func (n *NIC) SetReturn(take func(now vtime.Time, f *wire.Frame)) { n.returned = take }

// HandleReturned takes a frame that has come back.
func (n *NIC) HandleReturned(now vtime.Time, f *wire.Frame) {
	n.settleBefore(now)
	n.receive(now, f)
	n.start(now)
}

// takeBack takes the frames that have come back by now.
func (n *NIC) takeBack(now vtime.Time) {
	for n.back.Len() > 0 && n.back.At(0).at <= now {
		if f := n.back.Pop().f; n.returned != nil {
			n.returned(now, f)
		} else {
			n.receive(now, f)
		}
	}
	n.armBack()
}

// armBack sets the timer for the frame that comes back next.
func (n *NIC) armBack() {
	if n.back.Len() > 0 {
		n.timers.Set(timerBack, n.back.At(0).at)
	}
}
