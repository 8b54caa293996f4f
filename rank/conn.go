// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// Conn is a reliable connection to another rank.
type Conn struct {
	r    *Rank
	peer int
	qp   *virtrnic.QP
}

// Request is a posted work request: a send, a receive, a WRITE or a READ.
//
// A job has many requests, so a Request keeps only those fields of its completion that are read later.
type Request struct {
	to      target
	len     uint32
	imm     uint32
	status  virtrnic.WCStatus // once it is done
	withImm bool
	send    bool
	done    bool
}

// target is the connection, group or queue pair to which a request is posted.
type target interface {
	// what describes the wait for a request, for error texts.
	what(send bool) string
}

// QueueDepth is the number of work requests that each queue of a connection, send and receive,
// holds.
const QueueDepth = 16384

// Connect returns the connection to a peer; the first call makes it. Both sides must call it,
// in any order; the first call blocks until the peer has called it too.
func (r *Rank) Connect(peer int) (*Conn, error) {
	if r.broken {
		return nil, rankhost.ErrBroken
	}
	if c := r.conns[peer]; c != nil {
		return c, nil
	}
	if peer < 0 || peer >= r.c.Size || peer == r.c.ID {
		return nil, fmt.Errorf("rank %d: no connection to rank %d of %d", r.c.ID, peer, r.c.Size)
	}
	c := &Conn{r: r, peer: peer}
	if err := c.create(); err != nil {
		return nil, fmt.Errorf("connect rank %d to %d: %w", r.c.ID, peer, err)
	}
	if p := r.peer(peer); p != nil {
		return c, c.external(p)
	}
	psn := c.greet()
	return c, c.bringUp(psn, c.answer())
}

// greet sends the peer the queue pair and its start PSN, and returns that PSN.
//
// Connect is split in three to keep the variables of greet and bringUp off the stack while the rank waits: in a large
// job all ranks wait at once.
func (c *Conn) greet() wire.PSN {
	r := c.r
	psn := r.startPSN(fmt.Sprintf("psn/%d", c.peer))
	hello := binary.BigEndian.AppendUint32(nil, uint32(c.qp.Num()))
	hello = binary.BigEndian.AppendUint32(hello, uint32(psn))
	r.c.Board.Put(connKey(r.c.ID, c.peer), hello)
	return psn
}

// answer waits for the peer's greeting and returns it.
func (c *Conn) answer() []byte {
	r := c.r
	r.waiting = append(r.waiting, c.peer)
	answer := r.takeValue(connKey(c.peer, r.c.ID), awaited(c.peer))
	r.waiting = slices.DeleteFunc(r.waiting, func(p int) bool { return p == c.peer })
	return answer
}

// connKey returns the key under which a rank greets another; awaited describes that wait in error
// texts.
func connKey(from, to int) string { return fmt.Sprintf("conn/%d/%d", from, to) }
func awaited(from int) string     { return fmt.Sprintf("rank %d to connect", from) }

// bringUp connects the queue pair to the one of the peer's answer.
func (c *Conn) bringUp(psn wire.PSN, answer []byte) error {
	r := c.r
	switch {
	case r.broken:
		_ = r.destroy(c.qp) // it exists and is ours
		return rankhost.ErrBroken
	case len(answer) != 8:
		return fmt.Errorf("connect rank %d to %d: malformed answer", r.c.ID, c.peer)
	}
	to := remote{
		ip: r.ip(c.peer), qpn: wire.QPN(binary.BigEndian.Uint32(answer)),
		sqPSN: psn, rqPSN: wire.PSN(binary.BigEndian.Uint32(answer[4:])),
	}
	if err := r.bringUp(c.qp, to); err != nil {
		return fmt.Errorf("connect rank %d to %d: %w", r.c.ID, c.peer, err)
	}
	r.conns[c.peer] = c
	return nil
}

