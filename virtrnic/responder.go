// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// responder is the receiving half of a queue pair. It accepts packets in order, places their
// payload and acknowledges them. resources.go has READs and atomics.
//
// Invariant: a request is accepted only if its PSN is epsn, which then moves past it, so each is
// accepted once. Invariant: res has at most MaxDestRdAtomic entries.
type responder struct {
	epsn    wire.PSN // expected next
	msn     uint32   // messages completed, 24 bits
	nakSent bool     // the gap at epsn has been reported (or its sender has an RNR NAK)

	turn  bool // an answer goes before the queue pair's next request
	final bool // in ERR: out ends with the NAK of the request that was refused

	// The message being received.
	active bool
	placed bool // the payload of the packet being handled is in memory already (see reorder)
	write  bool
	pieces bool // a SEND looks up its memory as bytes arrive; mr and off are not used
	hasWR  bool // wr is valid
	mr     *MR
	off    uint64 // next byte in mr
	left   uint64 // SEND: bytes free in the buffer; WRITE: bytes still to come
	got    uint64 // bytes received

	out  queue.FIFO[response] // READ and atomic responses to send, and acknowledgements that wait behind them
	wr   recvWQE              // the receive that the message uses; valid while hasWR is set
	past *replays             // READs and atomics remembered for a replay; nil: none
}

// recvQueue is a receive queue, of one queue pair or shared.
type recvQueue struct {
	wqes   queue.FIFO[recvWQE]
	max    uint16 // requests that wqes may have
	pieces uint8  // pieces of memory that each may have
}

// recvWQE is a buffer in a receive queue.
type recvWQE struct {
	wrid   uint64
	sge    SGE     // the memory, if it is one piece
	extras *extras // nil: it is one piece
}

// sgl returns the memory if it is several pieces, else nil.
func (w *recvWQE) sgl() []SGE {
	if w.extras == nil {
		return nil
	}
	return w.extras.sgl
}

// take makes sure that a receive is in use, and reports whether there is one. A receive left from
// a message that was cut off is used again.
func (r *responder) take(q *QP) bool {
	if r.hasWR {
		return true
	}
	if q.recv.wqes.Len() == 0 {
		return false
	}
	r.wr, r.hasWR = q.recv.wqes.Pop(), true
	if q.srq != nil {
		q.srq.taken()
	}
	return true
}

// endReceive completes the receive in use without success.
func (r *responder) endReceive(now vtime.Time, q *QP, status WCStatus) {
	if !r.hasWR {
		return
	}
	r.hasWR = false
	q.nic.release(r.wr.extras)
	q.complete(now, q.recvCQ, WC{WRID: r.wr.wrid, Status: status, QPN: q.num})
}

// PostRecv adds a buffer to the receive queue. In ERR it completes as flushed at once.
func (n *NIC) PostRecv(now vtime.Time, q *QP, wr RecvWR) error {
	switch {
	case q.srq != nil:
		return fmt.Errorf("post receive to queue pair %d: it receives from a shared queue: %w", q.num, ErrInvalid)
	case q.state == StateReset:
		return fmt.Errorf("post receive to queue pair %d in %v: %w", q.num, q.state, ErrState)
	}
	if err := checkRecv(&wr, q.own.pieces); err != nil {
		return fmt.Errorf("post receive to queue pair %d: %w", q.num, err)
	}
	switch {
	case q.state == StateErr:
		q.complete(now, q.recvCQ, WC{WRID: wr.WRID, Status: WCWRFlushErr, QPN: q.num})
		return nil
	case q.recv.wqes.Len() >= int(q.recv.max):
		return fmt.Errorf("post receive to queue pair %d: %d buffers are posted: %w", q.num, q.recv.wqes.Len(), ErrNoMem)
	}
	n.enqueue(q.recv, &wr)
	return nil
}

// checkRecv returns an error if a buffer has more than the given number of pieces, or more than
// MaxMessage bytes.
func checkRecv(wr *RecvWR, pieces uint8) error {
	if k := len(wr.SGL); k > int(pieces) {
		return fmt.Errorf("%d pieces of memory, the queue takes %d: %w", k, pieces, ErrInvalid)
	}
	if k := total(wr.SGE, wr.SGL); k > MaxMessage {
		return fmt.Errorf("%d bytes are more than 2 GiB: %w", k, ErrInvalid)
	}
	return nil
}

// enqueue puts a buffer into a queue.
func (n *NIC) enqueue(r *recvQueue, wr *RecvWR) {
	w := recvWQE{wrid: wr.WRID, sge: wr.SGE}
	if wr.SGL != nil {
		var list []SGE
		if w.sge, list = normalize(wr.SGE, wr.SGL); list != nil {
			w.extras = n.extra()
			w.extras.sgl = append(w.extras.sgl, list...)
		}
	}
	r.wqes.Push(w)
}

