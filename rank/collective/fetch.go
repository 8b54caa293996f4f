// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"encoding/binary"
	"fmt"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
)

// fetchRing is the slow path of a cast (AG-13). It has reliable connections to the left and
// the right neighbour (AG-18). A rank asks its left neighbour for its first missing chunks;
// the neighbour answers once it has some of them, and the rank READs those out of the
// neighbour's buffer (AG-19). Then it asks for the chunks that are still missing. A neighbour
// answers with whatever part it has (AG-14): if it waited for all of them, three ranks that
// lack two of three blocks each would wait for each other for ever. This always makes
// progress: consider a rank that lacks the lowest chunk missing anywhere. Its left neighbour
// either has that chunk or asks for it itself.
//
// A request and its answer alternate, and all other messages occur once in an operation, so
// few receives are enough.
type fetchRing struct {
	c           *cast
	left, right *rank.Conn
	slots       []controlSlot
	b           *rank.Buffer // holds the slots, followed by the messages to send
	sent        [kinds]*rank.Request

	// State of the current operation.
	active bool
	asked  bool // a request is not answered yet
	cut    bool // the cutoff timer has expired
	reads  []reading
	busy   bitmap // chunks that outstanding READs fetch
	wanted []span // chunks that the right neighbour has asked for and not been answered
	told   bool   // the left neighbour has the message that there are no more READs
	free   bool   // the right neighbour has said that it has no more READs
}

// control is the kind of a message between neighbours. It is in the upper 4 bits of the
// immediate data, and the number of the operation in the others. Only requests and answers
// have a payload.
type control uint32

const (
	controlRequest  control = iota // to the left: which chunks are missing
	controlAnswer                  // to the right: which of them are here, and where
	controlActivate                // to the right: it is your turn to multicast
	controlFinal                   // to the left: no more READs will come

	kinds
)

const (
	roundBits = 28
	// spansMax is the number of runs of chunks that a request or answer names: half a packet of 4 KiB.
	spansMax    = 256
	spanLen     = 8
	answerHead  = 16 // VA 8, R_Key 4, 4 unused
	controlLen  = answerHead + spansMax*spanLen
	controlEach = 4 // receives for each neighbour
)

// controlSlot is a posted receive.
type controlSlot struct {
	conn *rank.Conn
	off  int
	q    *rank.Request
}

// reading is an outstanding READ.
type reading struct {
	span
	q *rank.Request
}

