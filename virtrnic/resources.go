// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"encoding/binary"

	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// The responder's side of READ and atomics. The responses to a READ are built one by one when
// the port is free, in turn with the queue pair's own requests. Acknowledgements wait behind
// them, so that answers leave in the order of the requests.

// resource is a READ or atomic that the responder remembers because its requester may repeat it.
type resource struct {
	op       wire.OpCode
	psn      wire.PSN
	packets  uint32
	msn      uint32
	rkey     uint32
	length   uint32
	va       uint64
	original uint64 // atomics: the value in memory before the operation
}

// response is an answer that waits to be sent.
type response struct {
	kind     responseKind
	replayed bool          // a repeat was asked for
	syndrome wire.Syndrome // respondAck
	psn      wire.PSN      // of the answer; of a READ's first
	msn      uint32
	start    uint32 // READ: the answer to begin with, the next one, and their number
	at       uint32
	end      uint32
	rkey     uint32 // READ
	length   uint32 // READ
	va       uint64 // READ
	original uint64 // respondAtomic
	after    uint64 // not 0: it waits for Placed with this number
}

type responseKind uint8

const (
	respondAck responseKind = iota
	respondRead
	respondAtomic
)

// isReadOrAtomic reports whether an opcode is that of a READ request or an atomic.
func isReadOrAtomic(op wire.OpCode) bool {
	return op == wire.OpReadRequest || op == wire.OpCompareSwap || op == wire.OpFetchAdd
}

// answer executes a READ or atomic that is next in order: an atomic at once, a READ when
// its responses are sent.
func (r *responder) answer(now vtime.Time, q *QP, f *wire.Frame) {
	n := q.nic
	e, nak := r.admit(q, f)
	if nak != 0 {
		r.refuse(now, q, f, nak, WCRemInvReqErr)
		return
	}
	if e.op != wire.OpReadRequest {
		e.original = n.execute(q.pd, f)
	}
	r.epsn = r.epsn.Add(int(e.packets))
	r.msn = (r.msn + 1) & 0xffffff
	e.msn = r.msn
	r.remember(int(q.attr.MaxDestRdAtomic), e)
	n.stats.MessagesReceived++
	n.consume(f)
	x := e.from(0, e.length)
	if x.kind == respondAtomic {
		x.after = n.fenced(q)
	}
	r.out.Push(x)
	n.offer(now, q)
}

// admit checks a READ or atomic. It returns the resource to remember, or the NAK to send; nak is
// 0 if the request is in order.
func (r *responder) admit(q *QP, f *wire.Frame) (e resource, nak wire.Syndrome) {
	e = resource{op: f.OpCode(), psn: r.epsn, packets: 1, length: 8}
	need := AccessRemoteAtomic
	if e.op == wire.OpReadRequest {
		h := f.RETH()
		need, e.va, e.rkey, e.length = AccessRemoteRead, h.VA, h.RKey, h.DMALen
		e.packets = packetsOf(h.DMALen, q.mtu)
	} else {
		h := f.AtomicETH()
		e.va, e.rkey = h.VA, h.RKey
	}
	switch {
	case r.active, f.PayloadLen() > 0: // in the middle of a message, or with data
		return e, wire.SyndromeInvalidReq
	case r.underway() >= int(q.attr.MaxDestRdAtomic): // more than were agreed on
		return e, wire.SyndromeInvalidReq
	case q.attr.Access&need == 0, e.length > MaxMessage, uint64(e.packets) > maxOutstanding:
		return e, wire.SyndromeInvalidReq
	case need == AccessRemoteAtomic && e.va&7 != 0:
		return e, wire.SyndromeInvalidReq
	case !q.allows(e.rkey, e.va, e.length, need):
		return e, wire.SyndromeRemoteAcc
	}
	return e, 0
}

// packetsOf returns the number of responses to a READ of length bytes.
func packetsOf(length uint32, mtu int) uint32 {
	return max(1, uint32((uint64(length)+uint64(mtu)-1)/uint64(mtu)))
}

// allows reports whether a request may use the memory that it names. The queue pair must grant the
// right; key, domain, range and the region's rights are checked unless length is 0.
func (q *QP) allows(rkey uint32, va uint64, length uint32, need AccessFlags) bool {
	if q.attr.Access&need == 0 {
		return false
	}
	m, _ := q.nic.lookup(q.pd, rkey, va, uint64(length), need)
	return length == 0 || m != nil
}

// execute performs an atomic, which has been admitted, and returns the memory's earlier value. Words
// are little-endian in memory, as on the hosts that the NIC models.
func (n *NIC) execute(pd *PD, f *wire.Frame) (original uint64) {
	h := f.AtomicETH()
	m, at := n.lookup(pd, h.RKey, h.VA, 8, AccessRemoteAtomic)
	word := n.scratch[:8]
	m.mem.read(word, at)
	original = binary.LittleEndian.Uint64(word)
	n.stats.AtomicsExecuted++
	switch {
	case f.OpCode() == wire.OpFetchAdd:
		binary.LittleEndian.PutUint64(word, original+h.SwapAdd)
	case original == h.Compare:
		binary.LittleEndian.PutUint64(word, h.SwapAdd)
	default:
		return original
	}
	m.mem.write(word, at, len(word))
	return original
}

