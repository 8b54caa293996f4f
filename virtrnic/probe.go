// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Probe visits the state that packets in order and their acknowledgements change in the NIC, in the middle of
// messages. It refuses more complex state: selective repeat, congestion control at work, READs, pauses.
func (n *NIC) Probe(p *machine.Probe) {
	t := &n.tx
	switch {
	case n.intake != nil || n.turns || n.raw || n.credits:
		p.Refuse("a NIC that holds frames back, or returns them")
	case t.stalled || t.paused != 0 || t.pauses.Len() > 0 || t.held.Len() > 0 || t.weights != nil:
		p.Refuse("a NIC that is stopped, paced, or shares its port by weights")
	case n.unacked > 0 || n.requests != nil || n.reordered > 0 || n.back.Len() > 0:
		p.Refuse("datagrams, a trace of messages, or packets out of order")
	}
	n.probeStats(p)
	n.timers.Visit(func(at *vtime.Time) { p.Deadline(at, "a timer of a NIC") })
	p.Past(&t.elig, "when a NIC had something to send")
	p.Same(uint64(t.ready), "what a NIC has to send")
	for prio := range t.made {
		if t.ready>>prio&1 == 0 {
			continue
		}
		made, round := &t.made[prio], &t.round[prio]
		first := 0
		if t.first != nil && int(t.prio) == prio {
			first = 1
			p.Frame(t.first, false)
		}
		p.Same(uint64(first+made.Len())<<32|uint64(round.Len()), "how much a NIC has to send")
		for i := range made.Len() {
			p.Frame(*made.At(i), false)
		}
		for i := range round.Len() {
			p.Same(uint64(indexOf((*round.At(i)).num)), "whose turn it is")
		}
	}
	for _, q := range n.qps {
		if q != nil && !p.Ended() {
			q.probe(p)
		}
	}
}

// probeStats visits the counters.
func (n *NIC) probeStats(p *machine.Probe) {
	s := &n.stats
	for _, c := range []*uint64{&s.SentPkts, &s.RcvdPkts, &s.Made, &s.Delivered, &s.DataPackets, &s.AcksSent, &s.AcksRcvd, &s.BytesReceived} {
		p.Count(c, "a counter of a NIC")
	}
	p.Same(n.completions+n.failures, "completions")
	p.Same(s.Loopback+s.Dropped()+s.Retransmitted+s.DuplicateRequest+s.OutOfSeqRequest+s.SendRNR+s.RcvdRNR+s.SendNAK+s.RcvdNAK+
		s.CompleterRetry+s.Timeouts+s.RetryExceeded+s.RNRRetryExceeded+s.ImpliedNAK+s.ResponsesSent+s.ResponsesRcvd+s.Replayed+
		s.AtomicsExecuted+s.ECNMarked+s.CNPSent+s.CNPHandled+s.PausesSent+s.PausesReceived+s.PausesIgnored+s.MessagesSent+
		s.MessagesReceived+s.CompletionsOverflow+s.Waited, "a counter of what is rare")
}

// probe visits a queue pair.
func (q *QP) probe(p *machine.Probe) {
	p.Same(uint64(q.state), "a queue pair's state")
	p.Flags("a queue pair's turn", q.queued, q.established)
	sends, receives := q.sq.probe(p, q), q.rq.probe(p, q)
	if (sends || receives) && (q.cc != nil || q.order != nil || q.sq.sel != nil || q.service != wire.RC) {
		p.Refuse("congestion control, selective repeat, or another service than RC")
	}
}

// probe visits the sending half, and reports whether it moves.
func (r *requester) probe(p *machine.Probe, q *QP) (moves bool) {
	una, nxt, most := p.Seq(&r.una, "what is acknowledged"), p.Seq(&r.nxt, "what is sent"), p.Seq(&r.maxSeq, "what was sent")
	p.Same(r.end, "what is to be sent")
	p.Same(uint64(r.wqes.Len())<<32|uint64(r.cursor), "work requests")
	if r.una == r.end {
		return false
	}
	p.Same(r.nakAt<<16|uint64(r.retries)<<8|uint64(r.rnrRetries), "repeats")
	p.Flags("a message that is sent", r.midway, r.drained)
	if r.rnrWait || r.reads > 0 || int(r.cursor) >= r.wqes.Len() || r.nxt != r.maxSeq || q.state != StateRTS {
		p.Refuse("a queue pair that waits, repeats, reads, or has sent all")
		return true
	}
	w := r.wqes.At(int(r.cursor))
	if r.nxt == w.first || w.failed != WCSuccess || w.traits != 0 {
		p.Refuse("a work request that begins, or is not plain")
	}
	if _, phantom := q.memoryOf(w).(Phantom); !phantom {
		p.Refuse("memory with bytes")
	}
	if p.Compares() {
		if !una || !nxt || !most {
			p.Refuse("a queue pair that is behind the others")
		}
		// In each period as many packets ask for an acknowledgement, and the last of the message is not among them.
		p.Whole(uint64(q.nic.ackEvery))
		p.Ahead(w.end() - 1 - r.nxt)
	}
	return true
}

// memoryOf returns the memory of a work request with one piece, or nil.
func (q *QP) memoryOf(w *sendWQE) Memory {
	if m, _ := q.nic.lookup(q.pd, w.sge.LKey, w.sge.Addr, uint64(w.length), 0); m != nil {
		return m.mem
	}
	return nil
}

// probe visits the receiving half, and reports whether it moves.
func (r *responder) probe(p *machine.Probe, q *QP) (moves bool) {
	moves = p.PSN(&r.epsn, "what is expected")
	p.Same(uint64(r.msn), "messages received")
	p.Flags("what is received", r.active, r.nakSent, r.turn)
	if r.out.Len() > 0 {
		p.Refuse("a responder with answers to send")
	}
	if !r.active {
		if moves {
			p.Refuse("short messages")
		}
		return moves
	}
	p.Flags("the message that is received", r.write, r.hasWR, r.placed)
	p.Count(&r.off, "where a packet goes")
	p.Count(&r.left, "what is to come")
	p.Count(&r.got, "what has come")
	if r.nakSent || r.pieces || r.mr == nil {
		p.Refuse("a receive that has a gap, or several pieces")
		return moves
	}
	if _, phantom := r.mr.mem.(Phantom); !phantom {
		p.Refuse("memory with bytes")
	}
	if p.Compares() {
		if !moves {
			p.Refuse("a receive that is behind the others")
		}
		p.Ahead(r.left/uint64(q.mtu) - min(1, r.left/uint64(q.mtu)))
	}
	return moves
}

// Remaining returns the queue pair of RC that has most packets of its present message to send for the first time, and
// their number; nil if there is none. looked is the number of places for queue pairs that it has searched.
func (n *NIC) Remaining() (most *QP, packets uint64, looked int) {
	for _, q := range n.qps {
		if q == nil || int(q.sq.cursor) >= q.sq.wqes.Len() || q.service != wire.RC {
			continue
		}
		if left := q.sq.wqes.At(int(q.sq.cursor)).end() - q.sq.nxt; left > packets {
			most, packets = q, left
		}
	}
	return most, packets, len(n.qps)
}

// Sent returns a count that goes up by one with each packet that is sent for the first time. Only differences
// of two values have a meaning.
func (q *QP) Sent() uint64 { return q.sq.maxSeq }
