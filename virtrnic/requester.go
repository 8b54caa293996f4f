// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// requester is the sending half of a queue pair: go-back-N (GEN-4). reader.go adds READs and
// atomics, and datagram.go has the services UC and UD.
//
// Packets are numbered by plain 64-bit counters whose low 24 bits are the PSN, so nothing here
// wraps. Invariant: una <= nxt <= maxSeq <= end.
type requester struct {
	una    uint64 // oldest packet not acknowledged
	nxt    uint64 // next packet to send
	maxSeq uint64 // first packet never sent
	end    uint64 // first packet no work request has

	sel        *selective // nil: go-back-N
	nakAt      uint64     // 1 + the packet of the last NAK, if there was no progress since; else 0
	retries    uint8
	rnrRetries uint8
	rnrWait    bool // the pause that an RNR NAK has asked for is not over
	drained    bool
	midway     bool   // the packet built last is followed by another of its message
	pieces     uint8  // pieces of memory that a work request may have
	inline     uint16 // bytes of inline data that one may have
	max        uint16 // requests that wqes may have

	cursor  uint16 // index in wqes of the work request that nxt belongs to
	reads   uint16 // READs and atomics in wqes
	asked   uint16 // those of reads before cursor, waiting for their responses
	wqes    queue.FIFO[sendWQE]
	drainTo uint64 // in SQD: the first packet that is not sent any more
}

// The limits of a queue fit the types of its fields.
const (
	_ uint16 = MaxQPWR
	_ uint8  = MaxSGE
	_ uint16 = MaxInlineData
)

// psn returns the PSN of a packet.
func (r *requester) psn(seq uint64) wire.PSN { return wire.PSN(seq) & wire.PSNMask }

// begin sets all counters to a PSN. The upper bits start at 1 so that nothing is
// ever below zero.
func (r *requester) begin(psn wire.PSN) {
	s := 1<<24 | uint64(psn)
	r.una, r.nxt, r.maxSeq, r.end = s, s, s, s
	r.nakAt, r.rnrWait = 0, false
	if r.sel != nil {
		r.sel.begin(s)
	}
}

// push adds a request of the plain kind, whose packets are to be set, and returns it. It is valid until the queue changes.
func (r *requester) push(wr *SendWR, length uint32) *sendWQE {
	r.wqes.Push(sendWQE{
		wrid: wr.WRID, sge: wr.SGE, remoteAddr: wr.RemoteAddr, rkey: wr.RKey, imm: wr.Imm,
		first: r.end, length: length, opcode: wr.Opcode, flags: wr.Flags,
	})
	return r.wqes.At(r.wqes.Len() - 1)
}

// pop takes the oldest request off; its extras go back to the NIC.
func (r *requester) pop(q *QP) sendWQE {
	w := r.wqes.Pop()
	if w.traits&isRead != 0 {
		r.reads--
		if r.cursor > 0 {
			r.asked--
		}
	}
	if r.cursor > 0 {
		r.cursor--
	}
	q.nic.release(w.extras)
	if q.service != wire.RC {
		q.nic.unacked--
	}
	return w
}

// sendable reports whether a packet may go out now: a response to the peer's READ, or a
// request.
func (r *requester) sendable(q *QP) bool {
	return r.requestable(q) || q.rq.answers()
}

// follows reports whether another packet of the same message may follow the one built last.
// Only the window can prevent that, so most packets need no full check.
func (r *requester) follows(q *QP) bool { return r.midway && r.nxt-r.una < q.nic.window }

// requestable reports whether a request may go out now, new or repeated.
func (r *requester) requestable(q *QP) bool {
	window := q.nic.window
	if r.sel != nil {
		if _, ok := r.sel.next(r); ok {
			return !r.rnrWait && (q.state == StateRTS || q.state == StateSQD)
		}
		window = r.sel.cap
	}
	if r.nxt == r.end || r.rnrWait || r.nxt-r.una >= window || int(r.cursor) >= r.wqes.Len() {
		return false
	}
	if drains := q.state == StateSQD && r.nxt < r.drainTo; q.state != StateRTS && !drains {
		return false
	}
	w := r.wqes.At(int(r.cursor))
	return w.failed == WCSuccess && (w.traits&(isRead|isFenced) == 0 || r.unblocked(q, w))
}

// startedEnd returns the end of the last work request of which a packet was sent.
func (r *requester) startedEnd() uint64 {
	for i := range r.wqes.Len() {
		w := r.wqes.At(i)
		if w.end() >= r.maxSeq {
			if w.first >= r.maxSeq {
				return w.first
			}
			return w.end()
		}
	}
	return r.end
}

