// SPDX-License-Identifier: Apache-2.0

package rcpeer

import (
	"context"
	"fmt"
)

// responder is the receiving half.
type responder struct {
	expected uint32 // PSN
	msn      uint32
	nakSent  bool // a NAK for the expected PSN was sent; later packets are dropped without another
	current  op   // isSend or isWrite between the first and the last packet of a message

	posted   int       // receive buffers
	received []Message // completions that no call has returned yet
	data     []byte    // of the SEND under way
	at, left uint64    // of the WRITE under way: offset into Memory, bytes to come
	length   uint32    // of the message under way
}

// PostRecv posts n receive buffers of RecvSize bytes, in addition to those that Recv posts.
func (p *Peer) PostRecv(n int) {
	p.mu.Lock()
	p.rsp.posted += n
	p.mu.Unlock()
}

// Recv posts one receive buffer and waits for the oldest message that no call has received yet.
// A peer that sends while no buffer is posted gets an RNR NAK of 0.64 ms. If ctx ends the
// buffer stays posted.
func (p *Peer) Recv(ctx context.Context) (m Message, err error) {
	p.PostRecv(1)
	err = p.wait(ctx, func() bool {
		if len(p.rsp.received) == 0 {
			return false
		}
		m, p.rsp.received = p.rsp.received[0], p.rsp.received[1:]
		return true
	})
	if err != nil {
		return m, fmt.Errorf("receive on QP %#x: %w", p.cfg.QPN, err)
	}
	return m, nil
}

// WaitMessages waits until the peer has completed n messages since the start, RDMA WRITEs
// without immediate data among them, which no other call reports.
func (p *Peer) WaitMessages(ctx context.Context, n uint64) error {
	if err := p.wait(ctx, func() bool { return p.stats.Messages >= n }); err != nil {
		return fmt.Errorf("wait for %d messages on QP %#x: %w", n, p.cfg.QPN, err)
	}
	return nil
}

// ReadMemory copies from Memory, from address va, and returns the number of bytes.
func (p *Peer) ReadMemory(b []byte, va uint64) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if va < p.cfg.VA || va-p.cfg.VA > uint64(len(p.cfg.Memory)) {
		return 0
	}
	return copy(b, p.cfg.Memory[va-p.cfg.VA:])
}

// handleRequest handles a request packet by its PSN: expected, duplicate, or after a gap.
func (p *Peer) handleRequest(k *packet, o op) {
	r := &p.rsp
	switch ahead := signed(k.psn - r.expected); {
	case ahead < 0 && o&isOther != 0:
		p.reject(badDuplicate)
	case ahead < 0:
		p.stats.Duplicates++
		p.respond(synACK, r.expected-1)
	case ahead > 0:
		p.stats.OutOfSequence++
		if !r.nakSent {
			r.nakSent = true
			p.respond(synSequence, r.expected)
		}
	default:
		r.nakSent = false
		p.execute(k, o)
	}
}

// respond queues an acknowledgment and counts it.
func (p *Peer) respond(syn byte, psn uint32) {
	switch syn >> 5 {
	case typeACK:
		p.stats.AcksSent++
	case typeRNR:
		p.stats.RNRsSent++
	default:
		p.stats.NaksSent++
	}
	p.responses = append(p.responses, packet{opcode: opAck, psn: psn & psnMask, syn: syn, msn: p.rsp.msn})
}

// refuse answers a request with a NAK that ends the connection.
func (p *Peer) refuse(syn byte, k *packet, reason string) {
	p.reject(reason)
	p.respond(syn, k.psn)
	p.fail(fmt.Errorf("%w: opcode %#02x, PSN %#x: %s", ErrRefused, k.opcode, k.psn, reason))
}

// execute runs the packet that is next in sequence, with the checks in Soft-RoCE's order:
// opcode sequence, opcode, receive buffer, length, memory.
func (p *Peer) execute(k *packet, o op) {
	r := &p.rsp
	kind := o & (isSend | isWrite)
	switch {
	case o&isOther != 0:
		p.refuse(synInvalid, k, badOpcode)
		return
	case o&begins != 0 && r.current != 0, o&begins == 0 && r.current != kind:
		p.refuse(synInvalid, k, badSequence)
		return
	case r.posted == 0 && (kind == isSend && o&begins != 0 || kind == isWrite && o&hasImm != 0):
		// Packets under way behind this one are dropped without another NAK.
		r.nakSent = true
		p.respond(synRNR, k.psn)
		return
	}
	if syn, reason := p.place(k, o); reason != "" {
		p.refuse(syn, k, reason)
		return
	}
	r.expected = (r.expected + 1) & psnMask
	p.stats.DataReceived++
	r.current = kind
	if o&ends != 0 {
		r.current = 0
		p.finish(k, o)
	}
	if k.ackReq {
		p.respond(synACK, k.psn)
	}
}

// place checks lengths and memory, and stores the payload.
func (p *Peer) place(k *packet, o op) (syn byte, reason string) {
	r, n, mtu := &p.rsp, len(k.payload), p.cfg.MTU
	switch {
	case !k.padded():
		return synInvalid, badPad
	case o&ends == 0 && n != mtu, n > mtu, o&begins == 0 && n == 0:
		return synInvalid, badSize
	}
	if o&isSend != 0 {
		if o&begins != 0 {
			r.posted--
			r.data, r.length = nil, 0
		}
		if len(r.data)+n > p.cfg.RecvSize {
			return synInvalid, badSize
		}
		r.data = append(r.data, k.payload...)
		r.length += uint32(n)
		return 0, ""
	}
	if o&hasRETH != 0 {
		r.length, r.left = k.length, uint64(k.length)
	}
	if o&hasRETH != 0 && k.length != 0 {
		size := uint64(len(p.cfg.Memory))
		r.at = k.va - p.cfg.VA // if VA is above va this wraps, to far beyond the size
		if k.rkey != p.cfg.RKey || r.at > size || uint64(k.length) > size-r.at {
			return synAccess, badAccess
		}
	}
	// After the last packet of a message no bytes are left, and after any other packet some
	// are.
	if o&ends == 0 && r.left <= uint64(n) || o&ends != 0 && r.left != uint64(n) {
		return synInvalid, badSize
	}
	if n > 0 {
		r.at += uint64(copy(p.cfg.Memory[r.at:], k.payload))
		r.left -= uint64(n)
	}
	return 0, ""
}

// finish completes a message.
func (p *Peer) finish(k *packet, o op) {
	r := &p.rsp
	r.msn = (r.msn + 1) & psnMask
	p.stats.Messages++
	if o&isSend != 0 || o&hasImm != 0 {
		m := Message{Write: o&isWrite != 0, Length: r.length, Imm: k.imm, HasImm: o&hasImm != 0}
		if m.Write {
			r.posted--
		} else {
			m.Data, r.data = r.data, nil
		}
		r.received = append(r.received, m)
	}
	p.notify()
}
