// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// sendWQE is a work request in the send queue: the fields of its SendWR, its packets, and its state.
type sendWQE struct {
	wrid       uint64
	sge        SGE // the local memory, if it is one piece
	remoteAddr uint64
	rkey, imm  uint32
	extras     *extras // nil: it has none
	first      uint64  // its first packet; a READ has as many as its responses
	packets    uint32
	length     uint32 // bytes
	opcode     WROpcode
	flags      SendFlags
	failed     WCStatus // not 0: it cannot be sent, and completes with this when it is the oldest
	traits     traits
}

// traits are bits that mark a request as different from the plain kind, which has one piece of memory
// and waits for nothing.
type traits uint8

const (
	isRead   traits = 1 << iota // READ or atomic: answered by more than an acknowledgement
	isFenced                    // waits for the READs and atomics before it
	isPieces                    // several pieces of memory
	isInline                    // takes its data from itself
	isDatagram
)

func (w *sendWQE) end() uint64 { return w.first + uint64(w.packets) }

// sgl returns the local memory if it is several pieces, else nil.
func (w *sendWQE) sgl() []SGE {
	if w.traits&isPieces == 0 {
		return nil
	}
	return w.extras.sgl
}

// PostSend adds a request to the send queue. In ERR (UC and UD: in SQE as well) it
// completes as flushed at once.
func (n *NIC) PostSend(now vtime.Time, q *QP, wr SendWR) error { return n.PostSendWR(now, q, &wr) }

// PostSendWR is PostSend of a request that stays the caller's.
func (n *NIC) PostSendWR(now vtime.Time, q *QP, wr *SendWR) error {
	length := total(wr.SGE, wr.SGL)
	if wr.Flags&SendInline != 0 {
		length = uint64(len(wr.Inline))
	}
	if err := q.checkSend(wr, length); err != nil {
		return fmt.Errorf("post send to queue pair %d: %w", q.num, err)
	}
	if q.state == StateErr || q.state == StateSQE {
		q.complete(now, q.sendCQ, WC{WRID: wr.WRID, Status: WCWRFlushErr, QPN: q.num})
		return nil
	}
	if q.sq.wqes.Len() >= int(q.sq.max) {
		return fmt.Errorf("post send to queue pair %d: %d work requests are outstanding: %w", q.num, q.sq.wqes.Len(), ErrNoMem)
	}
	n.settleBefore(now)
	w := q.sq.push(wr, uint32(length))
	w.packets = uint32(max(1, (length+uint64(q.mtu)-1)/uint64(q.mtu)))
	if wr.SGL != nil || wr.Flags&(SendInline|SendFence) != 0 || wr.Opcode >= WRRDMARead || q.service != wire.RC {
		q.prepare(w, wr)
	}
	q.sq.end += uint64(w.packets)
	if n.requests != nil {
		q.tell(now, machine.RequestPosted, w, WCSuccess)
	}
	if w.traits&isDatagram != 0 && !q.queued {
		q.sq.classify(q)
	}
	n.offer(now, q)
	n.start(now)
	return nil
}

// checkSend returns why the verb refuses a request, or nil.
func (q *QP) checkSend(wr *SendWR, length uint64) error {
	read := wr.Opcode >= WRRDMARead && wr.Opcode <= WRAtomicFetchAdd
	ok := wr.Opcode <= WRSendWithImm
	switch q.service {
	case wire.RC:
		ok = ok || read || wr.Opcode == WRSendWithInv
	case wire.UD:
		ok = wr.Opcode == WRSend || wr.Opcode == WRSendWithImm
	}
	switch {
	case q.state == StateReset || q.state == StateInit || q.state == StateRTR:
		return fmt.Errorf("it is in %v: %w", q.state, ErrState)
	case !ok:
		return fmt.Errorf("opcode %d: %w", wr.Opcode, ErrInvalid)
	case length > MaxMessage:
		return fmt.Errorf("%d bytes are more than 2 GiB: %w", length, ErrInvalid)
	case len(wr.SGL) > int(q.sq.pieces):
		return fmt.Errorf("%d pieces of memory, the queue pair takes %d: %w", len(wr.SGL), q.sq.pieces, ErrInvalid)
	case wr.Flags&SendInline != 0 && (read || length > uint64(q.sq.inline)):
		return fmt.Errorf("%d bytes inline, the queue pair takes %d: %w", length, q.sq.inline, ErrInvalid)
	case read && length > uint64(maxOutstanding)*uint64(q.mtu):
		return fmt.Errorf("READ of %d bytes has more packets than may be outstanding: %w", length, ErrInvalid)
	case q.service == wire.UD && (wr.UD.AH == nil || wr.UD.AH.pd != q.pd):
		return fmt.Errorf("a datagram needs an address handle of the queue pair's domain: %w", ErrInvalid)
	}
	return nil
}

// prepare completes a work request that is not of the plain kind.
func (q *QP) prepare(w *sendWQE, wr *SendWR) {
	atomic := wr.Opcode == WRAtomicCmpAndSwp || wr.Opcode == WRAtomicFetchAdd
	datagram := q.service == wire.UD
	var list []SGE
	if wr.Flags&SendInline != 0 {
		w.traits |= isInline
	} else if w.sge, list = normalize(wr.SGE, wr.SGL); list != nil {
		w.traits |= isPieces
	}
	if w.traits != 0 || atomic || datagram {
		x := q.nic.extra()
		x.sgl, x.swapAdd, x.compare, x.ud = append(x.sgl, list...), wr.SwapAdd, wr.Compare, wr.UD
		if w.traits&isInline != 0 {
			x.inline = append(x.inline, wr.Inline...)
		}
		w.extras = x
	}
	if wr.Flags&SendFence != 0 {
		w.traits |= isFenced
	}
	if wr.Opcode == WRRDMARead || atomic {
		w.traits |= isRead
		q.sq.reads++
	}
	if q.service != wire.RC {
		q.nic.unacked++
	}
	if datagram {
		w.traits |= isDatagram
	}
	if atomic || datagram {
		w.packets = 1
	}
}

// sendOps holds the opcodes of a message's packets: of the first, of the last, of both at
// once and of those between.
var sendOps = buildSendOps()

func buildSendOps() (t [16][2][2]wire.OpCode) {
	for o := range t {
		t[o] = [2][2]wire.OpCode{
			{opcodeOf(WROpcode(o), false, false), opcodeOf(WROpcode(o), false, true)},
			{opcodeOf(WROpcode(o), true, false), opcodeOf(WROpcode(o), true, true)},
		}
	}
	return t
}

// sendOpcode returns the opcode of a packet of a message.
func sendOpcode(o WROpcode, first, last bool) wire.OpCode {
	var i, j uint
	if first {
		i = 1
	}
	if last {
		j = 1
	}
	return sendOps[o%16][i][j]
}

func opcodeOf(o WROpcode, first, last bool) wire.OpCode {
	if o == WRSendWithInv && last {
		if first {
			return wire.OpSendOnlyInv
		}
		return wire.OpSendLastInv
	}
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