// handleRequest handles a request packet of RC: a duplicate, one beyond a gap, or the expected one.
func (r *responder) handleRequest(now vtime.Time, q *QP, f *wire.Frame) {
	n := q.nic
	switch d := f.PSN().Sub(r.epsn); {
	case d < 0:
		n.stats.DuplicateRequest++
		r.duplicate(now, q, f)
		return
	case d > 0:
		n.stats.OutOfSeqRequest++
		if r.nakSent {
			n.drop(now, f, DropSequence)
			return
		}
		r.nakSent = true
		n.stats.Drops[DropSequence]++
		r.respond(now, q, f, r.epsn, wire.SyndromePSNSequence)
		return
	}
	r.nakSent = false
	if op := f.OpCode(); op > wire.OpWriteOnlyImm && isReadOrAtomic(op) {
		r.answer(now, q, f)
		return
	}
	nak, status := r.accept(q, f)
	if nak == 0 && !r.place(q, f) {
		nak, status = r.placeNak()
	}
	if nak != 0 {
		r.refuse(now, q, f, nak, status)
		return
	}
	psn := r.epsn
	r.epsn = psn.Add(1)
	ack := f.AckReq()
	if f.OpCode().Is(wire.OpEnd) {
		r.finish(now, q, f)
	}
	switch {
	case q.state == StateErr:
		n.consume(f) // the completion queue overran
	case ack:
		n.stats.Delivered++
		r.respond(now, q, f, psn, wire.SyndromeACK)
	default:
		n.consume(f)
	}
}

// place stores the payload of an accepted packet, and reports whether it could: the memory may
// have been deregistered since the message began.
func (r *responder) place(q *QP, f *wire.Frame) bool {
	size := uint64(f.PayloadLen())
	if size == 0 {
		return true
	}
	switch {
	case r.pieces:
		if !q.nic.deliver(q.pd, r.wr.sge, r.wr.sgl(), r.got, f) {
			return false
		}
	case r.mr.gone || r.write && r.mr.closed:
		return false
	case !r.placed:
		r.mr.mem.store(f, r.off)
	}
	r.off += size
	r.left -= size
	r.got += size
	q.nic.stats.BytesReceived += size
	return true
}

// placeNak returns the NAK and the completion status for a packet whose memory was deregistered:
// the target of the peer's WRITE, or the buffer of a receive.
func (r *responder) placeNak() (wire.Syndrome, WCStatus) {
	if r.write {
		return wire.SyndromeRemoteAcc, WCLocAccessErr
	}
	return wire.SyndromeRemoteOp, WCLocProtErr
}

// accept checks an in-order packet, and begins a message with it if it is a first packet. It
// returns the NAK to send, or 0, and the status with which the receive in use, if any, completes.
func (r *responder) accept(q *QP, f *wire.Frame) (nak wire.Syndrome, status WCStatus) {
	op := f.OpCode().Operation()
	info := op.Info()
	size := uint64(f.PayloadLen())
	switch {
	case info.Flags&wire.OpBegin != 0 == r.active:
		return wire.SyndromeInvalidReq, WCRemInvReqErr // first within a message, or middle without one
	case r.active && r.write != isWrite(op):
		return wire.SyndromeInvalidReq, WCRemInvReqErr
	case info.Flags&wire.OpFull != 0 && size != uint64(q.mtu),
		info.Flags&wire.OpBegin == 0 && size == 0,
		size > uint64(q.mtu):
		return wire.SyndromeInvalidReq, WCRemInvReqErr
	}
	if info.Flags&wire.OpBegin != 0 {
		if nak, status = r.begin(q, f, info); nak != 0 {
			return nak, status
		}
	}
	if size > r.left {
		return wire.SyndromeInvalidReq, WCLocLenErr // longer than the buffer, or than the RETH said
	}
	if r.write && info.Flags&wire.OpEnd != 0 && size != r.left {
		return wire.SyndromeInvalidReq, WCRemInvReqErr // shorter than the RETH said
	}
	if info.Flags&wire.OpRecvWQE != 0 && r.write {
		// WRITE with immediate consumes a receive at its end.
		if !r.take(q) {
			if info.Flags&wire.OpBegin != 0 {
				r.active = false // the requester sends this packet again, as the first
			}
			return wire.SyndromeRNR, 0
		}
	}
	if info.IETH && !q.nic.invalidate(q.pd, uint32(f.Imm())) {
		return wire.SyndromeRemoteAcc, WCLocAccessErr
	}
	return 0, 0
}

// isWrite reports whether an operation of RC is one of a WRITE.
func isWrite(op wire.OpCode) bool { return op >= wire.OpWriteFirst && op <= wire.OpWriteOnlyImm }

