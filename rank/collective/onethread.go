// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// Values of Options.Transport.
const (
	TransportRC       = "rc"
	TransportRCChunks = "rc-chunks"
	TransportUD       = "ud"
)

// oneThread is unicast as software does it that cuts messages into chunks of an MTU itself, with one thread a rank,
// which spends a time on each chunk (Khalilov et al. §II-B and Fig. 5, BAS-15). The root serves one receiver after
// the other. Chunks are SENDs over RC, or datagrams with a reliability of their own, as in UCX:
//
//	rate = min(link, MTU / per-chunk)
//
// Over UD the root numbers chunks and keeps up to a window of them unacknowledged. A receiver puts them into their places in any
// order, acknowledges the number that it has without a gap, at every sixteenth, at those out of order or repeated, and at the
// last. If nothing comes for a time, the root sends again from the first chunk that is not acknowledged.
type oneThread struct {
	r     *rank.Rank
	o     Options
	pairs []*udPair // in the order in which they were made
	round uint32
	b     *rank.Buffer
	n     int
	root  int
	reqs  []*rank.Request // rc-chunks: receives that are posted, by chunk
	got   Recovery

	closing bool
	joins   []*rank.Worker
	err     error
}

const (
	threadWindow = 256 // chunks that are under way to a receiver
	threadDepth  = 1024
	ackEach      = 16
	ackFlag      = 1 << 31 // of immediate data: an acknowledgement
	roundMask    = 0x7f    // of rounds in immediate data, from bit 24 on
	ackAll       = chunksMax - 1
)

func newOneThread(r *rank.Rank, o *Options) (Algorithm, error) {
	all := make([]int, r.Size())
	for i := range all {
		all[i] = i
	}
	v, err := r.Sub("one-thread/"+o.Label, all)
	if err != nil {
		return nil, err
	}
	return &oneThread{r: v, o: *o}, nil
}

// count returns the number of chunks; an empty message is one.
func (c *oneThread) count() int { return max(1, (c.n+c.r.MTU()-1)/c.r.MTU()) }

// at returns a chunk's place.
func (c *oneThread) at(k int) (off, n int) {
	off = k * c.r.MTU()
	return off, min(c.r.MTU(), c.n-off)
}

// Begin implements Algorithm.
func (c *oneThread) Begin(b *rank.Buffer, n, root int) error {
	c.b, c.n, c.root = b, n, root
	c.round++
	if c.count() >= ackAll {
		return fmt.Errorf("%d bytes in chunks of %d are more chunks than %d", n, c.r.MTU(), ackAll-1)
	}
	peers := []int{root}
	if c.r.ID() == root {
		peers = nil
		for i := 1; i < c.r.Size(); i++ {
			peers = append(peers, absolute(c.r, root, i))
		}
	}
	if c.o.Transport == TransportUD {
		return c.beginUD(peers)
	}
	if err := connectAll(c.r, peers); err != nil {
		return err
	}
	c.reqs = c.reqs[:0]
	if c.r.ID() != root {
		return c.post(min(c.count(), threadDepth))
	}
	return nil
}

// post posts receives for the next chunks.
func (c *oneThread) post(more int) error {
	for range more {
		off, n := c.at(len(c.reqs))
		q, err := recvFrom(c.r, c.root, c.b, off, n)
		if err != nil {
			return err
		}
		c.reqs = append(c.reqs, q)
	}
	return nil
}

// Run implements Algorithm.
func (c *oneThread) Run() (at Times, err error) {
	at.Received = c.r.Now()
	switch {
	case c.r.ID() == c.root:
		for i := 1; i < c.r.Size() && err == nil; i++ {
			if to := absolute(c.r, c.root, i); c.o.Transport == TransportUD {
				err = c.pair(c.root, to).send()
			} else {
				err = c.send(to)
			}
		}
	case c.o.Transport == TransportUD:
		p := c.pair(c.root, c.r.ID())
		c.r.Until("the rest of a message", func() bool { return p.next == c.count() || c.err != nil })
		err = c.err
		at.Received = c.r.Now()
	default:
		err = c.receive()
		at.Received = c.r.Now()
	}
	at.Done = c.r.Now()
	return at, err
}