// from returns the answer to a resource. For a READ it covers length bytes from offset on; for an
// atomic both are ignored.
func (e *resource) from(offset uint64, length uint32) response {
	x := response{kind: respondAtomic, psn: e.psn, msn: e.msn, original: e.original}
	if e.op == wire.OpReadRequest {
		x.kind, x.va, x.rkey, x.length = respondRead, e.va+offset, e.rkey, length
		x.end = e.packets
	}
	return x
}

// underway returns the number of READs and atomics whose answers wait to leave. Replays do not count,
// since the requester may have received the first answer and sent a new request.
func (r *responder) underway() (k int) {
	for i := range r.out.Len() {
		if x := r.out.At(i); x.kind != respondAck && !x.replayed {
			k++
		}
	}
	return k
}

// replays are the READs and atomics that a responder remembers.
type replays struct {
	list []resource
	next int // index of the oldest once the list is full
}

// remember stores a READ or atomic for a replay. Of more than depth the oldest is overwritten.
func (r *responder) remember(depth int, e resource) {
	if r.past == nil {
		r.past = &replays{}
	}
	p := r.past
	if len(p.list) < depth {
		p.list = append(p.list, e)
		return
	}
	p.list[p.next] = e
	p.next = (p.next + 1) % depth
}

// resize changes the number of entries. The most recent ones stay.
func (p *replays) resize(depth int) {
	if p == nil {
		return
	}
	all := append(append([]resource(nil), p.list[p.next:]...), p.list[:p.next]...)
	p.list, p.next = all[max(0, len(all)-depth):], 0
}

// find returns the READ or atomic that a PSN belongs to, or nil. It checks the most recent one first,
// since PSNs wrap around.
func (p *replays) find(psn wire.PSN) *resource {
	if p == nil {
		return nil
	}
	for i := 1; i <= len(p.list); i++ {
		e := &p.list[(p.next-i+len(p.list))%len(p.list)]
		if d := psn.Sub(e.psn); d >= 0 && d < int(e.packets) {
			return e
		}
	}
	return nil
}

// duplicate handles a request that has been executed, which is not executed again (C9-105). A
// SEND or WRITE is acknowledged again if it asks for that, and a READ or atomic is replayed.
func (r *responder) duplicate(now vtime.Time, q *QP, f *wire.Frame) {
	n := q.nic
	switch {
	case isReadOrAtomic(f.OpCode()):
		r.replay(now, q, f)
	case f.AckReq():
		n.stats.Drops[DropDuplicate]++
		r.respond(now, q, f, r.acknowledgeable(f.PSN()), wire.SyndromeACK)
	default:
		n.drop(now, f, DropDuplicate)
	}
}

// acknowledgeable returns the PSN that acknowledges the repeat of a SEND or WRITE. It is that of
// the last request executed, or the one before the next READ or atomic, which only its own
// response may acknowledge.
func (r *responder) acknowledgeable(psn wire.PSN) wire.PSN {
	last := r.epsn.Add(-1)
	if r.past == nil {
		return last
	}
	for i := range r.past.list {
		if at := r.past.list[i].psn; at.After(psn) && !at.After(last) {
			last = at.Add(-1)
		}
	}
	return last
}

// replay answers a repeated READ by reading again, and a repeated atomic with the value returned
// before. The key, the domain and the rights are checked again. A repeat that is not remembered,
// or asks for more than its request did, is dropped.
func (r *responder) replay(now vtime.Time, q *QP, f *wire.Frame) {
	n := q.nic
	psn := f.PSN()
	e := r.past.find(psn)
	x, ok := response{}, false
	if e != nil && e.op == f.OpCode() {
		x, ok = r.repeat(q, f, e)
	}
	n.drop(now, f, DropDuplicate)
	if !ok || r.rewind(x) || r.out.Len() >= 2*int(q.attr.MaxDestRdAtomic)+8 {
		return
	}
	n.stats.Replayed++
	x.replayed = true
	if x.kind == respondAtomic {
		x.after = n.fenced(q)
	}
	r.out.Push(x)
	n.offer(now, q)
}

// repeat returns the answer to a repeat of a remembered request.
func (r *responder) repeat(q *QP, f *wire.Frame, e *resource) (x response, ok bool) {
	if e.op != wire.OpReadRequest {
		h := f.AtomicETH()
		return e.from(0, 0), h.VA == e.va && h.RKey == e.rkey && q.allows(e.rkey, e.va, 8, AccessRemoteAtomic)
	}
	h := f.RETH()
	skip := uint32(f.PSN().Sub(e.psn))
	done := uint64(skip) * uint64(q.mtu)
	switch {
	case h.RKey != e.rkey, h.VA != e.va+done:
		return x, false
	case done+uint64(h.DMALen) > uint64(e.length):
		return x, false // more than the request itself: nothing beyond it may be read
	case !q.allows(h.RKey, h.VA, h.DMALen, AccessRemoteRead):
		return x, false
	}
	x = e.from(done, h.DMALen)
	x.psn, x.end = f.PSN(), packetsOf(h.DMALen, q.mtu)
	return x, true
}

