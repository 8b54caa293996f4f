// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"encoding/binary"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// The requester's side of READ and atomics. A READ takes as many packet numbers as it has responses, so
// una moves through it as they arrive, and going back to una repeats exactly its missing part.

// unblocked reports whether nothing keeps a READ, an atomic or a fenced request from starting: the
// initiator depth, the wait of a fence, or the window.
func (r *requester) unblocked(q *QP, w *sendWQE) bool {
	if w.traits&isFenced != 0 && r.asked > 0 {
		return false
	}
	if w.traits&isRead == 0 {
		return true
	}
	if d := int(q.attr.MaxQPRdAtomic); d > 0 && int(r.asked) >= d {
		return false
	}
	return w.end()-r.una <= maxOutstanding
}

// nextRead builds the request for the missing part of a READ, or for an atomic.
func (r *requester) nextRead(now vtime.Time, q *QP, w *sendWQE) *wire.Frame {
	n := q.nic
	bth := wire.BTH{Migrated: true, PKey: wire.PKeyDefault, DestQP: q.attr.DestQPN, PSN: r.psn(r.nxt), AckReq: true, Selective: r.sel != nil}
	status := WCSuccess
	switch {
	case q.attr.MaxQPRdAtomic == 0:
		status = WCLocQPOpErr
	case w.opcode != WRRDMARead && w.length != 8:
		status = WCLocLenErr
	case !n.reachable(q.pd, w.sge, w.sgl(), AccessLocalWrite):
		status = WCLocProtErr
	}
	if status != WCSuccess {
		r.fail(now, q, w, status)
		return nil
	}
	f := n.pool.Get()
	switch w.opcode {
	case WRRDMARead:
		done := uint32(r.nxt-w.first) * uint32(q.mtu)
		bth.OpCode = wire.OpReadRequest
		f.Start(&q.env, bth)
		f.AddRETH(wire.RETH{VA: w.remoteAddr + uint64(done), RKey: w.rkey, DMALen: w.length - done})
	case WRAtomicCmpAndSwp:
		bth.OpCode = wire.OpCompareSwap
		f.Start(&q.env, bth)
		f.AddAtomicETH(wire.AtomicETH{VA: w.remoteAddr, RKey: w.rkey, SwapAdd: w.extras.swapAdd, Compare: w.extras.compare})
	default:
		bth.OpCode = wire.OpFetchAdd
		f.Start(&q.env, bth)
		f.AddAtomicETH(wire.AtomicETH{VA: w.remoteAddr, RKey: w.rkey, SwapAdd: w.extras.swapAdd})
	}
	f.Seal(uint16(bth.PSN), n.trust)
	n.stats.Made++
	n.stats.DataPackets++
	if r.nxt < r.maxSeq {
		n.stats.Retransmitted++
	}
	r.nxt = w.end()
	r.maxSeq = max(r.maxSeq, r.nxt)
	r.cursor++
	r.asked++
	r.armRTO(now, q, false)
	return f
}

// reach returns how far an acknowledgement of everything before seq goes: not past a READ or
// atomic whose response has not come.
func (r *requester) reach(seq uint64) uint64 {
	for i := range r.wqes.Len() {
		w := r.wqes.At(i)
		if w.first >= seq {
			break
		}
		if w.traits&isRead != 0 {
			return max(w.first, r.una)
		}
	}
	return seq
}

// impliedNak goes back because a response came for a packet beyond a READ or atomic that has
// not been answered, which means that the answer is lost.
func (r *requester) impliedNak(now vtime.Time, q *QP) {
	if r.sel != nil {
		r.sel.reported, r.sel.peerSelective = false, false // all that follows may be lost too
	}
	q.nic.stats.ImpliedNAK++
	r.handleNak(now, q)
}

// handleAnswer handles the answer to a READ or atomic; seq is outstanding.
func (r *requester) handleAnswer(now vtime.Time, q *QP, f *wire.Frame, seq uint64) {
	n := q.nic
	to := r.reach(seq)
	r.acknowledge(now, q, to)
	if q.state == StateErr || to < seq {
		n.drop(now, f, DropResponse)
		if q.state != StateErr {
			r.impliedNak(now, q)
			r.armRTO(now, q, false)
		}
		return
	}
	w := r.wqes.At(0)
	switch {
	case w.traits&isRead == 0:
		n.drop(now, f, DropResponse)
		r.failOldest(now, q, WCFatalErr)
		return
	case !r.fits(q, w, f, seq):
		n.drop(now, f, DropResponse)
		r.failOldest(now, q, WCBadRespErr)
		return
	}
	off := (seq - w.first) * uint64(q.mtu)
	ok := true
	if f.OpCode() == wire.OpAtomicAck {
		b := n.scratch[:8]
		binary.LittleEndian.PutUint64(b, f.AtomicAckETH().Original)
		ok = n.writeBytes(q.pd, w.sge, w.sgl(), 0, b)
	} else if f.PayloadLen() > 0 {
		ok = n.deliver(q.pd, w.sge, w.sgl(), off, f)
		n.stats.BytesReceived += uint64(f.PayloadLen())
	}
	n.stats.ResponsesRcvd++
	n.consume(f)
	if !ok {
		r.failOldest(now, q, WCLocProtErr)
		return
	}
	r.acknowledge(now, q, seq+1)
	r.armRTO(now, q, false)
}

// fits reports whether an answer has the form that its place in the READ or atomic requires.
func (r *requester) fits(q *QP, w *sendWQE, f *wire.Frame, seq uint64) bool {
	op := f.OpCode()
	if op.Info().AETH && !f.AETH().Syndrome.IsACK() {
		return false
	}
	if w.opcode != WRRDMARead {
		return op == wire.OpAtomicAck
	}
	if op == wire.OpAtomicAck {
		return false
	}
	// After a repeat the responder may begin anywhere: first and middle are accepted alike, and so are
	// last and only.
	if seq+1 < w.end() {
		return (op == wire.OpReadRespFirst || op == wire.OpReadRespMiddle) && f.PayloadLen() == q.mtu
	}
	rest := uint64(w.length) - (seq-w.first)*uint64(q.mtu)
	return (op == wire.OpReadRespLast || op == wire.OpReadRespOnly) && uint64(f.PayloadLen()) == rest
}

// attach gives the frame a payload of size > 0 bytes to be written.
func attach(p *wire.Pool, f *wire.Frame, size int) []byte {
	b := p.Block()
	buf := b.Fill(size)
	f.SetPayload(b)
	return buf
}
