// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// QP is a queue pair. The fields that a received packet needs are in the first cache line and in that
// where rq begins, and those that a sent one needs in the lines where env and sq begin (TestHotFields).
type QP struct {
	nic     *NIC
	cc      *congestion // nil without congestion control
	order   *reorder    // nil with go-back-N
	mtu     int
	num     wire.QPN
	state   QPState
	service wire.Service // RC, UC or UD
	prio    uint8
	sigAll  bool
	attr    QPAttr

	queued       bool // it is in the NIC's round, or held
	established  bool // a packet has come while in RTR
	gone         bool // it is destroyed
	loopback     Loopback
	queuedEvents uint32 // bit i: an asynchronous event of type i waits
	pd           *PD
	sendCQ       *CQ
	recvCQ       *CQ
	rq           responder
	own          recvQueue
	recv         *recvQueue // own, or the SRQ's
	srq          *SRQ
	slot         int32   // number of its pair of timers
	groups       int32   // multicast groups that it is attached to
	_            [8]byte // sq begins a cache line
	sq           requester
	env          wire.Envelope
}

// Num returns the queue pair number.
func (q *QP) Num() wire.QPN { return q.num }

// State returns the queue pair's state.
func (q *QP) State() QPState { return q.state }

// SQPSN returns the PSN of the next new packet, sqPSN in the papers.
func (q *QP) SQPSN() wire.PSN { return q.sq.psn(q.sq.end) }

// RQPSN returns the PSN the responder expects next, rqPSN in the papers.
func (q *QP) RQPSN() wire.PSN { return q.rq.epsn }

// CreateQP returns a queue pair in RESET.
func (n *NIC) CreateQP(init QPInit) (*QP, error) {
	if !init.PD.belongsTo(n) || !init.SendCQ.belongsTo(n) || !init.RecvCQ.belongsTo(n) {
		return nil, fmt.Errorf("create queue pair: needs a protection domain and completion queues of the device: %w", ErrInvalid)
	}
	if init.MaxSendWR < 0 || init.MaxSendWR > MaxQPWR || init.MaxRecvWR < 0 || init.MaxRecvWR > MaxQPWR {
		return nil, fmt.Errorf("create queue pair: work request limit beyond %d: %w", MaxQPWR, ErrInvalid)
	}
	switch {
	case init.Type != 0 && init.Type != TypeRC && init.Type != TypeUC && init.Type != TypeUD:
		return nil, fmt.Errorf("create queue pair: type %d: %w", init.Type, ErrInvalid)
	case init.MaxSendSGE < 0 || init.MaxSendSGE > MaxSGE || init.MaxRecvSGE < 0 || init.MaxRecvSGE > MaxSGE:
		return nil, fmt.Errorf("create queue pair: pieces beyond %d: %w", MaxSGE, ErrInvalid)
	case init.MaxInline < 0 || init.MaxInline > MaxInlineData:
		return nil, fmt.Errorf("create queue pair: inline data beyond %d: %w", MaxInlineData, ErrInvalid)
	case init.SRQ != nil && (init.SRQ.nic != n || init.Type == TypeUC || !init.SRQ.belongsTo(n)):
		return nil, fmt.Errorf("create queue pair: shared receive queue of another device, or for UC: %w", ErrInvalid)
	}
	num, ok := n.freeQPN()
	if !ok {
		return nil, fmt.Errorf("create queue pair: %d exist: %w", MaxQPs, ErrNoMem)
	}
	q := &QP{
		nic: n, num: num, pd: init.PD,
		sendCQ: init.SendCQ, recvCQ: init.RecvCQ, sigAll: init.SQSigAll, service: init.Type.service(), srq: init.SRQ, loopback: init.Loopback,
		own: recvQueue{max: uint16(init.MaxRecvWR), pieces: uint8(max(1, init.MaxRecvSGE))},
	}
	q.sq.max, q.sq.pieces, q.sq.inline = uint16(init.MaxSendWR), uint8(max(1, init.MaxSendSGE)), uint16(init.MaxInline)
	q.recv = &q.own
	if init.SRQ != nil {
		q.recv = &init.SRQ.queue
		init.SRQ.users++
	}
	n.enter(q)
	return q, nil
}

// DestroyQP destroys the queue pair. Its number is used again as late as possible (freeQPN), so
// late packets find no queue pair.
func (n *NIC) DestroyQP(now vtime.Time, q *QP) error {
	if n.qp(q.num) != q {
		return fmt.Errorf("destroy queue pair: %w", ErrInvalid)
	}
	if q.groups > 0 {
		return fmt.Errorf("destroy queue pair %d: it is attached to %d multicast groups: %w", q.num, q.groups, ErrBusy)
	}
	n.settleBefore(now)
	q.becomeReset(now)
	if q.srq != nil {
		q.srq.users--
	}
	n.remove(q)
	n.start(now)
	return nil
}

// QPs visits the NIC's queue pairs in the order of their numbers.
func (n *NIC) QPs(visit func(*QP)) {
	for _, q := range n.qps {
		if q != nil {
			visit(q)
		}
	}
}