// nextPacket builds the packet that goes out now, or returns nil if its work request
// turns out to be unsendable. Requests and responses to READs take turns.
func (r *requester) nextPacket(now vtime.Time, q *QP) *wire.Frame {
	r.midway = false
	if q.rq.answers() && (q.rq.turn || !r.requestable(q)) {
		q.rq.turn = false
		return q.rq.nextResponse(now, q)
	}
	q.rq.turn = true
	if r.sel != nil {
		if seq, ok := r.sel.next(r); ok {
			return r.repeat(now, q, seq)
		}
	}
	return r.nextRequest(now, q)
}

// nextRequest builds the packet nxt.
func (r *requester) nextRequest(now vtime.Time, q *QP) *wire.Frame {
	w := r.wqes.At(int(r.cursor))
	switch {
	case w.traits&isRead != 0:
		return r.nextRead(now, q, w)
	case w.traits&isDatagram != 0:
		return r.nextDatagram(now, q, w)
	}
	return r.nextData(now, q, w)
}

// nextData builds packet nxt of a SEND or WRITE.
func (r *requester) nextData(now vtime.Time, q *QP, w *sendWQE) *wire.Frame {
	n := q.nic
	i := uint32(r.nxt - w.first)
	off := uint64(i) * uint64(q.mtu)
	size := min(uint64(q.mtu), uint64(w.length)-off)
	var m *MR
	var at uint64
	if w.length > 0 {
		var ok bool
		if w.traits&(isPieces|isInline) != 0 {
			ok = w.traits&isInline != 0 || n.reachable(q.pd, w.sge, w.extras.sgl, 0)
		} else {
			m, at = n.lookup(q.pd, w.sge.LKey, w.sge.Addr, uint64(w.length), 0)
			ok = m != nil
		}
		if !ok {
			r.fail(now, q, w, WCLocProtErr)
			return nil
		}
	}
	last := i == w.packets-1
	op := sendOpcode(w.opcode, i == 0, last)
	psn := r.psn(r.nxt)
	ask := last || (i+1)%n.ackEvery == 0
	ask = ask || r.sel != nil && r.nxt < r.maxSeq // the window may stay closed until the ACK comes
	f := n.pool.Get()
	f.StartNext(&q.env, op+wire.OpCode(q.service)<<5, psn, r.bits(q, ask, last && w.flags&SendSolicited != 0))
	info := op.Info()
	if info.RETH {
		f.AddRETH(wire.RETH{VA: w.remoteAddr, RKey: w.rkey, DMALen: w.length})
	}
	switch {
	case info.Imm:
		f.AddImm(wire.ImmDt(w.imm))
	case info.IETH:
		f.AddImm(wire.ImmDt(w.rkey))
	}
	switch {
	case size == 0:
	case m != nil:
		m.mem.load(n.pool, f, at+off, int(size))
	case w.traits&isInline != 0:
		copy(attach(n.pool, f, int(size)), w.extras.inline[off:])
	default:
		n.gather(q.pd, w.extras.sgl, f, off, int(size))
	}
	f.Seal(uint16(psn), n.trust)
	n.stats.Made++
	n.stats.DataPackets++
	if r.nxt < r.maxSeq {
		n.stats.Retransmitted++
	}
	r.nxt++
	r.maxSeq = max(r.maxSeq, r.nxt)
	if last {
		r.cursor++
	}
	if q.service != wire.RC {
		r.sent(now, q, last)
		return f
	}
	r.midway = !last && r.sel == nil && q.state == StateRTS
	r.armRTO(now, q, false)
	return f
}

// bits returns the flag bits of the BTH of a SEND or WRITE.
func (r *requester) bits(q *QP, ask, solicited bool) (b wire.BTHBits) {
	if ask && q.service == wire.RC {
		b = wire.BitAckReq
	}
	if solicited {
		b |= wire.BitSolicited
	}
	if r.sel != nil {
		b |= wire.BitSelective
	}
	return b
}

// armRTO starts the retransmission timer if packets are outstanding; restart moves
// a running one.
func (r *requester) armRTO(now vtime.Time, q *QP, restart bool) {
	d := r.rto(q)
	if d == 0 || r.rnrWait || q.state != StateRTS && q.state != StateSQD {
		return
	}
	if r.una == r.maxSeq {
		q.nic.timers.Stop(q.timerRTO())
		return
	}
	if restart || q.nic.timers.At(q.timerRTO()) == vtime.Never {
		if r.sel != nil {
			r.sel.arm(now, restart)
		}
		q.nic.timers.Set(q.timerRTO(), now.Add(d))
	}
}

