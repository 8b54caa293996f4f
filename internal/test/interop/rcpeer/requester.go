// SPDX-License-Identifier: Apache-2.0

package rcpeer

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// maxMessage is the longest message of the RC service in bytes.
const maxMessage = 1 << 31

// Request is a SEND, an RDMA WRITE or a FETCH_ADD to make.
type Request struct {
	Data   []byte // not of a FETCH_ADD
	Write  bool
	VA     uint64 // of a WRITE or FETCH_ADD: address in the peer's memory
	RKey   uint32
	Imm    uint32 // opaque
	HasImm bool
	Atomic bool // FETCH_ADD of Add to 8 bytes
	Add    uint64
}

// request is a Request that has its packet numbers.
type request struct {
	Request
	first, packets uint64
	done           bool
	before         uint64 // earlier value of the memory of a FETCH_ADD
}

// requester is the sending half. It numbers packets from 0 without wrap; the PSN on the
// wire is StartPSN plus the number, modulo 2^24.
type requester struct {
	queue []*request // not all acknowledged
	end   uint64     // after the last packet of the queue
	next  uint64     // to send
	una   uint64     // oldest not acknowledged
	limit uint64     // after the last ever sent

	deadline time.Time // of the retransmission timer; zero when it is off
	resume   time.Time // after an RNR NAK: sending is suspended until then; otherwise zero
	retried  bool      // went back since the last progress
	retries  int
	rnrs     int
}

// Send sends a message of at most 2^31 bytes and waits until it is acknowledged.
func (p *Peer) Send(ctx context.Context, data []byte) error {
	return p.Do(ctx, Request{Data: data})
}

// Write writes data to the peer's memory at va and waits until it is acknowledged.
func (p *Peer) Write(ctx context.Context, data []byte, va uint64, rkey uint32) error {
	return p.Do(ctx, Request{Data: data, Write: true, VA: va, RKey: rkey})
}

