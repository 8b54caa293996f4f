// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// selective is the state by which a requester repeats only missing packets. Packets have the
// requester's numbers. Invariant: nxt of the requester is maxSeq, since repeats do not move it.
type selective struct {
	cap    uint64  // packets that may be under way
	sacked bitRing // packets beyond una that the receiver has reported
	top    uint64  // the packet after the last one that was reported
	repeat uint64  // the next candidate for a repeat
	lost   uint64  // packets before this one that have not been reported count as lost

	recovering    bool
	recover       uint64     // recovery is over when una gets here
	progressAt    vtime.Time // when there was progress, or a retry was spent, last
	armed         vtime.Time // when the timer was set last
	short         int        // short timeouts since then, which count as no retry
	report        wire.SACK  // the SACK of the response being handled; valid while reported is set
	base          wire.PSN   // the PSN of that response, which its sender expects next
	reported      bool
	peerSelective bool // the sender of that response keeps packets that come out of order
}

func (s *selective) begin(una uint64) {
	s.sacked, s.recovering, s.short = bitRing{}, false, 0
	s.top, s.repeat, s.lost = una, una, una
}

// arm records that the timer is set. If restart is false it was not running before, so the time
// without progress begins now.
func (s *selective) arm(now vtime.Time, restart bool) {
	s.armed = now
	if !restart {
		s.progressAt = now
	}
}

// note keeps the SACK of a response, because the frame is used up before the SACK is needed.
func (s *selective) note(f *wire.Frame) {
	s.report, s.reported = f.SACK()
	s.base, s.peerSelective = f.PSN(), f.Selective()
}

// takes reports whether the response being handled carries a SACK for una, and returns true
// once per response. The SACK is for a later packet if a READ at una is not complete.
func (s *selective) takeSACK(r *requester) bool {
	yes := s.reported && s.base == r.psn(r.una)
	s.reported = false
	return yes
}

// next returns the next packet to repeat, which is before maxSeq, if there is one.
func (s *selective) next(r *requester) (seq uint64, ok bool) {
	s.repeat = max(s.repeat, r.una)
	for s.repeat < s.lost && s.sacked.has(s.repeat) {
		s.repeat++
	}
	return s.repeat, s.repeat < s.lost
}

// advance records that packets were acknowledged, from an older una to the requester's.
func (s *selective) advance(now vtime.Time, old uint64, r *requester) {
	for seq := old; seq < min(r.una, s.top); seq++ {
		s.sacked.clear(seq)
	}
	s.top = max(s.top, r.una)
	s.lost = max(s.lost, r.una)
	s.progressAt, s.short = now, 0
	if s.recovering && r.una >= s.recover {
		s.recovering = false
	}
}

// merge adds a report to sacked. A packet beyond maxSeq, or so far beyond una that its bit would
// stand for another packet, was never sent, and is ignored.
func (s *selective) merge(r *requester) {
	limit := min(r.maxSeq, r.una+irnSlots)
	mark := func(seq uint64) {
		if seq > r.una && seq < limit {
			s.sacked.set(seq)
			s.top = max(s.top, seq+1)
		}
	}
	for i := range uint64(64) {
		if s.report.Lo>>i&1 != 0 {
			mark(r.una + 1 + i)
		}
		if s.report.Hi>>i&1 != 0 {
			mark(r.una + 65 + i)
		}
	}
	if d := s.report.PSN.Sub(r.psn(r.una)); d > 0 {
		mark(r.una + uint64(d))
	}
}

// handleReport handles a NAK that carries a SACK. The expected packet, and each packet that is
// missing before one that has come, counts as lost. It is repeated once, in this recovery or
// in the one before if the hole is older; a repeat that is lost is found by the timeout.
func (r *requester) handleReport(now vtime.Time, q *QP) {
	s := r.sel
	s.merge(r)
	s.sacked.clear(r.una)
	if r.rnrWait {
		return
	}
	if !s.recovering {
		s.recovering, s.recover = true, r.maxSeq
		s.lost = max(s.lost, r.una+1)
		q.nic.stats.CompleterRetry++
		if q.nic.trace != nil {
			q.nic.trace.Trace(now, machine.Event{Kind: machine.EventNakReceived, QP: q.num, PSN: r.psn(r.una)})
		}
	}
	s.lost = min(max(s.lost, s.top), r.maxSeq)
	q.nic.offer(now, q)
}

// repeatOldest handles a NAK without a SACK from a peer that keeps packets that come out of
// order: a group whose switches have merged the reports of its members. One packet is missing
// at some member, and only that packet is repeated, once until there is progress.
func (r *requester) repeatOldest(now vtime.Time, q *QP) {
	if r.nakAt == r.una+1 {
		return
	}
	r.nakAt = r.una + 1
	s := r.sel
	if s.repeat > r.una && s.lost > r.una {
		return // the repeat is under way, or will be sent
	}
	s.repeat, s.lost = r.una, max(s.lost, r.una+1)
	s.sacked.clear(r.una)
	q.nic.stats.CompleterRetry++
	if q.nic.trace != nil {
		q.nic.trace.Trace(now, machine.Event{Kind: machine.EventNakReceived, QP: q.num, PSN: r.psn(r.una)})
	}
	q.nic.offer(now, q)
}

// rewind makes sending start again at una: of all packets, or of those that the receiver
// has not reported. The first one is repeated in any case.
func (r *requester) rewind() {
	s := r.sel
	if s == nil {
		r.seek(r.una)
		return
	}
	s.recovering, s.recover = true, r.maxSeq
	s.repeat, s.lost = r.una, r.maxSeq
	s.sacked.clear(r.una) // it may have been reported, and refused when its turn came
}

// repeat builds packet seq again. For a READ that is the request for all of it from seq on.
func (r *requester) repeat(now vtime.Time, q *QP, seq uint64) *wire.Frame {
	r.seek(seq)
	f := r.nextRequest(now, q)
	if q.state != StateErr {
		r.sel.repeat = max(seq+1, r.nxt)
		r.seek(r.maxSeq)
	}
	return f
}

// rto returns the retransmission timeout; 0 is none.
func (r *requester) rto(q *QP) vtime.Duration {
	d := Timeout(q.attr.Timeout)
	if d == 0 || r.sel == nil {
		return d
	}
	short := q.nic.irn.RTOHigh
	if r.maxSeq-r.una <= irnFew {
		short = q.nic.irn.RTOLow
	}
	for range r.sel.short - irnShort {
		if short >= d {
			break
		}
		short *= 2
	}
	return min(d, short)
}

// firedEarly reports whether the timer was set for few packets and fired before the timeout for
// the many that are outstanding now. If so it is set again.
func (r *requester) firedEarly(now vtime.Time, q *QP) bool {
	if r.sel == nil {
		return false
	}
	at := r.sel.armed.Add(r.rto(q))
	if at <= now {
		return false
	}
	q.nic.timers.Set(q.timerRTO(), at)
	return true
}

// shortTimeout reports whether a timeout is one of IRN's short ones, which repeat packets but
// count as no retry. Retries are counted as without IRN, one per verbs timeout without progress, and the last of many
// short ones may end later than that.
func (r *requester) shortTimeout(now vtime.Time, q *QP) bool {
	s := r.sel
	if s == nil {
		return false
	}
	if now.Sub(s.progressAt) < Timeout(q.attr.Timeout) {
		s.short++
		return true
	}
	s.progressAt, s.short = now, 0
	return false
}