// handleResponse handles an acknowledgement or another response.
func (r *requester) handleResponse(now vtime.Time, q *QP, f *wire.Frame) {
	n := q.nic
	d := f.PSN().Sub(r.psn(r.una))
	seq := r.una + uint64(int64(d))
	if f.OpCode() != wire.OpAcknowledge {
		if d < 0 || seq >= r.maxSeq {
			n.drop(now, f, DropResponse)
			return
		}
		r.handleAnswer(now, q, f, seq)
		return
	}
	h := f.AETH()
	if h.Syndrome.IsACK() {
		seq++ // acknowledges its own packet too
	}
	// An ACK of the packet before una changes nothing. A response to an older packet, or to one never
	// sent, is not for an outstanding packet.
	oldest, newest := r.una, r.maxSeq
	if !h.Syndrome.IsACK() {
		newest--
	}
	if d < -1 || seq < oldest || seq > newest {
		n.drop(now, f, DropResponse)
		return
	}
	if r.sel != nil {
		r.sel.note(f)
	}
	n.consume(f)
	switch {
	case h.Syndrome.IsACK():
		n.stats.AcksRcvd++
	case h.Syndrome.IsRNR():
		n.stats.RcvdRNR++
	default:
		n.stats.RcvdNAK++
	}
	to := seq
	if r.reads > 0 {
		to = r.reach(seq)
	}
	r.acknowledge(now, q, to)
	switch {
	case q.state == StateErr: // the completion queue overran
	case to < seq:
		r.impliedNak(now, q)
	case h.Syndrome.IsACK():
	case h.Syndrome.IsRNR():
		r.handleRNR(now, q, h.Syndrome)
	case h.Syndrome == wire.SyndromePSNSequence:
		r.handleNak(now, q)
	default:
		r.failOldest(now, q, nakStatus(h.Syndrome))
	}
	r.armRTO(now, q, false)
}

func nakStatus(s wire.Syndrome) WCStatus {
	switch s {
	case wire.SyndromeInvalidReq:
		return WCRemInvReqErr
	case wire.SyndromeRemoteAcc:
		return WCRemAccessErr
	}
	return WCRemOpErr
}

// acknowledge records everything before seq as delivered, and completes the requests that end
// there.
func (r *requester) acknowledge(now vtime.Time, q *QP, seq uint64) {
	if seq == r.una {
		return
	}
	old := r.una
	r.una = seq
	if r.sel != nil {
		r.sel.advance(now, old, r)
	}
	r.retries, r.rnrRetries, r.nakAt = q.attr.RetryCnt, q.attr.RNRRetry, 0
	if r.rnrWait {
		r.rnrWait = false
		q.nic.timers.Stop(q.timerRNR())
	}
	for r.wqes.Len() > 0 && r.wqes.At(0).end() <= r.una {
		r.finish(now, q)
	}
	if r.nxt < r.una {
		r.seek(r.una)
	}
	r.armRTO(now, q, true)
	if r.wqes.Len() > 0 && r.wqes.At(0).failed != WCSuccess {
		r.failOldest(now, q, r.wqes.At(0).failed)
		return
	}
	q.checkDrained(now)
	q.nic.offer(now, q)
}

// finish completes the oldest request, which has succeeded.
func (r *requester) finish(now vtime.Time, q *QP) {
	w := r.pop(q)
	q.nic.stats.MessagesSent++
	if q.nic.requests != nil {
		q.tell(now, machine.RequestDone, &w, WCSuccess)
	}
	if q.sigAll || w.flags&SendSignaled != 0 {
		q.complete(now, q.sendCQ, WC{
			WRID: w.wrid, Opcode: wcOpcode(w.opcode), ByteLen: w.length, QPN: q.num,
		})
	}
}

// seek makes seq the next packet to send.
func (r *requester) seek(seq uint64) {
	r.nxt, r.cursor, r.asked = seq, 0, 0
	for int(r.cursor) < r.wqes.Len() {
		w := r.wqes.At(int(r.cursor))
		if seq < w.end() {
			break
		}
		if w.traits&isRead != 0 {
			r.asked++
		}
		r.cursor++
	}
}

// handleNak goes back to the oldest packet not acknowledged, which costs a retry.
// Another NAK for the same packet without progress in between changes nothing: the repeat is
// under way, and if it is lost as well the timeout finds out.
func (r *requester) handleNak(now vtime.Time, q *QP) {
	if r.sel != nil && r.sel.takeSACK(r) {
		r.handleReport(now, q)
		return
	}
	if r.sel != nil && r.sel.peerSelective && !r.rnrWait {
		r.repeatOldest(now, q)
		return
	}
	if r.nakAt == r.una+1 || !r.spend(now, q, &r.retries, WCRetryExcErr) {
		return
	}
	r.nakAt = r.una + 1
	q.nic.stats.CompleterRetry++
	r.goBack(now, q, machine.EventNakReceived)
}

