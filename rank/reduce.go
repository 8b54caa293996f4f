// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"errors"
	"fmt"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// Reduction is a group whose switches add up the numbers of its members (BAS-14). Its queue pairs are
// UD, so members repeat a lost packet until they receive the answer.
type Reduction struct {
	g     *Group
	ah    *virtrnic.AddressHandle
	ring  *Buffer    // ring buffer that answers land in
	slots []*Request // posted receives, by their place in the ring
	head  int        // place of the oldest receive
	next  uint32     // number of the first chunk of the next Scatter
}

// ErrReduction is returned when a reduction has not been answered within the retries.
var ErrReduction = errors.New("reduction is not answered")

// ReduceWindow is the largest number of chunks, each of at most an MTU, that a rank has sent
// without having received the sums.
const ReduceWindow = 128

// reduceRing is the number of answers that a busy rank can hold: those to a whole window, and as many
// repeated ones.
const reduceRing = 2 * ReduceWindow

// NewReduction registers a reduction in the fabric, as NewGroup does a group. Sums are taken
// of memory of the given kind, bytes or phantom.
func (r *Rank) NewReduction(name string, leader int, kind MemoryKind) (*Reduction, error) {
	if kind != MemoryBytes && kind != MemoryPhantom {
		return nil, fmt.Errorf("reduction %s: memory of kind %s cannot be added up: use %s or %s", name, kind, MemoryBytes, MemoryPhantom)
	}
	for i := range r.c.Size {
		if r.External(i) {
			return nil, fmt.Errorf("reduction %s: %s is external and takes no part in reductions", name, r.NameOf(i))
		}
	}
	t := &Reduction{g: &Group{r: r, name: name, source: leader, reduce: true}}
	if err := t.g.join(leader); err != nil {
		return nil, err
	}
	var err error
	r.c.Host.Do(func(_ vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
		t.ah, err = r.newAH(nic, virtrnic.AH{DGID: t.g.id, TrafficClass: r.c.Params.TrafficClass, HopLimit: 64})
	})
	if err == nil {
		t.ring, err = r.Alloc(reduceRing*t.room(), kind)
	}
	for i := 0; i < reduceRing && err == nil; i++ {
		t.slots = append(t.slots, nil)
		err = t.post(i)
	}
	if err != nil {
		return nil, fmt.Errorf("reduction %s: %w", name, err)
	}
	return t, nil
}

// datagramQP makes a UD queue pair for reductions.
func (r *Rank) datagramQP() (q *virtrnic.QP, err error) {
	r.c.Host.Do(func(now vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
		q, err = r.newQP(nic, virtrnic.QPInit{
			Type: virtrnic.TypeUD, PD: r.pd, SendCQ: r.cq, RecvCQ: r.cq, MaxSendWR: QueueDepth, MaxRecvWR: reduceRing, SQSigAll: true,
		})
		a := virtrnic.QPAttr{Port: 1, QKey: wire.ReduceQKey}
		for _, s := range []struct {
			to   virtrnic.QPState
			mask virtrnic.AttrMask
		}{
			{virtrnic.StateInit, virtrnic.AttrPKeyIndex | virtrnic.AttrPort | virtrnic.AttrQKey}, {virtrnic.StateRTR, 0}, {virtrnic.StateRTS, virtrnic.AttrSQPSN},
		} {
			if a.State = s.to; err == nil {
				err = nic.ModifyQP(now, q, a, s.mask|virtrnic.AttrState)
			}
		}
	})
	return q, err
}

// room returns the bytes of the ring that one datagram may take.
func (t *Reduction) room() int { return virtrnic.GRHLen + t.g.r.c.Params.MTU }

// post posts the receive of place i of the ring.
func (t *Reduction) post(i int) (err error) {
	r := t.g.r
	r.spend(r.c.Params.Cost.Post)
	t.slots[i], err = r.postRecv(t.g, t.g.qp, t.ring.sge(i*t.room(), t.room()))
	return err
}

// Delete removes the reduction from the fabric. All ranks call it after all have returned from
// Scatter.
func (t *Reduction) Delete() error {
	if err := t.g.Delete(); err != nil {
		return err
	}
	var err error
	t.g.r.c.Host.Do(func(_ vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) { err = t.g.r.destroyAH(nic, t.ah) })
	if err != nil {
		return err
	}
	return t.ring.Free()
}

// scatter is a Scatter in progress. Chunks are counted from 0.
type scatter struct {
	*Reduction
	b       *Buffer
	n       int // bytes in a block
	float   bool
	per     int // chunks in a block
	base    int // all chunks before this one are answered
	end     int // all chunks before this one have been sent
	open    [ReduceWindow]givenChunk
	sent    []*Request
	waiting vtime.Duration // time until the first repeat of a chunk
}

// givenChunk is the state of a chunk that was sent; done means that it was answered.
type givenChunk struct {
	done  bool
	tries int
	again vtime.Time // when to send it again
}

