package virtrnic

import (
	"fmt"

	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// requester is the sending half of a queue pair: go-back-N (GEN-4).
//
// Packets are numbered by plain 64-bit counters whose low 24 bits are the PSN, so
// nothing here wraps: una <= nxt <= max <= end.
type requester struct {
	wqes   ring[sendWQE]
	n      int // work requests in wqes
	max    int // most of them
	cursor int // which of them nxt belongs to

	una    uint64 // oldest packet not acknowledged
	nxt    uint64 // next packet to send
	maxSeq uint64 // first packet never sent
	end    uint64 // first packet no work request has

	retries    uint8
	rnrRetries uint8
	rnrWait    bool   // a receiver asked for time
	nakAt      uint64 // 1 + packet of the last NAK without progress since
	drainTo    uint64 // SQD: send up to here
	drained    bool
	sel        *selective // nil: go-back-N
}

// sendWQE is a work request in the send queue.
type sendWQE struct {
	wr      SendWR
	first   uint64 // its first packet
	packets uint32
	failed  WCStatus // found to be unsendable; completes when it is the oldest
}

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

func (r *requester) push(w sendWQE) {
	r.wqes.push(w)
	r.n++
}

func (r *requester) pop() sendWQE {
	r.n--
	if r.cursor > 0 {
		r.cursor--
	}
	return r.wqes.pop()
}

// PostSend adds a request to the send queue. In ERR it completes as flushed at once.
func (n *NIC) PostSend(now vtime.Time, q *QP, wr SendWR) error {
	switch {
	case q.state == StateReset || q.state == StateInit || q.state == StateRTR:
		return fmt.Errorf("post send to queue pair %d in %v: %w", q.num, q.state, ErrState)
	case wr.Opcode > WRSendWithImm:
		return fmt.Errorf("post send to queue pair %d: opcode %d: %w", q.num, wr.Opcode, ErrInvalid)
	case wr.SGE.Length > MaxMessage:
		return fmt.Errorf("post send to queue pair %d: %d bytes are more than 2 GiB: %w", q.num, wr.SGE.Length, ErrInvalid)
	case q.state == StateErr:
		q.complete(now, q.sendCQ, WC{WRID: wr.WRID, Status: WCWRFlushErr, QPN: q.num})
		return nil
	case q.sq.n >= q.sq.max:
		return fmt.Errorf("post send to queue pair %d: %d work requests are outstanding: %w", q.num, q.sq.n, ErrNoMem)
	}
	n.settleBefore(now)
	packets := max(1, (uint64(wr.SGE.Length)+uint64(q.mtu)-1)/uint64(q.mtu))
	q.sq.push(sendWQE{wr: wr, first: q.sq.end, packets: uint32(packets)})
	q.sq.end += packets
	n.offer(now, q)
	n.start(now)
	return nil
}

// sendable says whether a packet may go out now.
func (r *requester) sendable(q *QP) bool {
	window := q.nic.window
	if r.sel != nil {
		if _, ok := r.sel.next(r); ok {
			return !r.rnrWait && (q.state == StateRTS || q.state == StateSQD)
		}
		window = r.sel.cap
	}
	if r.nxt == r.end || r.rnrWait || r.nxt-r.una >= window || r.cursor >= r.n {
		return false
	}
	if drains := q.state == StateSQD && r.nxt < r.drainTo; q.state != StateRTS && !drains {
		return false
	}
	return r.wqes.at(uint32(r.cursor)).failed == WCSuccess
}

// startedEnd returns the end of the last work request of which a packet was sent.
func (r *requester) startedEnd() uint64 {
	for i := range r.n {
		w := r.wqes.at(uint32(i))
		if w.first+uint64(w.packets) >= r.maxSeq {
			if w.first >= r.maxSeq {
				return w.first
			}
			return w.first + uint64(w.packets)
		}
	}
	return r.end
}

// nextPacket builds the packet nxt, or nil if its work request turns out to be
// unsendable.
func (r *requester) nextPacket(now vtime.Time, q *QP) *wire.Frame {
	n := q.nic
	w := r.wqes.at(uint32(r.cursor))
	i := uint32(r.nxt - w.first)
	off := uint64(i) * uint64(q.mtu)
	size := min(uint64(q.mtu), uint64(w.wr.SGE.Length)-off)
	var m *MR
	var at uint64
	if w.wr.SGE.Length > 0 {
		if m, at = n.lookup(q.pd, w.wr.SGE.LKey, w.wr.SGE.Addr, uint64(w.wr.SGE.Length), 0); m == nil {
			r.fail(now, q, w, WCLocProtErr)
			return nil
		}
	}
	last := i == w.packets-1
	op := sendOpcode(w.wr.Opcode, i == 0, last)
	psn := r.psn(r.nxt)
	f := n.pool.Get()
	f.Start(&q.env, wire.BTH{
		OpCode: op, PKey: wire.PKeyDefault, DestQP: q.attr.DestQPN, PSN: psn,
		AckReq:    last || int(i+1)%n.ackEvery == 0 || r.sel != nil && r.nxt < r.maxSeq,
		Solicited: last && w.wr.Flags&SendSolicited != 0, Selective: r.sel != nil,
	})
	info := op.Info()
	if info.RETH {
		f.AddRETH(wire.RETH{VA: w.wr.RemoteAddr, RKey: w.wr.RKey, DMALen: w.wr.SGE.Length})
	}
	if info.Imm {
		f.AddImm(wire.ImmDt(w.wr.Imm))
	}
	if size > 0 {
		m.mem.load(n.pool, f, at+off, int(size))
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
	r.armRTO(now, q, false)
	return f
}

// sendOpcode returns the opcode of a packet of a message.
func sendOpcode(o WROpcode, first, last bool) wire.OpCode {
	write := o == WRRDMAWrite || o == WRRDMAWriteWithImm
	imm := o == WRRDMAWriteWithImm || o == WRSendWithImm
	var op wire.OpCode
	switch {
	case first && last:
		op = wire.OpSendOnly
	case first:
		op, imm = wire.OpSendFirst, false
	case last:
		op = wire.OpSendLast
	default:
		op, imm = wire.OpSendMiddle, false
	}
	if write {
		op += wire.OpWriteFirst - wire.OpSendFirst
		if first && last {
			op = wire.OpWriteOnly
		}
	}
	if imm {
		op++
	}
	return op
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

// handleResponse takes an acknowledgement.
func (r *requester) handleResponse(now vtime.Time, q *QP, f *wire.Frame) {
	n := q.nic
	if f.OpCode() != wire.OpAcknowledge {
		n.drop(now, f, DropResponse)
		return
	}
	h := f.AETH()
	d := f.PSN().Sub(r.psn(r.una))
	seq := r.una + uint64(int64(d))
	if h.Syndrome.IsACK() {
		seq++ // acknowledges its own packet too
	}
	// An ACK of the packet before una says nothing new; anything older, or of packets
	// never sent, is not for what is outstanding.
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
		r.acknowledge(now, q, seq)
	case h.Syndrome.IsRNR():
		n.stats.RcvdRNR++
		r.acknowledge(now, q, seq)
		r.handleRNR(now, q, h.Syndrome)
	case h.Syndrome == wire.SyndromePSNSequence:
		n.stats.RcvdNAK++
		r.acknowledge(now, q, seq)
		r.handleNak(now, q)
	default:
		n.stats.RcvdNAK++
		r.acknowledge(now, q, seq)
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

// acknowledge takes everything before seq as delivered and completes what that ends.
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
	for r.n > 0 && r.wqes.at(0).first+uint64(r.wqes.at(0).packets) <= r.una {
		w := r.pop()
		q.nic.stats.MessagesSent++
		if q.sigAll || w.wr.Flags&SendSignaled != 0 {
			q.complete(now, q.sendCQ, WC{
				WRID: w.wr.WRID, Opcode: wcOpcode(w.wr.Opcode), ByteLen: w.wr.SGE.Length, QPN: q.num,
			})
		}
	}
	if r.nxt < r.una {
		r.seek(r.una)
	}
	r.armRTO(now, q, true)
	if r.n > 0 && r.wqes.at(0).failed != WCSuccess {
		r.failOldest(now, q, r.wqes.at(0).failed)
		return
	}
	q.checkDrained(now)
	q.nic.offer(now, q)
}

func wcOpcode(o WROpcode) WCOpcode {
	if o == WRRDMAWrite || o == WRRDMAWriteWithImm {
		return WCRDMAWrite
	}
	return WCSend
}

// seek makes seq the next packet to send.
func (r *requester) seek(seq uint64) {
	r.nxt, r.cursor = seq, 0
	for r.cursor < r.n {
		w := r.wqes.at(uint32(r.cursor))
		if seq < w.first+uint64(w.packets) {
			break
		}
		r.cursor++
	}
}

// handleNak goes back to the oldest packet not acknowledged, which costs a retry.
// Another NAK for it without progress in between changes nothing: the repeat is on
// its way, and if that is lost too the timeout finds out.
func (r *requester) handleNak(now vtime.Time, q *QP) {
	if r.sel != nil && r.sel.reported {
		r.handleReport(now, q)
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
	if r.una == r.maxSeq || r.rnrWait || r.early(now, q) {
		return
	}
	q.nic.stats.Timeouts++
	if q.nic.trace != nil {
		q.nic.trace.Trace(now, machine.Event{Kind: machine.EventTimeout, QP: q.num, PSN: r.psn(r.una)})
	}
	if r.patient(now, q) || r.spend(now, q, &r.retries, WCRetryExcErr) {
		r.nakAt = 0
		r.goBack(now, q, machine.EventRetransmit)
	}
}

// spend takes one from a retry counter; at zero the oldest request fails.
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
	if w.first == r.una {
		r.failOldest(now, q, status)
	}
}

// failOldest completes the oldest work request with an error, which ends the queue
// pair.
func (r *requester) failOldest(now vtime.Time, q *QP, status WCStatus) {
	if r.n > 0 {
		w := r.pop()
		q.complete(now, q.sendCQ, WC{WRID: w.wr.WRID, Status: status, QPN: q.num})
	}
	q.becomeErr(now)
}

// checkDrained notes that a draining send queue has nothing started any more.
func (q *QP) checkDrained(now vtime.Time) {
	if q.state != StateSQD || q.sq.drained || q.sq.una < q.sq.drainTo {
		return
	}
	q.sq.drained = true
	if t := q.nic.trace; t != nil && q.attr.EnSQDAsync {
		t.Trace(now, machine.Event{Kind: machine.EventQPState, QP: q.num, Text: "SQ_DRAINED"})
	}
}

// Outstanding returns the send work requests not completed yet.
func (q *QP) Outstanding() int { return q.sq.n }
