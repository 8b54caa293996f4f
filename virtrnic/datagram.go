// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// The unacknowledged services. UC sends messages as RC does but without answers: a packet that
// is missing costs its message and nothing else. UD sends messages of one packet to anyone.

// sent treats a packet of UC or UD as complete from the moment it starts on the wire.
func (r *requester) sent(now vtime.Time, q *QP, last bool) {
	r.una = r.nxt
	if last {
		r.finish(now, q)
	}
	q.checkDrained(now)
}

// AddressHandle is the destination of datagrams (ibv_ah).
type AddressHandle struct {
	pd          *PD
	env         wire.Envelope
	dst         uint32
	prio        uint8
	incarnation uint32
	gone        bool
}

// CreateAH returns an address handle. The DGID may be a multicast group.
func (n *NIC) CreateAH(pd *PD, a AH) (*AddressHandle, error) {
	if !pd.belongsTo(n) {
		return nil, fmt.Errorf("create address handle: protection domain of another device: %w", ErrInvalid)
	}
	var q QP // the path does not depend on the queue pair: all of a host to one address share it
	q.attr.AV, q.attr.DestQPN = a, wire.QPNMulticast
	q.prio = n.priority(a.TrafficClass)
	n.meets(a.DGID)
	pd.users++
	n.made.AHs++
	return &AddressHandle{pd: pd, env: n.envelope(&q), dst: a.DGID, prio: q.prio, incarnation: n.incarnation}, nil
}

// DestroyAH destroys an address handle. Requests that were posted with it are still sent.
func (n *NIC) DestroyAH(a *AddressHandle) error {
	if a == nil || a.pd.nic != n || a.gone || a.incarnation != n.incarnation {
		return fmt.Errorf("destroy address handle: %w", ErrInvalid)
	}
	a.gone = true
	a.pd.users--
	n.made.AHs--
	return nil
}

// nextDatagram builds the datagram of a work request.
func (r *requester) nextDatagram(now vtime.Time, q *QP, w *sendWQE) *wire.Frame {
	n := q.nic
	status := WCSuccess
	switch {
	case int(w.length) > q.mtu:
		status = WCLocLenErr
	case w.traits&isInline == 0 && !n.reachable(q.pd, w.sge, w.sgl(), 0):
		status = WCLocProtErr
	}
	if status != WCSuccess {
		r.fail(now, q, w, status)
		return nil
	}
	op := wire.OpUDSendOnly
	if w.opcode == WRSendWithImm {
		op = wire.OpUDSendOnlyImm
	}
	to := &w.extras.ud
	key := to.QKey
	if key>>31 != 0 {
		key = q.attr.QKey
	}
	psn := r.psn(r.nxt)
	f := n.pool.Get()
	f.Start(&to.AH.env, wire.BTH{
		OpCode: op, Migrated: true, PKey: wire.PKeyDefault, DestQP: to.QPN, PSN: psn, Solicited: w.flags&SendSolicited != 0,
	})
	f.AddDETH(wire.DETH{QKey: key, SrcQP: q.num})
	if op == wire.OpUDSendOnlyImm {
		f.AddImm(wire.ImmDt(w.imm))
	}
	switch {
	case w.length == 0:
	case w.traits&isInline != 0:
		copy(attach(n.pool, f, int(w.length)), w.extras.inline)
	case w.traits&isPieces != 0:
		n.gather(q.pd, w.extras.sgl, f, 0, int(w.length))
	default:
		m, at := n.lookup(q.pd, w.sge.LKey, w.sge.Addr, uint64(w.length), 0)
		m.mem.load(n.pool, f, at, int(w.length))
	}
	f.Seal(uint16(psn), n.trust)
	n.stats.Made++
	n.stats.DataPackets++
	r.nxt++
	r.maxSeq = r.nxt
	r.cursor++
	r.sent(now, q, true)
	r.classify(q)
	n.offer(now, q) // the next datagram may belong to another class
	return f
}

// classify gives a UD queue pair the class of the datagram that is next.
func (r *requester) classify(q *QP) {
	if int(r.cursor) < r.wqes.Len() {
		q.prio = r.wqes.At(int(r.cursor)).extras.ud.AH.prio
	}
}

// handleUC handles a request packet of an unreliable connection. A packet with any fault costs
// the message, and the next message may begin with any PSN.
func (r *responder) handleUC(now vtime.Time, q *QP, f *wire.Frame) {
	n := q.nic
	gap := f.PSN() != r.epsn
	if gap {
		n.stats.OutOfSeqRequest++
	}
	if begins := f.OpCode().Is(wire.OpBegin); begins {
		r.active = false // the message before has lost its end; the new one takes its receive
	} else if gap || !r.active {
		r.active = false
		n.drop(now, f, DropSequence)
		return
	}
	r.epsn = f.PSN().Add(1)
	nak, status := r.accept(q, f)
	if nak == 0 && !r.place(q, f) {
		nak, status = r.placeNak()
	}
	if nak != 0 {
		r.active = false
		n.drop(now, f, lossReason(nak))
		if nak == wire.SyndromeRemoteOp { // its own receive is unusable
			r.endReceive(now, q, status)
			q.becomeErr(now)
		}
		return
	}
	if f.OpCode().Is(wire.OpEnd) {
		r.finish(now, q, f)
	}
	n.consume(f)
}

// lossReason turns the NAK that a reliable connection would get into the reason of a
// drop.
func lossReason(nak wire.Syndrome) DropReason {
	switch nak {
	case wire.SyndromeRNR:
		return DropNoReceive
	case wire.SyndromeRemoteAcc:
		return DropAccess
	}
	return DropInvalid
}

// handleDatagram handles a datagram: the global route header and the data go into the
// next receive, or the datagram is dropped.
func (r *responder) handleDatagram(now vtime.Time, q *QP, f *wire.Frame) {
	n := q.nic
	size := uint64(f.PayloadLen())
	switch {
	case f.DETH().QKey != q.attr.QKey:
		n.drop(now, f, DropQKey)
		return
	case q.recv.wqes.Len() == 0:
		n.drop(now, f, DropNoReceive)
		return
	}
	if w := q.recv.wqes.At(0); total(w.sge, w.sgl()) < GRHLen+size {
		n.drop(now, f, DropInvalid) // the receive stays posted for a datagram that fits
		return
	}
	r.take(q)
	// An IPv4 header fills the second half of the 40 bytes, an IPv6 header all of them.
	grh, ip := n.scratch[:GRHLen], f.IPHeader()
	clear(grh)
	copy(grh[GRHLen-len(ip):], ip)
	ok := n.writeBytes(q.pd, r.wr.sge, r.wr.sgl(), 0, grh)
	if ok && size > 0 {
		ok = n.deliver(q.pd, r.wr.sge, r.wr.sgl(), GRHLen, f)
	}
	if !ok {
		n.drop(now, f, DropInvalid)
		r.endReceive(now, q, WCLocProtErr)
		q.becomeErr(now)
		return
	}
	n.stats.BytesReceived += size
	r.got = GRHLen + size
	r.write = false
	r.finish(now, q, f)
	n.consume(f)
}