// begin handles the first packet of a message. A SEND needs a receive and a WRITE the right to
// its target. The results are those of accept.
func (r *responder) begin(q *QP, f *wire.Frame, info *wire.OpInfo) (nak wire.Syndrome, status WCStatus) {
	if !isWrite(f.OpCode().Operation()) {
		if !r.take(q) {
			return wire.SyndromeRNR, 0
		}
		r.active, r.write, r.got = true, false, 0
		r.left = total(r.wr.sge, r.wr.sgl())
		// A buffer may be longer than its region, as on rxe: only the bytes that arrive need memory. The common case, one
		// piece within one region, is looked up once for the message.
		if r.mr = nil; r.wr.extras == nil && r.left > 0 {
			r.mr, r.off = q.nic.lookup(q.pd, r.wr.sge.LKey, r.wr.sge.Addr, r.left, AccessLocalWrite)
		}
		r.pieces = r.mr == nil
		return 0, 0
	}
	h := f.RETH()
	switch {
	case q.attr.Access&AccessRemoteWrite == 0:
		return wire.SyndromeInvalidReq, WCRemInvReqErr
	case h.DMALen > MaxMessage:
		return wire.SyndromeInvalidReq, WCRemInvReqErr
	case info.Flags&wire.OpEnd == 0 && uint64(h.DMALen) <= uint64(q.mtu):
		return wire.SyndromeInvalidReq, WCRemInvReqErr // would have been an ONLY
	}
	r.mr = nil
	if h.DMALen > 0 { // a zero-length WRITE does not check its key
		r.mr, r.off = q.nic.lookup(q.pd, h.RKey, h.VA, uint64(h.DMALen), AccessRemoteWrite)
		if r.mr == nil {
			if info.Imm {
				r.take(q) // the receive of the immediate completes with the error
			}
			return wire.SyndromeRemoteAcc, WCLocAccessErr
		}
	}
	r.active, r.write, r.pieces, r.got = true, true, false, 0
	r.left = uint64(h.DMALen)
	return 0, 0
}

// refuse answers a packet that cannot be executed. After an RNR NAK the queue pair continues; any other
// NAK moves it to ERR.
func (r *responder) refuse(now vtime.Time, q *QP, f *wire.Frame, nak wire.Syndrome, status WCStatus) {
	n := q.nic
	n.stats.Delivered++
	if nak == wire.SyndromeRNR {
		// Until the sender repeats this packet the packets after it are dropped silently, as after a
		// sequence NAK.
		r.nakSent = true
		r.respond(now, q, f, r.epsn, nak|wire.Syndrome(q.attr.MinRNRTimer))
		return
	}
	r.respond(now, q, f, r.epsn, nak)
	r.endReceive(now, q, status)
	if nak == wire.SyndromeRemoteAcc {
		n.event(EventQPAccessErr, q)
	} else {
		n.event(EventQPReqErr, q)
	}
	r.final = true
	q.becomeErr(now)
}

// finish completes the message that the packet ends, and its receive if it has one.
func (r *responder) finish(now vtime.Time, q *QP, f *wire.Frame) {
	r.active = false
	r.msn = (r.msn + 1) & 0xffffff
	q.nic.stats.MessagesReceived++
	if q.nic.requests != nil {
		q.tellReceived(now, f, r.got)
	}
	info := f.OpCode().Info()
	if info.Flags&wire.OpRecvCQE == 0 {
		return
	}
	r.hasWR = false
	q.nic.release(r.wr.extras)
	w := WC{WRID: r.wr.wrid, Opcode: WCRecv, ByteLen: uint32(r.got), QPN: q.num}
	if r.write {
		w.Opcode = WCRecvRDMAWithImm
	}
	switch {
	case info.Imm:
		w.WithImm, w.Imm = true, uint32(f.Imm())
	case info.IETH:
		w.WithInv, w.Imm = true, uint32(f.Imm())
	}
	if info.DETH {
		w.GRH, w.SrcQP = true, f.DETH().SrcQP
	}
	q.completeRecv(now, w, f.Solicited())
}

// respond sends an acknowledgement in the frame of the request handled last. If answers wait, or the request's data
// is still on its way to memory, it is queued.
func (r *responder) respond(now vtime.Time, q *QP, f *wire.Frame, psn wire.PSN, s wire.Syndrome) {
	n := q.nic
	if n.trace != nil && !s.IsACK() {
		n.trace.Trace(now, machine.Event{Kind: machine.EventNakSent, QP: q.num, PSN: psn, Text: s.String()})
	}
	if after := n.fenced(q); after > 0 || r.out.Len() > 0 {
		n.pool.Put(f)
		r.postpone(response{kind: respondAck, psn: psn, syndrome: s, msn: r.msn, after: after})
		return
	}
	n.pool.Strip(f)
	r.acknowledgement(q, f, psn, wire.AETH{Syndrome: s, MSN: r.msn})
	n.queue(now, f, q.prio)
}

// acknowledgement builds an ACK or a NAK in an empty frame and counts it.
func (r *responder) acknowledgement(q *QP, f *wire.Frame, psn wire.PSN, h wire.AETH) {
	n := q.nic
	var bits wire.BTHBits
	if q.order != nil && q.order.peer {
		bits = wire.BitSelective
	}
	f.StartNext(&q.env, wire.OpAcknowledge, psn, bits)
	f.AddAETH(h)
	f.Seal(uint16(psn), n.trust)
	n.stats.Made++
	switch {
	case h.Syndrome.IsACK():
		n.stats.AcksSent++
	case h.Syndrome.IsRNR():
		n.stats.SendRNR++
	default:
		n.stats.SendNAK++
	}
}