// send sends the chunks over RC.
func (c *oneThread) send(to int) error {
	var sent []*rank.Request
	for k := range c.count() {
		c.r.Sleep(c.o.PerChunk)
		off, n := c.at(k)
		q, err := sendTo(c.r, to, c.b, off, n)
		if err != nil {
			return err
		}
		sent = append(sent, q)
		if k >= threadWindow {
			if err := c.r.Wait(sent[k-threadWindow]); err != nil {
				return err
			}
		}
	}
	return c.r.Wait(sent[max(0, len(sent)-threadWindow):]...)
}

// receive receives the chunks over RC.
func (c *oneThread) receive() error {
	for k := range c.count() {
		if err := c.r.Wait(c.reqs[k]); err != nil {
			return err
		}
		c.r.Sleep(c.o.PerChunk)
		if len(c.reqs) < c.count() {
			if err := c.post(1); err != nil {
				return err
			}
		}
	}
	return nil
}

// Recovery implements Recovering.
func (c *oneThread) Recovery() Recovery { return c.got }

// fail ends the operation with an error.
func (c *oneThread) fail(err error) error {
	if c.err == nil {
		c.err = err
	}
	c.r.Notify()
	return err
}

// Close implements Algorithm.
func (c *oneThread) Close() error {
	c.r.Sync() // until then a root may still ask for acknowledgements
	c.closing = true
	c.r.Notify()
	for _, w := range c.joins {
		if err := w.Join(); err != nil {
			return err
		}
	}
	for _, p := range c.pairs {
		if err := p.close(); err != nil {
			return err
		}
	}
	c.r.Sync()
	c.r.Close()
	return nil
}

// pair returns the datagrams from a root to a receiver, or nil.
func (c *oneThread) pair(root, receiver int) *udPair {
	for _, p := range c.pairs {
		if p.root == root && p.receiver == receiver {
			return p
		}
	}
	return nil
}

// beginUD makes the datagrams to peers that have none, and prepares those of the operation.
func (c *oneThread) beginUD(peers []int) error {
	for _, peer := range peers {
		receiver := peer
		if peer == c.root {
			receiver = c.r.ID()
		}
		p := c.pair(c.root, receiver)
		if p == nil {
			m, err := rankrun.Of(c.r).NewPair(fmt.Sprintf("from %d", c.root), peer, threadDepth)
			if err != nil {
				return err
			}
			p = &udPair{c: c, m: m, root: c.root, receiver: receiver}
			if p.word, err = c.r.Alloc(0, rank.MemoryPhantom); err != nil {
				return err
			}
			c.pairs = append(c.pairs, p)
			if receiver == c.r.ID() {
				c.joins = append(c.joins, c.r.Go(fmt.Sprintf("receive from %d", peer), p.serve))
			}
		}
		if err := p.begin(); err != nil {
			return err
		}
	}
	return nil
}

// udPair is one end of the datagrams from a root to a receiver, and of the acknowledgements back.
type udPair struct {
	c              *oneThread
	m              *rank.Multicast
	root, receiver int
	kind           rank.MemoryKind
	stage          *rank.Buffer // slots of the receives
	word           *rank.Buffer // source of acknowledgements

	have bitmap
	next int // first chunk that is missing; at the root: that is not acknowledged
}

// begin prepares an operation.
func (p *udPair) begin() error {
	c := p.c
	p.have.reset(c.count())
	p.next = 0
	kind := rank.MemoryBytes
	if c.b.Kind() == rank.MemoryPhantom {
		kind = rank.MemoryPhantom
	}
	if p.stage != nil && p.kind == kind {
		return nil
	}
	if p.stage != nil { // slots of the other kind would lose the data
		if err := p.m.Clear(); err != nil {
			return err
		}
		if err := p.stage.Free(); err != nil {
			return err
		}
	}
	var err error
	if p.stage, err = c.r.Alloc(threadDepth*p.slot(), kind); err != nil {
		return err
	}
	p.kind = kind
	for i := range threadDepth {
		if err := p.repost(i); err != nil {
			return err
		}
	}
	return nil
}

func (p *udPair) slot() int { return rank.DatagramHeader + p.c.r.MTU() }

func (p *udPair) repost(i int) error {
	return p.m.Post(rank.Receive{Slot: i, B: p.stage, Off: i * p.slot(), Len: p.slot()})
}

func (p *udPair) close() error {
	if err := p.m.Close(); err != nil {
		return err
	}
	if err := p.word.Free(); err != nil {
		return err
	}
	return p.stage.Free()
}

// imm is the immediate data of a chunk, or of an acknowledgement of those before it.
func (p *udPair) imm(flag uint32, k int) uint32 {
	return flag | p.c.round&roundMask<<24 | uint32(k)
}