// rewind reports whether the same answer waits already. If it is that of a READ which is already
// further, it takes the READ back to the repeat's first packet.
func (r *responder) rewind(x response) bool {
	for i := range r.out.Len() {
		y := r.out.At(i)
		if y.kind != x.kind || y.kind == respondAck {
			continue
		}
		if y.kind == respondAtomic {
			if y.psn == x.psn {
				return true
			}
			continue
		}
		// The same READ from the same point or a later one: it ends where this ends.
		d := x.psn.Sub(y.psn)
		if d < 0 || d >= int(y.end) || y.va+uint64(y.length) != x.va+uint64(x.length) {
			continue
		}
		if uint32(d) < y.at {
			y.at, y.start = uint32(d), uint32(d)
		}
		return true
	}
	return false
}

// postpone puts an acknowledgement behind the answers that wait. If the last of them is an
// acknowledgement, the two are merged into the one with the later PSN, except that the first to leave does not wait longer.
func (r *responder) postpone(x response) {
	k := r.out.Len()
	if k > 0 && x.syndrome.IsACK() {
		if last := r.out.At(k - 1); last.kind == respondAck && last.syndrome.IsACK() && (k > 1 || x.after <= last.after) {
			if x.psn.After(last.psn) {
				last.psn, last.msn = x.psn, x.msn
			}
			last.after = max(last.after, x.after)
			return
		}
	}
	if k < 2*MaxRdAtomic+8 {
		r.out.Push(x)
	}
}

// nextResponse builds the packet of the first answer that waits. It returns nil if the memory of a
// READ is gone and the queue pair is in ERR already.
func (r *responder) nextResponse(now vtime.Time, q *QP) *wire.Frame {
	n := q.nic
	x := r.out.At(0)
	psn := x.psn.Add(int(x.at))
	f := n.pool.Get()
	h := wire.AETH{Syndrome: wire.SyndromeACK, MSN: x.msn}
	switch x.kind {
	case respondAck:
		h.Syndrome = x.syndrome
		r.acknowledgement(q, f, psn, h)
		r.out.Pop()
		return f
	case respondAtomic:
		f.StartNext(&q.env, wire.OpAtomicAck, psn, 0)
		f.AddAETH(h)
		f.AddAtomicAckETH(wire.AtomicAckETH{Original: x.original})
		r.out.Pop()
	case respondRead:
		if !r.readResponse(q, f, x, psn, h) {
			return r.readFailed(now, q, f, psn)
		}
		if x.at++; x.at == x.end {
			r.out.Pop()
		}
	}
	f.Seal(uint16(psn), n.trust)
	n.stats.Made++
	n.stats.ResponsesSent++
	return f
}

// readResponse builds the next response of a READ, which the caller seals, and reports whether the
// memory could be read. The region is looked up for each response, since it may have been
// deregistered meanwhile.
func (r *responder) readResponse(q *QP, f *wire.Frame, x *response, psn wire.PSN, h wire.AETH) bool {
	n := q.nic
	off := uint64(x.at) * uint64(q.mtu)
	size := min(uint64(q.mtu), uint64(x.length)-off)
	var m *MR
	var at uint64
	if size > 0 {
		if m, at = n.lookup(q.pd, x.rkey, x.va+off, size, AccessRemoteRead); m == nil || q.attr.Access&AccessRemoteRead == 0 {
			return false
		}
	}
	op := wire.OpReadRespMiddle
	switch first, last := x.at == x.start, x.at+1 == x.end; {
	case first && last:
		op = wire.OpReadRespOnly
	case first:
		op = wire.OpReadRespFirst
	case last:
		op = wire.OpReadRespLast
	}
	f.StartNext(&q.env, op, psn, 0)
	if op != wire.OpReadRespMiddle {
		f.AddAETH(h)
	}
	if size > 0 {
		m.mem.load(n.pool, f, at, int(size))
	}
	return true
}

// readFailed ends the queue pair because the memory of a READ under way is gone.
func (r *responder) readFailed(now vtime.Time, q *QP, f *wire.Frame, psn wire.PSN) *wire.Frame {
	r.out = queue.FIFO[response]{}
	if q.state == StateErr {
		q.nic.pool.Put(f)
		return nil
	}
	r.acknowledgement(q, f, psn, wire.AETH{Syndrome: wire.SyndromeRemoteAcc, MSN: r.msn})
	q.nic.event(EventQPAccessErr, q)
	q.becomeErr(now)
	return f
}
