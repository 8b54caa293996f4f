// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// Restart removes from the NIC all objects of programs, as its restart would (virtrnic.NIC.Restart, before which
// it has to be called, with the loop's lock). A program sees the signs of a device that has failed:
// IBV_EVENT_DEVICE_FATAL, its posted requests flushed, and EIO for its calls. Devices opened later work.
func (s *Server) Restart(now vtime.Time) {
	s.removeEnds()
	s.joins.Restart()          // a host that crashes sends no leave
	for c := range s.clients { // independent of each other
		c.wreck(now)
	}
}

func (c *client) wreck(now vtime.Time) {
	if c.wrecked {
		return
	}
	for _, q := range c.qps { // independent of each other
		q.takeReceives(now)
	}
	c.breakDown(now)
	c.wrecked = true
	c.collect(now)
	for _, q := range c.qps { // independent of each other
		q.dead.Store(true)
	}
	c.takeBack(now)
	c.work.wake()
}

func (c *client) isWrecked() (wrecked bool) {
	c.s.call(func(vtime.Time) { wrecked = c.wrecked })
	return wrecked
}

// doWrecked answers a program whose NIC has been restarted. It may release its objects.
func (c *client) doWrecked(o op, m any) []byte {
	switch m := m.(type) {
	case *modifyQP:
		if s := virtrnic.QPState(m.Attr.State); s == virtrnic.StateErr || s == virtrnic.StateReset {
			return encode(reply{})
		}
	case *mcast:
		if o == opDetachMcast {
			return encode(reply{})
		}
	case *byID:
		switch o {
		case opQueryQP:
			s := uint32(virtrnic.StateErr)
			return encode(queried{Attr: attr{State: s, CurState: s}})
		case opDestroyQP:
			c.ask(func() { c.work.dropNumber(wire.QPN(m.ID)) })
			return encode(reply{})
		case opDeallocPD, opDeregMR, opDestroyChannel, opDestroyCQ, opDestroySRQ, opDestroyAH:
			c.ask(func() {}) // nothing is written any more to memory that the program frees now
			return encode(reply{})
		}
	}
	return encode(reply{Status: uint32(unix.EIO)})
}

// dropNumber takes a queue pair from the worker's list by its number.
func (w *worker) dropNumber(n wire.QPN) {
	for _, q := range w.qps {
		if q.qp.Num() == n {
			w.drop(q)
			return
		}
	}
}

// flush ends the entries in the rings of a queue pair that the NIC does not have any more. It is the
// worker's.
func (q *qp) flush() {
	var now vtime.Time
	q.client.s.call(func(at vtime.Time) { now = at })
	q.looked = q.rq.head()
	for n := q.sq.waiting(q.sent.Load()); n > 0 && q.scq.flushed(q, q.sq.entry(q.sent.Load()), now); n-- {
		q.sq.setTail(q.sent.Add(1))
	}
	for n := q.rq.waiting(q.rq.taken); n > 0 && q.rcq.flushed(q, q.rq.entry(q.rq.taken), now); n-- {
		q.rq.taken++
		q.rq.setTail(q.rq.taken)
	}
}

// flushed completes a request by its entry with WCWRFlushErr, and reports whether there was room for that. If there
// is none, the program rings when it has made some.
func (q *cq) flushed(p *qp, entry []byte, now vtime.Time) bool {
	if q.written-q.ring.tail() >= q.ring.entries {
		q.ring.starve()
		if q.written-q.ring.tail() >= q.ring.entries {
			return false
		}
	}
	q.write([]virtrnic.WC{{WRID: binary.LittleEndian.Uint64(entry), Status: virtrnic.WCWRFlushErr, QPN: p.qp.Num()}}, true, now)
	return true
}