// Scatter does a Reduce-scatter. b has one block of n bytes per rank, made of 32-bit
// little-endian numbers, integers or floating point. Each rank gets, in the block of its own
// number, the sum of that block over all ranks. The switches add in the order of their ports,
// tree by tree, and a rank adds its own numbers last. All ranks must call it, within the time
// that the retries take. A chunk that is not answered is sent again after the timeout of the
// queue pairs, and again after twice that time, and so on.
func (t *Reduction) Scatter(b *Buffer, n int, float bool) error {
	r := t.g.r
	mtu := r.c.Params.MTU
	s := &scatter{Reduction: t, b: b, n: n, float: float, per: (n + mtu - 1) / mtu, waiting: virtrnic.Timeout(r.c.Params.Timeout)}
	if b.kind != t.ring.kind {
		return fmt.Errorf("reduction %s: a buffer of kind %s, it is of kind %s", t.g.name, b.kind, t.ring.kind)
	}
	total := s.per * r.c.Size
	for s.base < total {
		for s.end < total && s.end < s.base+ReduceWindow {
			s.open[s.end%ReduceWindow] = givenChunk{}
			s.end++
			if err := s.give(s.end - 1); err != nil {
				return err
			}
		}
		took, err := s.take()
		if err == nil && !took {
			err = s.pause()
		}
		if err != nil {
			return err
		}
	}
	t.next = (t.next + uint32(total)) % wire.ReduceChunks
	return r.Wait(s.sent...)
}

// place returns the rank that gets the sum of a chunk, and the chunk's offset and length in
// the buffer.
func (s *scatter) place(k int) (owner, off, n int) {
	size, mtu := s.g.r.c.Size, s.g.r.c.Params.MTU
	owner = k % size // in turn, so that no rank gets all its sums at once
	at := k / size * mtu
	return owner, owner*s.n + at, min(mtu, s.n-at)
}

// give sends this rank's numbers of a chunk. For a chunk of its own block it only announces
// itself.
func (s *scatter) give(k int) error {
	r, c := s.g.r, &s.open[k%ReduceWindow]
	owner, off, n := s.place(k)
	m := wire.ReduceImm{Kind: wire.ReduceGive, Float32: s.float, Chunk: (s.next + uint32(k)) % wire.ReduceChunks}
	if owner == r.c.ID {
		m.Own, n = true, 0
	}
	r.spend(r.c.Params.Cost.Post)
	r.spend(r.c.Params.Cost.Stack)
	q, err := r.postSend(&Request{to: s.g, send: true}, s.g.qp, &virtrnic.SendWR{
		Opcode: virtrnic.WRSendWithImm, SGE: s.b.sge(off, n), Imm: uint32(m.Imm()),
		UD: virtrnic.UDDest{AH: s.ah, QPN: wire.QPNGSI, QKey: wire.ReduceQKey},
	})
	s.sent = append(s.sent, q)
	c.again = vtime.Never
	if s.waiting > 0 {
		c.again = r.Now().Add(s.waiting << c.tries)
	}
	return err
}

// take handles the oldest datagram that has arrived, and reports whether there was one.
func (s *scatter) take() (took bool, err error) {
	r, q := s.g.r, s.slots[s.head]
	if !q.done {
		r.poll()
	}
	if !q.done {
		return false, nil
	}
	if err := r.Wait(q); err != nil {
		return true, err
	}
	m, at := wire.ReduceImmOf(wire.ImmDt(q.imm)), s.head*s.room()+virtrnic.GRHLen
	// Chunks are counted from the start of the window: one that was answered before the window
	// counts as far beyond its end.
	k := s.base + int((m.Chunk-s.next-uint32(s.base))%wire.ReduceChunks)
	if q.withImm && k < s.end && !s.open[k%ReduceWindow].done {
		owner, off, n := s.place(k)
		mine := owner == r.c.ID
		switch {
		case mine != (m.Kind == wire.ReduceResult) || mine && q.Len() != virtrnic.GRHLen+n:
			return true, fmt.Errorf("%w: %s, chunk %d: an answer of kind %d with %d bytes", ErrReduction, s.g.name, m.Chunk, m.Kind, q.Len()-virtrnic.GRHLen)
		case mine && s.b.bytes != nil:
			wire.ReduceAdd(s.b.bytes[off:off+n], s.ring.bytes[at:at+n], s.float)
		}
		s.open[k%ReduceWindow].done = true
	}
	for s.base < s.end && s.open[s.base%ReduceWindow].done {
		s.base++
	}
	err = s.post(s.head)
	s.head = (s.head + 1) % reduceRing
	return true, err
}

// pause sends again the chunks whose time has come; if there are none it waits for an answer
// or for the next such time.
func (s *scatter) pause() error {
	r := s.g.r
	until, gave := vtime.Never, false
	for k := s.base; k < s.end; k++ {
		c := &s.open[k%ReduceWindow]
		if c.done {
			continue
		}
		if c.again <= r.Now() {
			if c.tries++; c.tries > int(r.c.Params.RetryCnt) {
				return fmt.Errorf("%w: rank %d, %s: chunk %d was sent %d times", ErrReduction, r.c.ID, s.g.name, s.next+uint32(k), c.tries)
			}
			if err := s.give(k); err != nil {
				return err
			}
			gave = true
		}
		until = min(until, c.again)
	}
	if !gave { // a send takes time, in which an answer may have arrived
		r.park(until, "the sums of "+s.g.name)
	}
	return nil
}
