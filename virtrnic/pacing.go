// SPDX-License-Identifier: Apache-2.0

package virtrnic

import "github.com/mcastlab/mcastlab/core/vtime"

// Held queue pairs have something to send but, at their rate, may not send it yet. They need no events and no
// timers: the port's next frame starts at the earliest of their instants, and the driver calls then or later
// (machine: settle the sender). At one instant they go in order of their index.

// hold puts a paced queue pair aside if its next packet may not start at now, and reports
// whether it has. The queue pair counts as queued either way.
func (n *NIC) hold(now vtime.Time, q *QP) bool {
	at := q.cc.notBefore(now)
	if at <= now {
		return false
	}
	n.tx.held.Push(at, uint64(indexOf(q.num)), q)
	return true
}

// unhold puts the queue pairs that may send by now into their rounds.
func (n *NIC) unhold(now vtime.Time) {
	for n.tx.held.Next() <= now {
		q := n.tx.held.Pop().Value
		switch {
		case !q.sq.sendable(q):
			q.queued = false
		case q.cc != nil && n.hold(now, q): // the rate has changed meanwhile
		default:
			n.markReady(now, q.prio)
			n.tx.round[q.prio].Push(q)
		}
	}
}

// Rate returns the rate in bits per second on the wire that congestion control allows
// the queue pair, or 0 without congestion control.
func (q *QP) Rate(now vtime.Time) uint64 {
	if q.cc == nil {
		return 0
	}
	q.cc.catchUp(now)
	return q.cc.rate
}
