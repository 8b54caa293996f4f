// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Guest is memory of a program outside the NIC's process, which the NIC itself neither reads nor
// writes: that may take long, and fail. Image is read in its place, so the driver updates the bytes
// that a request is going to read before it hands the request to the NIC. Put takes the NIC's writes,
// in order; b is valid during the call.
type Guest struct {
	Image []byte
	Put   func(off uint64, b []byte)
}

// Size implements Memory.
func (m *Guest) Size() uint64 { return uint64(len(m.Image)) }

func (m *Guest) load(p *wire.Pool, f *wire.Frame, off uint64, n int) {
	Bytes(m.Image).load(p, f, off, n)
}

func (m *Guest) store(f *wire.Frame, off uint64) { m.write(f.PayloadBytes(), off, f.PayloadLen()) }

func (m *Guest) read(b []byte, off uint64) { copy(b, m.Image[off:]) }

func (m *Guest) write(b []byte, off uint64, n int) {
	if b == nil {
		b = make([]byte, n)
	}
	m.Put(off, b)
}

// SetFence has the NIC ask before it answers a request of a queue pair's peer whether bytes that it has handed to Guest.Put are still on
// their way to memory that the answer covers. f returns 0 if none are; else a number, and the driver calls Placed with it, or with a
// greater one, once they are there. An acknowledgement, a NAK, or the answer to an atomic waits for that: a peer that has it may notify
// the program by another way. Numbers grow.
func (n *NIC) SetFence(f func(q *QP) uint64) { n.fence = f }

// fenced returns the number for which an answer that is made now has to wait, or 0.
func (n *NIC) fenced(q *QP) uint64 {
	if n.fence == nil {
		return 0
	}
	return n.fence(q)
}

// Placed sends the answers of a queue pair that wait for numbers up to seq, and reports whether others wait for greater ones.
func (n *NIC) Placed(now vtime.Time, q *QP, seq uint64) (others bool) {
	n.settleBefore(now)
	r := &q.rq
	acks := true
	for i := range r.out.Len() {
		x := r.out.At(i)
		if x.after <= seq {
			x.after = 0
		}
		others = others || x.after > 0
		acks = acks && x.kind == respondAck && x.syndrome.IsACK() && x.after == 0
	}
	if o := q.order; o != nil && o.owed && acks {
		o.owed = false
		if o.n > 0 && q.receives() {
			r.out = queue.FIFO[response]{} // the report acknowledges as much
			n.report(now, q, r.epsn)
			others = others || o.owed
		}
	}
	n.offer(now, q)
	n.start(now)
	return others
}

// answers reports whether an answer to the peer may leave.
func (r *responder) answers() bool { return r.out.Len() > 0 && r.out.At(0).after == 0 }

// Loads reports whether a request that is posted now would have the NIC read local memory: the verb takes it, and all of its pieces may
// be read. So a driver need not update memory that is not going to be read.
func (n *NIC) Loads(q *QP, wr *SendWR) bool {
	length := total(wr.SGE, wr.SGL)
	switch {
	case wr.Flags&SendInline != 0, wr.Opcode >= WRRDMARead && wr.Opcode <= WRAtomicFetchAdd, length == 0, q.state == StateErr:
		return false
	case q.checkSend(wr, length) != nil, q.service == wire.UD && length > uint64(q.mtu):
		return false
	}
	e, l := normalize(wr.SGE, wr.SGL)
	return n.reachable(q.pd, e, l, 0)
}

// LoadsFor reports whether a READ or an atomic of a peer may have the NIC read memory: n bytes at va of the region with the key.
func (n *NIC) LoadsFor(f *wire.Frame, key uint32, va, length uint64) bool {
	q := n.qp(f.DestQP())
	need := AccessRemoteAtomic
	if f.OpCode() == wire.OpReadRequest {
		need = AccessRemoteRead
	}
	return q != nil && q.service == wire.RC && q.receives() && f.SrcIP() == q.attr.AV.DGID && length <= MaxMessage &&
		packetsOf(uint32(length), q.mtu) <= maxOutstanding && q.allows(key, va, uint32(length), need) && f.CheckICRC()
}

// EachLoad calls f with each piece of memory that the NIC may still read for a queue pair: those of requests that have not completed, and
// those of the peer's READs that are being answered.
func (q *QP) EachLoad(f func(SGE)) {
	for i := range q.sq.wqes.Len() {
		w := q.sq.wqes.At(i)
		if w.traits&(isRead|isInline) != 0 {
			continue
		}
		if l := w.sgl(); l != nil {
			for _, e := range l {
				f(e)
			}
		} else {
			f(w.sge)
		}
	}
	for i := range q.rq.out.Len() {
		if x := q.rq.out.At(i); x.kind == respondRead {
			f(SGE{Addr: x.va, Length: x.length, LKey: x.rkey})
		}
	}
}

// InIntake returns the number of frames that wait in the receive buffer.
func (n *NIC) InIntake() int {
	if n.intake == nil {
		return 0
	}
	return n.intake.fifo.Len()
}