// FetchAdd adds to 8 bytes of the peer's memory at va and returns their earlier value.
func (p *Peer) FetchAdd(ctx context.Context, add, va uint64, rkey uint32) (before uint64, err error) {
	w := p.Post(Request{Atomic: true, Add: add, VA: va, RKey: rkey})
	err = w.Wait(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	return w.request.before, err
}

// Do makes a request and waits until all of it is acknowledged.
func (p *Peer) Do(ctx context.Context, r Request) error { return p.Post(r).Wait(ctx) }

// Post queues a request behind those posted before and returns at once. Packets of
// several requests are sent without a pause between them, as the window allows. The data
// is copied.
func (p *Peer) Post(r Request) *Pending {
	r.Data = slices.Clone(r.Data)
	q := &request{Request: r, packets: uint64(max(1, (len(r.Data)+p.cfg.MTU-1)/p.cfg.MTU))}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil && len(r.Data) <= maxMessage {
		q.first = p.req.end
		p.req.end += q.packets
		p.req.queue = append(p.req.queue, q)
		p.poke()
	}
	return &Pending{p, q}
}

// Pending is a request that was posted.
type Pending struct {
	peer    *Peer
	request *request
}

// Wait waits until all of the request is acknowledged. If ctx ends, the request continues: the order of
// PSNs cannot be undone. The error wraps ErrRetryExceeded, ErrRNRExceeded, ErrRemote, ErrRefused or
// ErrClosed, or is that of the port or of ctx.
func (w *Pending) Wait(ctx context.Context) error {
	p, q, what := w.peer, w.request, "send"
	switch {
	case q.Write:
		what = "write"
	case q.Atomic:
		what = "add to 8 of"
	}
	if len(q.Data) > maxMessage {
		return fmt.Errorf("%s %d bytes: a message has at most %d", what, len(q.Data), maxMessage)
	}
	if err := p.wait(ctx, func() bool { return q.done }); err != nil {
		return fmt.Errorf("%s %d bytes to QP %#x at %v: %w", what, len(q.Data), p.cfg.PeerQPN, p.cfg.PeerIP, err)
	}
	return nil
}

// nextRequest returns the next request packet to send, if one may be sent now.
func (p *Peer) nextRequest(now time.Time) (packet, bool) {
	r := &p.req
	if !r.resume.IsZero() {
		if now.Before(r.resume) {
			return packet{}, false
		}
		r.resume = time.Time{}
	}
	if !r.deadline.IsZero() && !now.Before(r.deadline) {
		p.stats.Timeouts++
		if !p.goBack(r.una) {
			return packet{}, false
		}
	}
	if r.next == r.end || r.next-r.una >= uint64(p.cfg.Window) {
		return packet{}, false
	}
	k := p.build(r.next)
	p.stats.DataSent++
	if r.next < r.limit {
		p.stats.Retransmitted++
	}
	r.next++
	r.limit = max(r.limit, r.next)
	r.deadline = now.Add(p.cfg.Timeout)
	return k, true
}

// build makes the request packet with the given number.
func (p *Peer) build(n uint64) packet {
	i, _ := slices.BinarySearchFunc(p.req.queue, n, func(q *request, n uint64) int {
		if q.first+q.packets <= n {
			return -1
		}
		return 1
	})
	q, mtu := p.req.queue[i], uint64(p.cfg.MTU)
	at := (n - q.first) * mtu
	first, last := n == q.first, n == q.first+q.packets-1
	k := packet{psn: p.psn(n), imm: q.Imm, va: q.VA, rkey: q.RKey, length: uint32(len(q.Data))}
	k.payload = q.Data[at:min(at+mtu, uint64(len(q.Data)))]
	switch {
	case first && last:
		k.opcode = opSendOnly
	case first:
		k.opcode = opSendFirst
	case last:
		k.opcode = opSendLast
	default:
		k.opcode = opSendMiddle
	}
	if q.HasImm && last {
		k.opcode += withImm
	}
	if q.Write {
		k.opcode += opWriteFirst - opSendFirst
	}
	if q.Atomic {
		k.opcode, k.add = opFetchAdd, q.Add
	}
	// At least twice per window, so that the window never closes for lack of an acknowledgment.
	k.ackReq = last || (n+1)%uint64(max(1, p.cfg.Window/2)) == 0
	return k
}

func (p *Peer) psn(n uint64) uint32 { return (p.cfg.StartPSN + uint32(n)) & psnMask }

// sent restarts the timer once the port has taken a packet: time that a slow port took is
// not time that the peer did not answer in.
func (r *requester) sent(now time.Time, timeout time.Duration) {
	if !r.deadline.IsZero() {
		r.deadline = now.Add(timeout)
	}
}

// goBack makes n the next packet to send and reports whether retries are left.
func (p *Peer) goBack(n uint64) bool {
	r := &p.req
	r.deadline = time.Time{}
	r.next = n
	r.retried = true
	if r.retries++; r.retries > p.cfg.RetryCnt {
		p.fail(fmt.Errorf("%w at PSN %#x after %d retries", ErrRetryExceeded, p.psn(n), p.cfg.RetryCnt))
		return false
	}
	return true
}

// acknowledge takes all packets before number n off the queue.
func (p *Peer) acknowledge(n uint64, now time.Time) {
	r := &p.req
	if n <= r.una {
		return
	}
	r.una, r.next = n, max(r.next, n)
	r.retries, r.rnrs, r.retried = 0, 0, false
	r.resume, r.deadline = time.Time{}, time.Time{}
	if r.una < r.next {
		r.deadline = now.Add(p.cfg.Timeout)
	}
	for len(r.queue) > 0 && r.queue[0].first+r.queue[0].packets <= n {
		r.queue[0].done = true
		r.queue = r.queue[1:]
		p.notify()
	}
}

// Types of the AETH syndrome, its bits 6:5, and the codes in use.
const (
	typeACK = 0
	typeRNR = 1
	typeNAK = 3

	synACK      = 0x1f // without credits
	synRNR      = 0x20 | 12
	synSequence = 0x60
	synInvalid  = 0x61
	synAccess   = 0x62
)

// handleResponse takes an acknowledgment of either kind. Credits are ignored, as is the
// MSN: neither is needed when PSNs are there.
func (p *Peer) handleResponse(k *packet, now time.Time) {
	r := &p.req
	if k.opcode != opAck && k.opcode != opAtomicAck || k.syn>>7 != 0 || k.syn>>5&3 == 2 {
		p.reject(badResponse)
		return
	}
	if len(k.payload) != 0 || !k.padded() {
		p.reject(badSize)
		return
	}
	ahead := signed(k.psn - p.psn(r.una))
	n := r.una + uint64(ahead) // wraps back when ahead is negative
	switch {
	case ahead >= 0 && n >= r.limit:
		p.reject(badResponse) // it acknowledges a packet that was never sent
		return
	case ahead < 0:
		p.stats.StaleReceived++
		return
	}
	switch k.syn >> 5 & 3 {
	case typeACK:
		p.stats.AcksReceived++
		if k.opcode == opAtomicAck {
			p.fetched(n, k.before)
		}
		p.acknowledge(n+1, now)
	case typeRNR:
		p.stats.RNRsReceived++
		p.acknowledge(n, now)
		if r.resume.IsZero() {
			p.rest(n, now.Add(rnrTimer(k.syn&0x1f)))
		}
	case typeNAK:
		p.stats.NaksReceived++
		p.acknowledge(n, now)
		switch {
		case k.syn != synSequence:
			p.fail(fmt.Errorf("%w: NAK %#x at PSN %#x", ErrRemote, k.syn, k.psn))
		case !r.retried: // a late NAK asks for packets that have already been repeated
			p.goBack(n)
		}
	}
}

// fetched records the value that a FETCH_ADD has found.
func (p *Peer) fetched(n, before uint64) {
	for _, q := range p.req.queue {
		if q.first == n && q.Atomic {
			q.before = before
		}
	}
}

// rest goes back to packet n and suspends sending until an instant.
func (p *Peer) rest(n uint64, until time.Time) {
	r := &p.req
	r.next, r.retried, r.deadline, r.resume = n, true, time.Time{}, until
	if r.rnrs++; p.cfg.RNRRetry < 7 && r.rnrs > p.cfg.RNRRetry {
		p.fail(fmt.Errorf("%w at PSN %#x after %d retries", ErrRNRExceeded, p.psn(n), p.cfg.RNRRetry))
	}
}

// signed is a difference of PSNs as a number from -2^23 to 2^23 - 1.
func signed(d uint32) int32 { return int32(d<<8) >> 8 }

// rnrTimer returns the wait that a code of an RNR NAK asks for.
func rnrTimer(code byte) time.Duration {
	const unit = 10 * time.Microsecond
	switch {
	case code == 0:
		return 65536 * unit
	case code < 4:
		return time.Duration(code) * unit
	}
	// From code 4 on, 4 and 6 alternate, and both double every second code.
	return time.Duration(4+2*(code&1)) << (code/2 - 2) * unit
}