// handleRNR waits as long as the receiver asked for, then sends again.
func (r *requester) handleRNR(now vtime.Time, q *QP, s wire.Syndrome) {
	if r.rnrWait {
		return
	}
	if q.attr.RNRRetry != 7 && !r.spend(now, q, &r.rnrRetries, WCRNRRetryExcErr) {
		return
	}
	r.rnrWait = true
	q.nic.timers.Set(q.timerRNR(), now.Add(RNRTimer(s.RNRCode())))
	q.nic.timers.Stop(q.timerRTO())
	r.rewind()
}

func (r *requester) rnrOver(now vtime.Time, q *QP) {
	r.rnrWait = false
	r.goBack(now, q, machine.EventRetransmit)
}

func (r *requester) timedOut(now vtime.Time, q *QP) {
	if r.una == r.maxSeq || r.rnrWait || r.firedEarly(now, q) {
		return
	}
	q.nic.stats.Timeouts++
	if q.nic.trace != nil {
		q.nic.trace.Trace(now, machine.Event{Kind: machine.EventTimeout, QP: q.num, PSN: r.psn(r.una)})
	}
	if r.shortTimeout(now, q) || r.spend(now, q, &r.retries, WCRetryExcErr) {
		r.nakAt = 0
		r.goBack(now, q, machine.EventRetransmit)
	}
}

// spend takes one from a retry counter and reports whether there was one left. If not, the
// oldest request fails.
func (r *requester) spend(now vtime.Time, q *QP, left *uint8, status WCStatus) bool {
	if *left > 0 {
		*left--
		return true
	}
	if status == WCRetryExcErr {
		q.nic.stats.RetryExceeded++
	} else {
		q.nic.stats.RNRRetryExceeded++
	}
	r.failOldest(now, q, status)
	return false
}

func (r *requester) goBack(now vtime.Time, q *QP, why machine.EventKind) {
	r.rewind()
	r.armRTO(now, q, true)
	if q.nic.trace != nil {
		q.nic.trace.Trace(now, machine.Event{Kind: why, QP: q.num, PSN: r.psn(r.una)})
	}
	q.nic.offer(now, q)
}

// fail marks a work request that cannot be sent. It completes with its status once
// everything before it is acknowledged, which keeps completions in order.
func (r *requester) fail(now vtime.Time, q *QP, w *sendWQE, status WCStatus) {
	w.failed = status
	if r.cursor == 0 {
		r.failOldest(now, q, status)
	}
}

// failOldest completes the oldest work request with an error, which ends the queue pair, or
// only its send queue if it is of UC or UD.
func (r *requester) failOldest(now vtime.Time, q *QP, status WCStatus) {
	if r.wqes.Len() > 0 {
		w := r.pop(q)
		if q.nic.requests != nil {
			q.tell(now, machine.RequestDone, &w, status)
		}
		q.complete(now, q.sendCQ, WC{WRID: w.wrid, Status: status, QPN: q.num})
	}
	if q.service != wire.RC && q.state != StateErr {
		q.becomeSQE(now)
		return
	}
	q.becomeErr(now)
}

// checkDrained raises EventSQDrained once a draining send queue has no started request left.
func (q *QP) checkDrained(now vtime.Time) {
	if q.state != StateSQD || q.sq.drained || q.sq.una < q.sq.drainTo {
		return
	}
	q.sq.drained = true
	if q.attr.EnSQDAsync {
		q.nic.event(EventSQDrained, q)
	}
	if t := q.nic.trace; t != nil && q.attr.EnSQDAsync {
		t.Trace(now, machine.Event{Kind: machine.EventQPState, QP: q.num, Text: "SQ_DRAINED"})
	}
}

// Acknowledged returns a count that goes up by one with each acknowledged packet. Only
// differences of two values have a meaning.
func (q *QP) Acknowledged() uint64 { return q.sq.una }

// Outstanding returns the send work requests not completed yet.
func (q *QP) Outstanding() int { return q.sq.wqes.Len() }

// Posted returns the number of receives in the queue pair's own queue or in use.
func (q *QP) Posted() int {
	if q.rq.hasWR && q.srq == nil {
		return q.own.wqes.Len() + 1
	}
	return q.own.wqes.Len()
}

// Unfinished returns the number of work requests of all send queues that have not ended.
func (n *NIC) Unfinished() (requests int) {
	n.QPs(func(q *QP) { requests += q.Outstanding() })
	return requests
}