// Remote returns the address the queue pair is connected to.
func (q *QP) Remote() uint32 { return q.attr.AV.DGID }

// State changes are made by the become methods only.

func (q *QP) becomeReset(now vtime.Time) {
	for q.sq.wqes.Len() > 0 {
		q.sq.pop(q)
	}
	for q.own.wqes.Len() > 0 {
		w := q.own.wqes.Pop()
		q.nic.release(w.extras)
	}
	q.sq = requester{max: q.sq.max, pieces: q.sq.pieces, inline: q.sq.inline}
	q.rq = responder{}
	q.established = false
	q.cc = nil
	if q.order != nil {
		q.order.forget(now, q.nic)
		q.order = nil
	}
	q.stopTimers()
	q.enter(now, StateReset)
}

func (q *QP) becomeInit(now vtime.Time) { q.enter(now, StateInit) }

func (q *QP) becomeRTR(now vtime.Time) {
	q.mtu = q.attr.PathMTU
	if q.service == wire.UD {
		q.mtu = q.nic.mtu
	}
	q.prio = q.nic.priority(q.attr.AV.TrafficClass)
	q.nic.address(&q.env, q)
	q.nic.meets(q.attr.AV.DGID)
	q.nic.control(q)
	q.nic.selectively(q)
	q.rq.epsn = q.attr.RQPSN
	q.enter(now, StateRTR)
}

func (q *QP) becomeRTS(now vtime.Time) {
	if q.state == StateRTR {
		q.sq.begin(q.attr.SQPSN)
		q.sq.retries, q.sq.rnrRetries = q.attr.RetryCnt, q.attr.RNRRetry
	}
	q.enter(now, StateRTS)
	q.nic.offer(now, q)
}

func (q *QP) becomeSQD(now vtime.Time) {
	q.sq.drainTo, q.sq.drained = q.sq.startedEnd(), false
	q.enter(now, StateSQD)
	q.checkDrained(now)
}

// becomeErr ends the queue pair: queued requests complete as flushed, in order.
func (q *QP) becomeErr(now vtime.Time) {
	if q.state == StateErr {
		return
	}
	q.enter(now, StateErr)
	q.stopTimers()
	if !q.rq.final {
		q.rq.out = queue.FIFO[response]{}
	}
	q.flushSend(now)
	if q.order != nil {
		q.order.forget(now, q.nic)
	}
	q.rq.active = false
	q.rq.endReceive(now, q, WCWRFlushErr)
	for q.own.wqes.Len() > 0 {
		w := q.own.wqes.Pop()
		q.nic.release(w.extras)
		q.complete(now, q.recvCQ, WC{WRID: w.wrid, Status: WCWRFlushErr, QPN: q.num})
	}
	if q.srq != nil {
		q.nic.event(EventLastWQEReached, q) // receives in the SRQ stay for other queue pairs
	}
}

// becomeSQE stops sending after a request of UC or UD failed; receiving continues.
func (q *QP) becomeSQE(now vtime.Time) {
	q.enter(now, StateSQE)
	q.flushSend(now)
	r := &q.sq // the next requests take the numbers of those that were flushed
	r.una, r.maxSeq, r.end, r.cursor = r.nxt, r.nxt, r.nxt, 0
}

func (q *QP) flushSend(now vtime.Time) {
	for q.sq.wqes.Len() > 0 {
		w := q.sq.pop(q)
		q.complete(now, q.sendCQ, WC{WRID: w.wrid, Status: WCWRFlushErr, QPN: q.num})
	}
}

func (q *QP) enter(now vtime.Time, s QPState) {
	q.state, q.attr.State = s, s
	if t := q.nic.trace; t != nil {
		t.Trace(now, machine.Event{Kind: machine.EventQPState, QP: q.num, Text: s.String()})
	}
}

// complete adds a completion that is not solicited.
func (q *QP) complete(now vtime.Time, c *CQ, w WC) { q.push(now, c, w, false) }

// completeRecv adds the completion of a receive.
func (q *QP) completeRecv(now vtime.Time, w WC, solicited bool) { q.push(now, q.recvCQ, w, solicited) }

// push adds a completion; an overrun ends the queue pair.
func (q *QP) push(now vtime.Time, c *CQ, w WC, solicited bool) {
	if w.Status != WCSuccess && w.Status != WCWRFlushErr && q.nic.trace != nil {
		q.nic.trace.Trace(now, machine.Event{Kind: machine.EventQPError, QP: q.num, Text: w.Status.String()})
	}
	if c.push(now, w, solicited) {
		if q.state != StateErr {
			q.nic.event(EventQPFatal, q)
		}
		q.becomeErr(now)
	}
}

func (q *QP) timerRTO() int { return timerQPs + 2*int(q.slot) }
func (q *QP) timerRNR() int { return timerQPs + 2*int(q.slot) + 1 }

func (q *QP) stopTimers() {
	q.nic.timers.Stop(q.timerRTO())
	q.nic.timers.Stop(q.timerRNR())
}
