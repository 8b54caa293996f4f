package virtrnic

import (
	"fmt"

	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// QP is a queue pair of the RC service.
type QP struct {
	nic    *NIC
	num    wire.QPN
	index  int
	state  QPState
	attr   QPAttr
	pd     *PD
	sendCQ *CQ
	recvCQ *CQ
	sigAll bool
	prio   uint8
	mtu    int
	env    wire.Envelope
	queued bool // in the NIC's round
	sq     requester
	rq     responder
	cc     *congestion // nil without congestion control
	order  *reorder    // nil with go-back-N
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
	if init.PD == nil || init.PD.nic != n || init.SendCQ == nil || init.RecvCQ == nil {
		return nil, fmt.Errorf("create queue pair: needs a protection domain and completion queues of the device: %w", ErrInvalid)
	}
	if init.MaxSendWR < 0 || init.MaxSendWR > MaxQPWR || init.MaxRecvWR < 0 || init.MaxRecvWR > MaxQPWR {
		return nil, fmt.Errorf("create queue pair: work request limit beyond %d: %w", MaxQPWR, ErrInvalid)
	}
	if len(n.qps) >= MaxQPs {
		return nil, fmt.Errorf("create queue pair: %d exist: %w", len(n.qps), ErrNoMem)
	}
	q := &QP{
		nic: n, index: len(n.qps), num: firstQPN + wire.QPN(len(n.qps)), pd: init.PD,
		sendCQ: init.SendCQ, recvCQ: init.RecvCQ, sigAll: init.SQSigAll,
	}
	q.sq.max, q.rq.max = init.MaxSendWR, init.MaxRecvWR
	n.qps = append(n.qps, q)
	n.timers.Grow(timerQPs + 2*len(n.qps))
	return q, nil
}

// DestroyQP takes the queue pair back. Its number is not used again, so late packets
// find no queue pair.
func (n *NIC) DestroyQP(now vtime.Time, q *QP) error {
	if q.index >= len(n.qps) || n.qps[q.index] != q {
		return fmt.Errorf("destroy queue pair: %w", ErrInvalid)
	}
	n.settleBefore(now)
	q.becomeReset(now)
	n.qps[q.index] = nil
	n.start(now)
	return nil
}

// qp returns the queue pair with the given number, or nil.
func (n *NIC) qp(num wire.QPN) *QP {
	i := int(num) - int(firstQPN)
	if i < 0 || i >= len(n.qps) {
		return nil
	}
	return n.qps[i]
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
	q.sq = requester{max: q.sq.max}
	q.rq = responder{max: q.rq.max}
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
	q.prio = q.attr.AV.TrafficClass >> 5
	q.env = q.nic.envelope(q)
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

// becomeErr ends the queue pair: what is queued completes as flushed, in order.
func (q *QP) becomeErr(now vtime.Time) {
	if q.state == StateErr {
		return
	}
	q.enter(now, StateErr)
	q.stopTimers()
	q.flush(now)
}

func (q *QP) flush(now vtime.Time) {
	for q.sq.n > 0 {
		w := q.sq.pop()
		q.complete(now, q.sendCQ, WC{WRID: w.wr.WRID, Status: WCWRFlushErr, QPN: q.num})
	}
	if q.order != nil {
		q.order.forget(now, q.nic)
	}
	q.rq.abandon()
	for q.rq.n > 0 {
		w := q.rq.pop()
		q.complete(now, q.recvCQ, WC{WRID: w.WRID, Status: WCWRFlushErr, QPN: q.num})
	}
}

func (q *QP) enter(now vtime.Time, s QPState) {
	q.state, q.attr.State = s, s
	if t := q.nic.trace; t != nil {
		t.Trace(now, machine.Event{Kind: machine.EventQPState, QP: q.num, Text: s.String()})
	}
}

// complete adds a completion; an overrun ends the queue pair.
func (q *QP) complete(now vtime.Time, c *CQ, w WC) {
	if w.Status != WCSuccess && w.Status != WCWRFlushErr && q.nic.trace != nil {
		q.nic.trace.Trace(now, machine.Event{Kind: machine.EventQPError, QP: q.num, Text: w.Status.String()})
	}
	if c.push(now, w) {
		q.becomeErr(now)
	}
}

func (q *QP) timerRTO() int { return timerQPs + 2*q.index }
func (q *QP) timerRNR() int { return timerQPs + 2*q.index + 1 }

func (q *QP) stopTimers() {
	q.nic.timers.Stop(q.timerRTO())
	q.nic.timers.Stop(q.timerRNR())
}
