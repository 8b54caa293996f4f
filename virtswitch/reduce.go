// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// reduction is the table of a group that adds up its members' numbers (Reduce-scatter in the network,
// BAS-14). The group's tree has the leader's leaf at its root. A switch waits until every path but the
// one to the root has given its part of a chunk, adds them in the order of ports, and sends the sum up;
// the root sends it down to the member it is for, and tells all others that there is one.
//
// Only members repeat anything, and a member repeats its part until it is answered. A part that arrives
// twice is added once, since its path is marked as having given. The repeat makes the sum go up again
// if it had gone up, and the path be answered again if the answer was there.
//
// A chunk sits in the slot of its number modulo 2 ReduceWindow. A member gives chunk
// c + 2W when it has the answer to c + W. The root answered that with parts of all members,
// each of which had the answer to c: no member can still ask for c, and its slot is free.
type reduction struct{ slots [2 * wire.ReduceWindow]slot }

// slot is the state of one chunk.
type slot struct {
	chunk uint32
	state slotState
	given int // paths that have given their part
	owner int // path to the member that the sum is for; -1: it is not below this switch, or not known yet
	kind  shape
	sum   []byte
	parts []part // by path
}

type slotState uint8

const (
	slotDone   slotState = iota // the chunk is answered, and the slot free for the next one
	slotGather                  // some paths have not given their part
	slotSent                    // the sum has been sent up
)

// shape is the operation and length that all parts of a chunk share. Phantom parts have a length only.
type shape struct {
	n       int // bytes; 0: no path has given a part with numbers yet
	float   bool
	phantom bool
}

// part is the contribution of a path.
type part struct {
	given bool
	n     int    // bytes
	bytes []byte // unless it is phantom
}

func newReduction() *reduction {
	r := &reduction{}
	for i := range r.slots {
		r.slots[i].chunk = (uint32(i) + wire.ReduceChunks - uint32(len(r.slots))) % wire.ReduceChunks
	}
	return r
}

// rootPath returns the path to the root of the group's tree, where its registration came
// from, or -1 at the root itself.
func (g *group) rootPath() int {
	if g.path[0].host {
		return -1
	}
	return 0
}

// handleReduce handles a packet of a reduction.
func (s *Switch) handleReduce(now vtime.Time, in int, f *wire.Frame, g *group) {
	switch {
	case f.OpCode() != wire.OpUDSendOnlyImm:
		s.drop(now, in, f, DropGroupOp)
		return
	case !f.CheckICRC(): // packets made of it get a new ICRC, which would hide the damage
		s.drop(now, in, f, DropICRC)
		return
	}
	g.traffic = f.Traffic()
	m := wire.ReduceImmOf(f.Imm())
	sl := &g.reduce.slots[m.Chunk%uint32(len(g.reduce.slots))]
	i := int(g.index[in]) - 1
	why := DropGroupOp
	switch fromRoot := i == g.rootPath(); {
	case m.Kind == wire.ReduceGive && !fromRoot:
		why = s.take(now, in, f, g, sl, i, m)
	case m.Kind != wire.ReduceGive && fromRoot:
		why = s.answered(now, in, f, g, sl, m)
	}
	if why != reduceOK {
		s.drop(now, in, f, why)
		return
	}
	s.absorb(f)
}

// reduceOK means that the packet is not to be dropped.
const reduceOK = dropReasons

// take adds a path's part to a chunk, and sends the sum when it is complete.
func (s *Switch) take(now vtime.Time, in int, f *wire.Frame, g *group, sl *slot, i int, m wire.ReduceImm) DropReason {
	if m.Chunk != sl.chunk {
		if sl.state != slotDone || m.Chunk != (sl.chunk+2*wire.ReduceWindow)%wire.ReduceChunks {
			return DropReduceChunk
		}
		sl.begin(m.Chunk, len(g.path))
	}
	switch {
	case i >= len(sl.parts) && sl.state != slotDone:
		return DropReduceChunk // the path is newer than the chunk
	case sl.state == slotDone:
		s.answer(now, in, f, g, sl, i)
		return reduceOK
	case sl.parts[i].given:
		if sl.state == slotSent { // the sum, or the answer to it, may have been lost
			s.sendReduce(now, in, f, g, g.rootPath(), sl, wire.ReduceGive)
		}
		return reduceOK
	}
	if !sl.fits(f, m) {
		return DropMalformed
	}
	s.stats.ReducedIn++
	sl.give(i, f, m)
	if sl.given < sl.wanted(g) {
		return reduceOK
	}
	s.add(g, sl)
	if up := g.rootPath(); up >= 0 {
		sl.state = slotSent
		s.sendReduce(now, in, f, g, up, sl, wire.ReduceGive)
		return reduceOK
	}
	sl.state = slotDone
	s.answerAll(now, in, f, g, sl)
	return reduceOK
}

// begin makes the slot ready for its next chunk and reuses its memory.
func (sl *slot) begin(chunk uint32, paths int) {
	sl.chunk, sl.state, sl.given, sl.owner, sl.kind, sl.sum = chunk, slotGather, 0, -1, shape{}, sl.sum[:0]
	if len(sl.parts) != paths {
		sl.parts = make([]part, paths)
	}
	for i := range sl.parts {
		sl.parts[i] = part{bytes: sl.parts[i].bytes[:0]}
	}
}

