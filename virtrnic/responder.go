package virtrnic

import (
	"fmt"

	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// responder is the receiving half of a queue pair: it takes packets in order, places
// their payload, and acknowledges.
type responder struct {
	wqes ring[RecvWR]
	n    int
	max  int

	epsn    wire.PSN // expected next
	msn     uint32   // messages completed, 24 bits
	nakSent bool     // the gap at epsn has been reported (or its sender told to wait)

	// The message being received.
	active bool
	placed bool // the packet's payload is in its place already (see reorder)
	write  bool
	wr     RecvWR // SEND: where it goes
	hasWR  bool
	mr     *MR
	off    uint64 // next byte in mr
	left   uint64 // SEND: room; WRITE: bytes to come
	got    uint64
}

func (r *responder) pop() RecvWR {
	r.n--
	return r.wqes.pop()
}

// abandon puts the buffer of a message that will not end back in front of the queue,
// so that a flush completes it first.
func (r *responder) abandon() {
	if r.hasWR {
		r.hasWR = false
		rest := make([]RecvWR, 0, r.n)
		for r.n > 0 {
			rest = append(rest, r.pop())
		}
		r.wqes.push(r.wr)
		for _, w := range rest {
			r.wqes.push(w)
		}
		r.n = len(rest) + 1
	}
	r.active = false
}

// PostRecv adds a buffer to the receive queue. In ERR it completes as flushed at once.
func (n *NIC) PostRecv(now vtime.Time, q *QP, wr RecvWR) error {
	switch {
	case q.state == StateReset:
		return fmt.Errorf("post receive to queue pair %d in %v: %w", q.num, q.state, ErrState)
	case wr.SGE.Length > MaxMessage:
		return fmt.Errorf("post receive to queue pair %d: %d bytes are more than 2 GiB: %w", q.num, wr.SGE.Length, ErrInvalid)
	case q.state == StateErr:
		q.complete(now, q.recvCQ, WC{WRID: wr.WRID, Status: WCWRFlushErr, QPN: q.num})
		return nil
	case q.rq.n >= q.rq.max:
		return fmt.Errorf("post receive to queue pair %d: %d buffers are posted: %w", q.num, q.rq.n, ErrNoMem)
	}
	q.rq.wqes.push(wr)
	q.rq.n++
	return nil
}

// handleRequest takes a request packet of the connection.
func (r *responder) handleRequest(now vtime.Time, q *QP, f *wire.Frame) {
	n := q.nic
	switch d := f.PSN().Sub(r.epsn); {
	case d < 0:
		// C9-105: a duplicate is not executed; it is acknowledged again.
		n.stats.DuplicateRequest++
		if f.AckReq() {
			n.stats.Drops[DropDuplicate]++
			r.respond(now, q, f, r.epsn.Add(-1), wire.SyndromeACK)
		} else {
			n.drop(now, f, DropDuplicate)
		}
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
	if nak, status := r.accept(q, f); nak != 0 {
		r.refuse(now, q, f, nak, status)
		return
	}
	if f.PayloadLen() > 0 {
		if !r.placed {
			r.mr.mem.store(f, r.off)
		}
		r.off += uint64(f.PayloadLen())
		r.left -= uint64(f.PayloadLen())
		r.got += uint64(f.PayloadLen())
		n.stats.BytesReceived += uint64(f.PayloadLen())
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

// accept checks an in-order packet and sets the message up if it begins one. It
// returns the NAK to send, or 0, and how the receive work request in use (if any)
// ends.
func (r *responder) accept(q *QP, f *wire.Frame) (nak wire.Syndrome, status WCStatus) {
	op := f.OpCode()
	info := op.Info()
	size := uint64(f.PayloadLen())
	switch {
	case op > wire.OpWriteOnlyImm:
		return wire.SyndromeInvalidReq, WCRemInvReqErr // not offered by this NIC
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
		if r.n == 0 {
			if info.Flags&wire.OpBegin != 0 {
				r.active = false // the retry begins the message again
			}
			return wire.SyndromeRNR, 0
		}
		r.wr, r.hasWR = r.pop(), true
	}
	return 0, 0
}

func isWrite(op wire.OpCode) bool { return op >= wire.OpWriteFirst && op <= wire.OpWriteOnlyImm }

// begin takes the first packet of a message: a SEND needs a receive work request, a
// WRITE the right to its target.
func (r *responder) begin(q *QP, f *wire.Frame, info *wire.OpInfo) (nak wire.Syndrome, status WCStatus) {
	if !isWrite(f.OpCode()) {
		if r.n == 0 {
			return wire.SyndromeRNR, 0
		}
		r.wr, r.hasWR = r.pop(), true
		r.active, r.write, r.got = true, false, 0
		r.left = uint64(r.wr.SGE.Length)
		r.mr = nil
		if r.left > 0 {
			r.mr, r.off = q.nic.lookup(q.pd, r.wr.SGE.LKey, r.wr.SGE.Addr, r.left, AccessLocalWrite)
			if r.mr == nil {
				return wire.SyndromeRemoteOp, WCLocProtErr
			}
		}
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
	r.mr, r.off = nil, 0
	if h.DMALen > 0 { // a zero-length WRITE does not check its key
		r.mr, r.off = q.nic.lookup(q.pd, h.RKey, h.VA, uint64(h.DMALen), AccessRemoteWrite)
		if r.mr == nil {
			return wire.SyndromeRemoteAcc, WCRemAccessErr
		}
	}
	r.active, r.write, r.got = true, true, 0
	r.left = uint64(h.DMALen)
	return 0, 0
}

// refuse answers a packet that cannot be executed. RNR keeps the queue pair alive;
// any other NAK ends it.
func (r *responder) refuse(now vtime.Time, q *QP, f *wire.Frame, nak wire.Syndrome, status WCStatus) {
	n := q.nic
	n.stats.Delivered++
	if nak == wire.SyndromeRNR {
		// Until the sender comes back with this packet what follows it is dropped
		// silently, as after a sequence NAK.
		r.nakSent = true
		r.respond(now, q, f, r.epsn, nak|wire.Syndrome(q.attr.MinRNRTimer))
		return
	}
	r.respond(now, q, f, r.epsn, nak)
	if r.hasWR {
		r.hasWR = false
		q.complete(now, q.recvCQ, WC{WRID: r.wr.WRID, Status: status, QPN: q.num})
	}
	q.becomeErr(now)
}

// finish completes the message the packet ends.
func (r *responder) finish(now vtime.Time, q *QP, f *wire.Frame) {
	r.active = false
	r.msn = (r.msn + 1) & 0xffffff
	q.nic.stats.MessagesReceived++
	if !r.hasWR {
		return
	}
	r.hasWR = false
	w := WC{WRID: r.wr.WRID, Opcode: WCRecv, ByteLen: uint32(r.got), QPN: q.num}
	if r.write {
		w.Opcode = WCRecvRDMAWithImm
	}
	if f.OpCode().Info().Imm {
		w.WithImm, w.Imm = true, uint32(f.Imm())
	}
	q.complete(now, q.recvCQ, w)
}

// respond turns the request just handled into its acknowledgement and queues it.
func (r *responder) respond(now vtime.Time, q *QP, f *wire.Frame, psn wire.PSN, s wire.Syndrome) {
	n := q.nic
	n.pool.Strip(f)
	f.Start(&q.env, wire.BTH{OpCode: wire.OpAcknowledge, PKey: wire.PKeyDefault, DestQP: q.attr.DestQPN, PSN: psn})
	f.AddAETH(wire.AETH{Syndrome: s, MSN: r.msn})
	f.Seal(uint16(psn), n.trust)
	n.stats.Made++
	switch {
	case s.IsACK():
		n.stats.AcksSent++
	case s.IsRNR():
		n.stats.SendRNR++
	default:
		n.stats.SendNAK++
	}
	if n.trace != nil && !s.IsACK() {
		n.trace.Trace(now, machine.Event{Kind: machine.EventNakSent, QP: q.num, PSN: psn, Text: s.String()})
	}
	n.queue(now, f, q.prio)
}