func newFetchRing(c *cast) (*fetchRing, error) {
	g := &fetchRing{c: c}
	me, size := c.r.ID(), c.r.Size()
	left, right := (me+size-1)%size, (me+1)%size
	if err := connectAny(c.r, []int{left, right}); err != nil {
		return nil, err
	}
	var err error
	if g.left, err = c.r.Connect(left); err != nil {
		return nil, err
	}
	if g.right, err = c.r.Connect(right); err != nil {
		return nil, err
	}
	if g.b, err = c.r.Alloc((2*controlEach+int(kinds))*controlLen, rank.MemoryBytes); err != nil {
		return nil, err
	}
	for i := range 2 * controlEach {
		s := controlSlot{conn: g.left, off: i * controlLen}
		if i%2 == 1 {
			s.conn = g.right
		}
		g.slots = append(g.slots, s)
		if err := g.post(&g.slots[i]); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *fetchRing) post(s *controlSlot) (err error) {
	s.q, err = s.conn.Recv(g.b, s.off, controlLen)
	return err
}

// begin prepares the ring for an operation.
func (g *fetchRing) begin() {
	g.active, g.asked, g.cut, g.told, g.free = true, false, false, false, false
	g.reads, g.wanted = g.reads[:0], nil
	g.busy.reset(g.c.layout.count())
}

// fetching reports whether a chunk is being read from the left neighbour.
func (g *fetchRing) fetching(k int) bool { return g.busy.has(k) }

// deadline returns when the cutoff timer expires or, with all chunks there, when the host sees so.
func (g *fetchRing) deadline() vtime.Time {
	switch {
	case !g.active || g.told:
		return vtime.Never
	case g.c.missing == 0 && g.c.clear && g.c.r.Now() < g.c.flagged:
		return g.c.flagged
	case g.cut || g.c.missing == 0:
		return vtime.Never
	}
	return g.c.cutoff
}

// ready reports whether step has something to do.
func (g *fetchRing) ready() bool {
	for i := range g.slots {
		if g.slots[i].q.Done() {
			return true
		}
	}
	for _, r := range g.reads {
		if r.q.Done() {
			return true
		}
	}
	return g.active && g.c.clear && g.c.missing == 0 && g.c.r.Now() >= g.c.flagged && (!g.told || g.free && !g.c.over)
}

// step does everything that is possible now. It never waits for a neighbour.
func (g *fetchRing) step() error {
	for i := range g.slots {
		s := &g.slots[i]
		if !s.q.Done() {
			continue
		}
		if err := g.c.r.Wait(s.q); err != nil {
			return err
		}
		if err := g.handle(s); err != nil {
			return err
		}
		if err := g.post(s); err != nil {
			return err
		}
	}
	if err := g.fetched(); err != nil {
		return err
	}
	if !g.active {
		return nil
	}
	if err := g.answer(); err != nil {
		return err
	}
	if err := g.ask(); err != nil {
		return err
	}
	return g.finish()
}

// handle processes a message. Messages of an earlier operation are answers that came too late.
// An activation may come after the handshake, because other ranks can have fetched the block
// that it is for.
func (g *fetchRing) handle(s *controlSlot) error {
	kind, round := control(s.q.Imm()>>roundBits), s.q.Imm()&(1<<roundBits-1)
	if round != g.c.round&(1<<roundBits-1) || !g.active && kind != controlActivate {
		return nil
	}
	body := g.b.Bytes()[s.off : s.off+s.q.Len()]
	switch kind {
	case controlRequest:
		all, err := parseSpans(body, g.c.layout.count())
		g.wanted = all
		return err
	case controlAnswer:
		return g.read(body)
	case controlActivate:
		g.c.turn = true
		g.c.r.Notify()
	case controlFinal:
		g.free, g.wanted = true, nil
	}
	return nil
}

// ask requests the missing chunks once the timer has expired (AG-13).
func (g *fetchRing) ask() error {
	c := g.c
	if c.missing == 0 || g.asked || len(g.reads) > 0 || c.r.Now() < c.cutoff {
		return nil
	}
	first := !g.cut
	g.cut = true
	all := runs(span{0, c.layout.count()}, spansMax, func(k int) bool { return !c.has(k) })
	if len(all) == 0 {
		return nil // all chunks have arrived and are being copied
	}
	if first {
		c.counts.Cutoffs++
	}
	c.counts.Requests++
	g.asked = true
	return g.send(controlRequest, g.left, appendSpans(nil, all))
}

// answer sends the right neighbour the place of those chunks that it wants and this rank has.
func (g *fetchRing) answer() error {
	var all []span
	for _, s := range g.wanted {
		all = append(all, runs(s, spansMax-len(all), g.here)...)
		if len(all) == spansMax {
			break
		}
	}
	if len(all) == 0 {
		return nil
	}
	g.wanted = nil
	head := binary.BigEndian.AppendUint64(nil, g.c.b.Addr())
	head = binary.BigEndian.AppendUint32(head, g.c.b.RKey())
	head = append(head, 0, 0, 0, 0)
	return g.send(controlAnswer, g.right, appendSpans(head, all))
}

// here reports whether a chunk is in the user's buffer.
func (g *fetchRing) here(k int) bool {
	for _, w := range g.c.workers {
		if w.have.has(k) {
			return !w.copying(k)
		}
	}
	return false
}

// readsMax bounds the number of READs per answer; the rest is requested again.
const readsMax = 1024

// read fetches the chunks that the left neighbour has and this rank still lacks.
func (g *fetchRing) read(body []byte) error {
	g.asked = false
	if len(body) < answerHead {
		return fmt.Errorf("answer of %d bytes from the left neighbour", len(body))
	}
	va, rkey := binary.BigEndian.Uint64(body), binary.BigEndian.Uint32(body[8:])
	all, err := parseSpans(body[answerHead:], g.c.layout.count())
	if err != nil {
		return err
	}
	for _, s := range all {
		for _, k := range runs(s, readsMax-len(g.reads), func(k int) bool { return !g.c.has(k) }) {
			off, n := g.c.layout.extent(k)
			for i := k.lo; i < k.hi; i++ {
				g.busy.set(i)
			}
			q, err := g.left.Read(g.c.b, off, n, va+uint64(off), rkey)
			if err != nil {
				return err
			}
			g.reads = append(g.reads, reading{k, q})
		}
	}
	return nil
}

// fetched handles the READs that have completed.
func (g *fetchRing) fetched() error {
	open := g.reads[:0]
	for _, r := range g.reads {
		if !r.q.Done() {
			open = append(open, r)
			continue
		}
		if err := g.c.r.Wait(r.q); err != nil {
			return err
		}
		for k := r.lo; k < r.hi; k++ {
			g.c.workers[0].have.set(k)
		}
		g.c.counts.Fetched += r.hi - r.lo
		g.c.got(r.hi - r.lo)
	}
	g.reads = open
	return nil
}

// finish is the final handshake (AG-16). It sends the left neighbour the message that this rank reads
// no more. After the right neighbour's message the buffer belongs to the user again.
func (g *fetchRing) finish() error {
	c := g.c
	if c.missing > 0 || !c.clear || c.r.Now() < c.flagged {
		return nil
	}
	if !g.told {
		g.told = true
		if err := g.send(controlFinal, g.left, nil); err != nil {
			return err
		}
	}
	if g.free {
		g.active = false
		c.over = true
		c.r.Notify()
	}
	return nil
}

// activate sends the next rank of the chain, the right neighbour, its turn. The send worker calls it.
func (g *fetchRing) activate() error { return g.send(controlActivate, g.right, nil) }

// send sends a message. The previous message of the same kind has long arrived.
func (g *fetchRing) send(kind control, to *rank.Conn, body []byte) (err error) {
	if before := g.sent[kind]; before != nil {
		if err := g.c.r.Wait(before); err != nil {
			return err
		}
	}
	off := (2*controlEach + int(kind)) * controlLen
	copy(g.b.Bytes()[off:], body)
	g.sent[kind], err = to.SendImm(g.b, off, len(body), uint32(kind)<<roundBits|g.c.round&(1<<roundBits-1))
	return err
}

// close waits until everything that was sent has arrived.
func (g *fetchRing) close() error {
	for _, q := range g.sent {
		if q == nil {
			continue
		}
		if err := g.c.r.Wait(q); err != nil {
			return err
		}
	}
	return nil
}

// appendSpans encodes runs of chunks: first 4 bytes, count 4 bytes, big-endian.
func appendSpans(b []byte, all []span) []byte {
	for _, s := range all {
		b = binary.BigEndian.AppendUint32(b, uint32(s.lo))
		b = binary.BigEndian.AppendUint32(b, uint32(s.hi-s.lo))
	}
	return b
}

// parseSpans decodes the output of appendSpans; the runs must lie within the given number of chunks.
func parseSpans(b []byte, chunks int) (all []span, err error) {
	if len(b)%spanLen != 0 || len(b) > spansMax*spanLen {
		return nil, fmt.Errorf("list of chunks of %d bytes from a neighbour", len(b))
	}
	for ; len(b) > 0; b = b[spanLen:] {
		lo, n := uint64(binary.BigEndian.Uint32(b)), uint64(binary.BigEndian.Uint32(b[4:]))
		if n == 0 || lo+n > uint64(chunks) {
			return nil, fmt.Errorf("chunks %d to %d from a neighbour, of %d", lo, lo+n-1, chunks)
		}
		all = append(all, span{int(lo), int(lo + n)})
	}
	return all, nil
}