// wanted returns the number of paths that have to give their part.
func (sl *slot) wanted(g *group) int {
	if g.rootPath() >= 0 {
		return len(g.path) - 1
	}
	return len(g.path)
}

// fits reports whether a part agrees with those already given in length, in the type of its
// numbers, and in the member that the sum is for.
func (sl *slot) fits(f *wire.Frame, m wire.ReduceImm) bool {
	n := f.PayloadLen()
	switch {
	case n%4 != 0 || n > mtuMax || n == 0 && !m.Own || m.Own && sl.owner >= 0:
		return false
	case sl.given > 0 && m.Float32 != sl.kind.float:
		return false
	}
	return n == 0 || sl.kind.n == 0 || sl.kind.n == n && sl.kind.phantom == f.Phantom()
}

// give stores the part that path i gives.
func (sl *slot) give(i int, f *wire.Frame, m wire.ReduceImm) {
	p := &sl.parts[i]
	p.given, p.n = true, f.PayloadLen()
	p.bytes = append(p.bytes, f.PayloadBytes()...)
	if p.n > 0 {
		sl.kind.n, sl.kind.phantom = p.n, f.Phantom()
	}
	sl.kind.float = m.Float32
	if m.Own {
		sl.owner = i
	}
	sl.given++
}

// add adds the parts of all paths in the order of their ports. With floating point the order
// changes the sum, and this order is the same in every run.
func (s *Switch) add(g *group, sl *slot) {
	for port := range s.ports {
		i := int(g.index[port]) - 1
		if i < 0 || i >= len(sl.parts) || sl.parts[i].n == 0 || sl.kind.phantom {
			continue
		}
		if len(sl.sum) == 0 {
			sl.sum = append(sl.sum, sl.parts[i].bytes...)
			continue
		}
		wire.ReduceAdd(sl.sum, sl.parts[i].bytes, sl.kind.float)
	}
}

// answered takes the answer from the root and passes it on. Only the path to the member
// that the sum is for gets the sum itself.
func (s *Switch) answered(now vtime.Time, in int, f *wire.Frame, g *group, sl *slot, m wire.ReduceImm) DropReason {
	switch result := m.Kind == wire.ReduceResult; {
	case m.Chunk != sl.chunk || sl.state == slotGather:
		return DropReduceChunk
	case sl.state == slotDone: // a repeat of the answer
		return reduceOK
	case m.Kind > wire.ReduceDone || result != (sl.owner >= 0) || f.PayloadLen() > mtuMax:
		return DropMalformed
	case result:
		sl.kind.n, sl.kind.phantom = f.PayloadLen(), f.Phantom()
		sl.sum = append(sl.sum[:0], f.PayloadBytes()...)
	}
	sl.state = slotDone
	s.answerAll(now, in, f, g, sl)
	return reduceOK
}

func (s *Switch) answerAll(now vtime.Time, in int, f *wire.Frame, g *group, sl *slot) {
	for i := range g.path {
		if i != g.rootPath() {
			s.answer(now, in, f, g, sl, i)
		}
	}
}

// answer sends the sum to the owner's path, and to any other only that there is one.
func (s *Switch) answer(now vtime.Time, in int, f *wire.Frame, g *group, sl *slot, i int) {
	kind := wire.ReduceDone
	if i == sl.owner {
		kind = wire.ReduceResult
	}
	s.sendReduce(now, in, f, g, i, sl, kind)
}

// sendReduce sends a packet of a chunk over a path: to the member's queue pair if the path
// ends at a host, to the group otherwise. f is the packet that is answered.
func (s *Switch) sendReduce(now vtime.Time, in int, f *wire.Frame, g *group, i int, sl *slot, kind wire.ReduceKind) {
	to := &g.path[i]
	dst, qpn := g.id, wire.QPNGSI
	if to.host {
		dst, qpn = to.ip, to.qpn
	}
	e := s.feedbackEnvelope(g, to.host, dst, f)
	c := s.pool.Get()
	c.Start(&e, wire.BTH{OpCode: wire.OpUDSendOnlyImm, Migrated: true, PKey: wire.PKeyDefault, DestQP: qpn, PSN: wire.PSN(sl.chunk) & wire.PSNMask})
	c.AddDETH(wire.DETH{QKey: wire.ReduceQKey, SrcQP: wire.QPNGSI})
	c.AddImm(wire.ReduceImm{Kind: kind, Float32: sl.kind.float, Own: kind == wire.ReduceGive && sl.owner >= 0, Chunk: sl.chunk}.Imm())
	if kind != wire.ReduceDone {
		s.stats.ReducedOut++
		switch {
		case sl.kind.n == 0:
		case sl.kind.phantom:
			c.SetPhantom(sl.kind.n)
		default:
			b := s.pool.Block()
			copy(b.Fill(sl.kind.n), sl.sum)
			c.SetPayload(b)
		}
	}
	c.Seal(uint16(sl.chunk), s.trust)
	s.stats.Made++
	var a arrival
	s.arrived(&a, c, in)
	s.out(now, to.port, c, &a)
}