// send sends all chunks and returns once they are acknowledged.
func (p *udPair) send() error {
	c, at := p.c, 0
	expires := c.r.Now().Add(p.timeout())
	for p.next < c.count() {
		var last *rank.Request
		for ; at < c.count() && at < p.next+threadWindow && p.m.Arrived() == 0; at++ {
			c.r.Sleep(c.o.PerChunk)
			off, n := c.at(at)
			q, err := p.m.Send(c.b, []rank.Piece{{Off: off, Len: n, Imm: p.imm(0, at)}})
			if err != nil {
				return err
			}
			last = q
			if at%ackEach == ackEach-1 { // the link may be slower than the thread
				if err := c.r.Wait(q); err != nil {
					return err
				}
			}
			c.r.Look(c.r.Now(), "acknowledgements", []*rank.Multicast{p.m}, func() bool { return true })
		}
		if last != nil {
			if err := c.r.Wait(last); err != nil {
				return err
			}
			expires = max(expires, c.r.Now().Add(p.timeout()))
		}
		came := c.r.Look(expires, "acknowledgements", []*rank.Multicast{p.m}, func() bool { return p.m.Arrived() > 0 })
		moved, err := p.acknowledged()
		switch {
		case err != nil:
			return err
		case moved:
			expires = c.r.Now().Add(p.timeout())
			at = max(at, p.next)
		case !came:
			c.got.Cutoffs++
			at, expires = p.next, c.r.Now().Add(p.timeout())
		}
	}
	return nil
}

// timeout returns the time that the root waits for an acknowledgement of the chunks under way.
func (p *udPair) timeout() vtime.Duration {
	c := p.c
	if c.o.Alpha > 0 {
		return c.o.Alpha
	}
	return alphaMin + c.o.PerChunk*threadWindow
}

// acknowledged takes the acknowledgements that have come, and reports whether one was of more than those before.
func (p *udPair) acknowledged() (moved bool, err error) {
	c := p.c
	for _, a := range p.m.Arrivals() {
		if a.Err != nil {
			return false, a.Err
		}
		k := int(a.Imm & (chunksMax - 1))
		switch {
		case a.Imm&ackFlag == 0 || a.Imm>>24&roundMask != c.round&roundMask:
			c.got.Stale++
		case min(k, c.count()) > p.next:
			p.next, moved = min(k, c.count()), true
		}
		if err := p.repost(a.Slot); err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// serve is a receiver's thread. It continues after an operation, because the root asks again if the
// last acknowledgement was lost.
func (p *udPair) serve() error {
	c := p.c
	for {
		c.r.Look(vtime.Never, "chunks", []*rank.Multicast{p.m}, func() bool { return p.m.Arrived() > 0 || c.closing })
		if c.closing {
			return nil
		}
		for _, a := range append([]rank.Arrival(nil), p.m.Arrivals()...) {
			err, stage := a.Err, p.stage
			if err == nil {
				c.r.Sleep(c.o.PerChunk)
				err = p.take(a)
			}
			if err == nil && p.stage == stage { // else the next operation has slots of another kind
				err = p.repost(a.Slot)
			}
			if err != nil {
				return c.fail(err)
			}
		}
	}
}

// take handles a chunk.
func (p *udPair) take(a rank.Arrival) error {
	c := p.c
	k, round := int(a.Imm&(chunksMax-1)), a.Imm>>24
	switch {
	case a.Imm&ackFlag != 0:
		c.got.Stale++
		return nil
	case round&roundMask != c.round&roundMask: // of an operation that this rank has finished
		c.got.Stale++
		return p.tell(ackFlag | round<<24 | ackAll)
	case k >= c.count():
		c.got.Stale++
		return nil
	case p.have.has(k):
		c.got.Duplicates++
		return p.tell(p.imm(ackFlag, p.next))
	}
	off, n := c.at(k)
	c.b.Copy(off, p.stage, a.Slot*p.slot()+rank.DatagramHeader, n)
	p.have.set(k)
	late := k != p.next
	for p.next < c.count() && p.have.has(p.next) {
		p.next++
	}
	if p.next == c.count() {
		c.r.Notify()
	}
	if late || p.next%ackEach == 0 || p.next == c.count() {
		return p.tell(p.imm(ackFlag, p.next))
	}
	return nil
}

// tell sends an acknowledgement.
func (p *udPair) tell(imm uint32) error {
	_, err := p.m.Send(p.word, []rank.Piece{{Imm: imm}})
	return err
}
