// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"
	"sync/atomic"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// qp is a queue pair of a program.
type qp struct {
	client   *client
	qp       *virtrnic.QP
	mem      []byte // of both rings
	scq, rcq *cq
	sq       ring
	rq       receives
	srq      *srq          // nil: none
	sent     atomic.Uint64 // sends taken; changed with the loop's lock
	resets   int           // with the loop's lock
	groups   []uint32      // of datagrams
	reliable bool          // of type RC
	group    *group        // that switches replicate in; with the loop's lock
	waits    atomic.Bool   // the group is not registered yet
	fenced   bool          // it is in client.fenced; with the loop's lock
	looked   uint64        // head of the receive ring at the last look; the worker's
	stalled  atomic.Bool   // the NIC's queue is full
	bad      atomic.Bool   // an entry was nonsense, or the queue pair is destroyed: nothing is taken any more
	dead     atomic.Bool   // the NIC has been restarted: posted requests are flushed
}

// receives is a ring of receives: a queue pair's own, or one that several share.
type receives struct {
	ring
	taken uint64 // with the loop's lock
	recv  recv
}

// take posts the entries in the ring to a queue pair, or else to a shared queue. It returns an error if an
// entry is not one that the library writes. It is called with the loop's lock.
func (r *receives) take(now vtime.Time, nic *virtrnic.NIC, q *virtrnic.QP, s *virtrnic.SRQ) error {
	var b [recvLen]byte
	for n := r.waiting(r.taken); n > 0; n-- {
		copy(b[:], r.entry(r.taken))
		err := r.recv.decode(&b)
		switch {
		case err != nil:
		case q != nil:
			err = nic.PostRecv(now, q, r.recv.wr)
		default:
			err = nic.PostSRQRecv(s, r.recv.wr)
		}
		if errors.Is(err, virtrnic.ErrNoMem) {
			break
		}
		if err != nil {
			return err
		}
		r.taken++
	}
	return nil
}

// giveBack lets the program post in place of requests that the NIC has completed. If places were given back when the NIC takes a
// request, a queue could hold twice its depth. It is called with the loop's lock.
func (q *qp) giveBack() {
	if q.bad.Load() {
		return
	}
	q.sq.giveBack(q.sent.Load() - uint64(q.qp.Outstanding()))
	q.rq.giveBack(q.rq.taken - uint64(q.qp.Posted()))
}

// takeReceives posts the receives that wait in the ring, and those in the ring that the queue pair shares. It is
// called with the loop's lock.
func (q *qp) takeReceives(now vtime.Time) {
	if q.bad.Load() {
		return
	}
	if q.srq != nil {
		q.srq.takeReceives(now)
	}
	if q.rq.take(now, q.client.s.nic, q.qp, nil) != nil {
		q.fail(now)
	}
}

// fail ends a queue pair whose program posts entries that its library would have refused.
func (q *qp) fail(now vtime.Time) {
	q.bad.Store(true)
	if q.qp.State() != virtrnic.StateReset {
		_ = q.client.s.nic.ModifyQP(now, q.qp, virtrnic.QPAttr{State: virtrnic.StateErr}, virtrnic.AttrState) // any state but RESET may go there
	}
}

// forget drops the entries in the rings, as going to RESET does.
func (q *qp) forget() {
	q.resets++
	if n := q.sq.waiting(q.sent.Load()); n > 0 {
		q.sent.Add(n)
	}
	q.rq.taken += q.rq.waiting(q.rq.taken)
	q.sq.setTail(q.sent.Load())
	q.rq.setTail(q.rq.taken)
	q.stalled.Store(false)
}
