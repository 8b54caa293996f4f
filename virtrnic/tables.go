// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/wire"
)

// tables, with the NIC's qps and mrs, finds the NIC's objects by their numbers and keys. Objects may be created and destroyed
// without limit, so numbers, keys and timer slots are reused: numbers and keys as late as possible.
//
// Invariant: a queue pair that exists is in qps at its index and in slots at its slot, and
// at no other place of them. Invariant: holes is the number of nil entries of slots.
type tables struct {
	freedQPNs   queue.FIFO[wire.QPN] // the one that was freed first goes first
	slots       []*QP                // by timer slot, in the order in which they were made; nil: destroyed
	holes       int                  // slots that are nil
	freedKeys   queue.FIFO[uint32]
	made        Made
	incarnation uint32 // restarts: objects made before are not the NIC's
}

// Made counts the objects that verbs have created and not destroyed.
type Made struct {
	QPs, MRs, CQs, PDs, AHs, SRQs int
	Attached                      int // queue pairs attached to multicast groups, over all groups
}

// Made returns the number of objects of each kind.
func (n *NIC) Made() Made {
	m := n.made
	for _, members := range n.mcast { // a sum
		m.Attached += len(members)
	}
	return m
}

// ArmedTimers returns the number of armed timers.
func (n *NIC) ArmedTimers() int { return n.timers.Armed() }

// freeQPN returns the number of the next queue pair. Old packets may be under
// way to a number that was freed, so it comes back as late as possible: first all MaxQPs
// indices are used, then the one that was freed first, each time with a number that is higher
// by MaxQPs. A number comes back after 255 uses of its index, which are at least 255 queue
// pairs of this NIC, and as many as 255 * MaxQPs if few exist at a time.
func (n *NIC) freeQPN() (num wire.QPN, ok bool) {
	if index := len(n.qps); index < MaxQPs {
		n.qps = append(n.qps, nil)
		return firstQPN + wire.QPN(index), true
	}
	if n.freedQPNs.Len() == 0 {
		return 0, false
	}
	num = n.freedQPNs.Pop() + MaxQPs
	if num >= firstQPN+qpnUses*MaxQPs {
		num = firstQPN + wire.QPN(indexOf(num))
	}
	return num, true
}

// qpnUses is the number of QP numbers of an index: they end below 2^24 - 1, which is for multicast.
const qpnUses = 255

func indexOf(num wire.QPN) int { return int(num-firstQPN) & (MaxQPs - 1) }

// qp returns the queue pair with the given number, or nil.
func (n *NIC) qp(num wire.QPN) *QP {
	i := indexOf(num)
	if i >= len(n.qps) {
		return nil
	}
	if q := n.qps[i]; q != nil && q.num == num {
		return q
	}
	return nil
}

// enter puts a queue pair into the tables.
func (n *NIC) enter(q *QP) {
	n.qps[indexOf(q.num)] = q
	q.slot = int32(len(n.slots))
	n.slots = append(n.slots, q)
	n.timers.Grow(timerQPs + 2*len(n.slots))
	n.made.QPs++
	q.pd.users++
	q.sendCQ.users++
	q.recvCQ.users++
}

// remove takes a queue pair out of the tables. It must be in RESET.
func (n *NIC) remove(q *QP) {
	n.qps[indexOf(q.num)] = nil
	n.freedQPNs.Push(q.num)
	n.slots[q.slot] = nil
	n.disown(q)
	n.made.QPs--
	q.pd.users--
	q.sendCQ.users--
	q.recvCQ.users--
	if n.holes++; n.holes > slotHoles && 2*n.holes > len(n.slots) {
		n.compact()
	}
}

// slotHoles is the number of timer slots that may be unused before they are compacted.
const slotHoles = 64

// compact removes the holes among the timer slots. It keeps the order of the slots, in which
// timers of the same instant fire.
func (n *NIC) compact() {
	to := 0
	for from, q := range n.slots {
		if q == nil {
			continue
		}
		if to != from {
			n.timers.Move(q.timerRTO(), timerQPs+2*to)
			n.timers.Move(q.timerRNR(), timerQPs+2*to+1)
			n.slots[to], q.slot = q, int32(to)
		}
		to++
	}
	clear(n.slots[to:])
	n.slots, n.holes = n.slots[:to], 0
	n.timers.Shrink(timerQPs + 2*to)
}

// keysFresh is the number of places of the table that are used before a freed one is used again. Freed
// places are then reused in the order in which they were freed.
const keysFresh = 1 << 16

// freeKey returns the key of the next region. As in rxe it is its place in the table, from 1,
// in the upper 24 bits, and 8 random bits below; when a place is used again those are the
// ones after the last ones, so that a key comes back after 256 uses of its place.
func (n *NIC) freeKey() (key uint32, ok bool) {
	if n.freedKeys.Len() > 0 && len(n.mrs) >= keysFresh {
		old := n.freedKeys.Pop()
		return old&^0xff | (old+1)&0xff, true
	}
	if len(n.mrs)+1 >= int(ChosenKeys>>8) {
		return 0, false
	}
	n.mrs = append(n.mrs, nil)
	return uint32(len(n.mrs))<<8 | uint32(n.keys.Uint64()&0xff), true
}