// external connects to an external host's queue pair, and asks the operator of that host to connect it
// to this one.
func (c *Conn) external(p *rankhost.Peer) error {
	r := c.r
	to := remote{ip: r.ip(c.peer), qpn: p.QPN, sqPSN: p.ReceivePSN, rqPSN: p.SendPSN}
	if err := r.bringUp(c.qp, to); err != nil {
		return fmt.Errorf("connect rank %d to external %s: %w", r.c.ID, r.NameOf(c.peer), err)
	}
	r.conns[c.peer] = c
	r.tellConnect(fmt.Sprintf("%d/%d", r.c.ID, c.peer), c.peer, rankhost.Step{
		Address: r.addr(r.ip(r.c.ID)).String(), ToQPN: uint32(c.qp.Num()),
		Text: fmt.Sprintf("%s: QP %d of %s expects its PSN %v and sends from PSN %v: connect QP %d to QP %d at %v",
			r.NameOf(c.peer), c.qp.Num(), r.c.HostName, p.SendPSN, p.ReceivePSN, p.QPN, c.qp.Num(), r.addr(r.ip(r.c.ID))),
	})
	return nil
}

func (r *Rank) startPSN(name string) wire.PSN {
	if p := r.c.Params.FirstPSN; p != nil {
		return *p
	}
	s := r.c.Random.Derive(name)
	return wire.PSN(s.Uint64()) & wire.PSNMask
}

func (c *Conn) create() (err error) {
	c.qp, err = c.r.createQP()
	return err
}

func (r *Rank) createQP() (q *virtrnic.QP, err error) {
	r.c.Host.Do(func(_ vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
		q, err = r.newQP(nic, virtrnic.QPInit{
			PD: r.pd, SendCQ: r.cq, RecvCQ: r.cq, MaxSendWR: QueueDepth, MaxRecvWR: QueueDepth, SQSigAll: true,
		})
	})
	return q, err
}

// remote describes the peer of a queue pair.
type remote struct {
	ip           uint32
	qpn          wire.QPN
	sqPSN, rqPSN wire.PSN
}

// bringUp takes a queue pair from RESET to RTS.
func (r *Rank) bringUp(q *virtrnic.QP, to remote) (err error) {
	p := r.c.Params
	a := virtrnic.QPAttr{
		Port: 1, Access: r.access(MemoryBytes), MaxQPRdAtomic: readsMax, MaxDestRdAtomic: readsMax,
		AV:      virtrnic.AH{DGID: to.ip, TrafficClass: p.TrafficClass, HopLimit: 64},
		PathMTU: p.MTU, DestQPN: to.qpn, RQPSN: to.rqPSN, SQPSN: to.sqPSN,
		Timeout: p.Timeout, RetryCnt: p.RetryCnt, RNRRetry: p.RNRRetry, MinRNRTimer: p.MinRNRTimer,
	}
	r.c.Host.Do(func(now vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) { err = nic.BringUp(now, q, a) })
	return err
}

// what implements target.
func (c *Conn) what(send bool) string {
	if send {
		return fmt.Sprintf("send to rank %d", c.peer)
	}
	return fmt.Sprintf("receive from rank %d", c.peer)
}

// readsMax is the largest number of READs outstanding on a connection in each direction.
const readsMax = 16

// Send starts to send n bytes of the buffer from off as one message.
func (c *Conn) Send(b *Buffer, off, n int) (*Request, error) {
	return c.request(&virtrnic.SendWR{Opcode: virtrnic.WRSend, SGE: b.sge(off, n)})
}

// SendImm is Send with 32 bits of immediate data, which the peer reads from its receive
// (Request.Imm).
func (c *Conn) SendImm(b *Buffer, off, n int, imm uint32) (*Request, error) {
	return c.request(&virtrnic.SendWR{Opcode: virtrnic.WRSendWithImm, SGE: b.sge(off, n), Imm: imm})
}

// Write starts to write n bytes of the buffer from off into the peer's memory.
func (c *Conn) Write(b *Buffer, off, n int, remoteAddr uint64, rkey uint32) (*Request, error) {
	return c.request(&virtrnic.SendWR{Opcode: virtrnic.WRRDMAWrite, SGE: b.sge(off, n), RemoteAddr: remoteAddr, RKey: rkey})
}

// Read starts to read n bytes of the peer's memory into the buffer at off.
func (c *Conn) Read(b *Buffer, off, n int, remoteAddr uint64, rkey uint32) (*Request, error) {
	return c.request(&virtrnic.SendWR{Opcode: virtrnic.WRRDMARead, SGE: b.sge(off, n), RemoteAddr: remoteAddr, RKey: rkey})
}

// request posts a work request to the connection's send queue.
func (c *Conn) request(wr *virtrnic.SendWR) (*Request, error) {
	c.r.spend(c.r.c.Params.Cost.Post)
	c.r.spend(c.r.c.Params.Cost.Stack)
	c.r.spend(c.r.c.Params.Cost.Connection)
	return c.r.postSend(&Request{to: c, send: true}, c.qp, wr)
}

// Recv posts a receive: the next message lands in n bytes of the buffer at off.
func (c *Conn) Recv(b *Buffer, off, n int) (*Request, error) {
	c.r.spend(c.r.c.Params.Cost.Post)
	return c.r.postRecv(c, c.qp, b.sge(off, n))
}

// posted returns a request that was handed to the NIC, or no request and why the NIC has refused it.
func (r *Rank) posted(q *Request, err error) (*Request, error) {
	if err != nil {
		return nil, fmt.Errorf("rank %d, %s: %w", r.c.ID, q.what(), err)
	}
	return q, nil
}

// Wait blocks until all requests have completed and returns the first error among them. If
// another request of the rank fails meanwhile, Wait returns that failure at once (but see
// Survive).
func (r *Rank) Wait(reqs ...*Request) error {
	var first error
	for _, q := range reqs {
		if err := r.await(q); err != nil {
			if first == nil {
				first = err
			}
			return first
		}
		r.spend(r.c.Params.Cost.Poll)
		if !q.send {
			r.spend(r.c.Params.Cost.Stack)
		}
		if q.status != virtrnic.WCSuccess && first == nil {
			first = r.cause(q)
		}
	}
	return first
}

// await blocks until the request has completed or the rank has failed.
func (r *Rank) await(q *Request) error {
	for !q.done {
		if r.poll() || q.done {
			continue
		}
		if r.health.err != nil {
			return r.health.err
		}
		r.c.Host.Park(vtime.Never, r.named(q))
	}
	return nil
}

// named returns q.what(), cached: a rank often waits repeatedly on one connection.
func (r *Rank) named(q *Request) string {
	if n := &r.job.waited; n.to != q.to || n.send != q.send {
		n.to, n.send, n.text = q.to, q.send, q.what()
	}
	return r.job.waited.text
}

// take completes the requests whose completions are in the queue, and reports whether there
// were any.
func (r *Rank) take(nic *virtrnic.NIC) (some bool) {
	for {
		w, ok := nic.PollCQ(r.cq)
		if !ok {
			return some
		}
		some = true
		q := r.reqs.take(w.WRID)
		if q == nil {
			continue
		}
		q.done, q.status, q.len, q.imm, q.withImm = true, w.Status, w.ByteLen, w.Imm, w.WithImm
		if w.Status != virtrnic.WCSuccess && !r.survives {
			r.health.fail(r.ended(q))
		}
	}
}

// statusError is the status of a failed work request.
type statusError virtrnic.WCStatus

// Error returns the verbs' text of the status.
func (e statusError) Error() string { return virtrnic.WCStatus(e).String() }

// what describes the wait for the request, for error texts.
func (q *Request) what() string { return q.to.what(q.send) }

// Len returns the bytes of a completed receive.
func (q *Request) Len() int { return int(q.len) }

// Imm returns the immediate data of a completed receive.
func (q *Request) Imm() uint32 { return q.imm }

// Done reports whether the request has completed. Only Look, Until and the Wait functions take
// completions from the queue, so the answer is as old as the last of these calls.
func (q *Request) Done() bool { return q.done }

// WaitAny blocks until one of the requests has completed and returns its index and its error;
// if several have, the first of them. Nil requests are skipped, but at least one must not be
// nil. As with Wait, a failure of the rank ends it at once.
func (r *Rank) WaitAny(reqs ...*Request) (i int, err error) {
	for {
		open := -1
		for i, q := range reqs {
			switch {
			case q == nil:
			case q.done:
				return i, r.Wait(q)
			case open < 0:
				open = i
			}
		}
		if open < 0 {
			return -1, fmt.Errorf("rank %d waits for one of no requests", r.c.ID)
		}
		if !r.poll() && !slices.ContainsFunc(reqs, func(q *Request) bool { return q != nil && q.done }) {
			if r.health.err != nil {
				return open, r.health.err
			}
			r.c.Host.Park(vtime.Never, r.named(reqs[open]))
		}
	}
}
