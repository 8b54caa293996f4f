package virtswitch

import "github.com/mcastlab/mcastlab/vtime"

// buffer is the account of the shared packet memory, in bytes on the wire. A frame is
// charged while it waits, from its arrival to its start; what leaves at once is never
// charged.
//
// With static thresholds lossless classes have a part of their own (thresholds, headroom
// and one frame of every queue), and the others share the rest. With dynamic ones all
// queues share a pool, up to a threshold that falls as it fills; only beyond it a
// lossless queue takes from its own part.
type buffer struct {
	limit     int // all of it
	lossy     int // charged by lossy classes
	lossyMax  int
	lossless  int // charged by lossless classes
	pool      int // dynamic thresholds: what all queues share
	used      int // of the pool
	shared    []sharedCharge
	freeIndex []int32
}

// sharedCharge is the one charge of a frame that waits on several ports.
type sharedCharge struct {
	charge int32 // ingress<<3 | priority
	size   int32
	copies int32
}

// ingress is what a port's arrivals hold of the buffer.
type ingress struct {
	bytes [8]int32
	own   [8]int32 // dynamic thresholds: of these, what is in the queue's own part
	xoff  uint8    // priorities for which the neighbour is paused
}

// place says where in the buffer a frame goes.
type place uint8

const (
	placeShared place = iota
	placeOwn
	placeNone
)

// charge books the frame that is being handled on its ingress; a.dead says that
// there was no room. It is called when the frame's first copy has to wait.
func (s *Switch) charge(now vtime.Time, a *arrival) {
	lossless := s.pfc.lossless>>a.prio&1 != 0
	where := s.place(lossless, a)
	if where != placeShared && s.in[a.in].xoff>>a.prio&1 == 0 || where == placeNone {
		s.settleAll(now - 1) // R4: the account may be stale, but only upwards
		where = s.place(lossless, a)
	}
	if where == placeNone {
		a.dead, a.refused = true, DropBufferFull
		if lossless {
			a.refused = DropHeadroom
		}
		return
	}
	a.charged = true
	g := &s.in[a.in]
	g.bytes[a.prio] += int32(a.size)
	a.charge = int32(a.in)<<3 | int32(a.prio)
	if lossless {
		s.buffer.lossless += a.size
	} else {
		s.buffer.lossy += a.size
	}
	switch {
	case s.pfc.alpha == 0:
		if lossless {
			s.checkXOFF(now, a.in, a.prio)
		}
	case where == placeShared:
		s.buffer.used += a.size
	default:
		g.own[a.prio] += int32(a.size)
		if g.xoff>>a.prio&1 == 0 {
			s.xoff(now, a.in, a.prio)
		}
	}
	if a.shared {
		a.charge = ^s.buffer.share(a.charge, int32(a.size))
	}
}

// threshold returns what a queue may hold of the pool now.
func (s *Switch) threshold() int {
	return int(s.pfc.alpha * float64(s.buffer.pool-s.buffer.used))
}

// place finds room for a frame.
func (s *Switch) place(lossless bool, a *arrival) place {
	b, g := &s.buffer, &s.in[a.in]
	have := int(g.bytes[a.prio]) + a.size
	if s.pfc.alpha > 0 {
		switch {
		case g.xoff>>a.prio&1 == 0 && have <= s.threshold() && b.used+a.size <= b.pool:
			return placeShared
		case lossless && int(g.own[a.prio])+a.size <= s.pfc.own(a.in):
			return placeOwn
		}
		return placeNone
	}
	if lossless && have <= s.pfc.xoffBytes+s.pfc.own(a.in) && b.lossless+b.lossy+a.size <= b.limit ||
		!lossless && b.lossy+a.size <= b.lossyMax {
		return placeShared
	}
	return placeNone
}

// share books a charge for copies on several ports and returns its index.
func (b *buffer) share(charge, size int32) int32 {
	c := sharedCharge{charge: charge, size: size}
	if n := len(b.freeIndex); n > 0 {
		i := b.freeIndex[n-1]
		b.freeIndex = b.freeIndex[:n-1]
		b.shared[i] = c
		return i
	}
	b.shared = append(b.shared, c)
	return int32(len(b.shared) - 1)
}

// release ends a waiter's part of its charge at the instant it starts.
func (s *Switch) release(now vtime.Time, w waiter) {
	c, size := w.charge, w.size
	if c < 0 {
		i := ^c
		sh := &s.buffer.shared[i]
		if sh.copies--; sh.copies > 0 {
			return
		}
		c, size = sh.charge, sh.size
		s.buffer.freeIndex = append(s.buffer.freeIndex, i)
	}
	in, prio := int(c>>3), uint8(c&7)
	g := &s.in[in]
	g.bytes[prio] -= size
	if s.pfc.lossless>>prio&1 == 0 {
		s.buffer.lossy -= int(size)
	} else {
		s.buffer.lossless -= int(size)
	}
	if s.pfc.alpha == 0 {
		if g.xoff>>prio&1 != 0 {
			s.checkXON(now, in, prio)
		}
		return
	}
	own := min(g.own[prio], size)
	g.own[prio] -= own
	s.buffer.used -= int(size - own)
	if s.pfc.xoffs > 0 {
		s.checkAllXON(now)
	}
}

// Occupancy returns the bytes charged to a port's arrivals of one priority. The
// figure may include frames that have started since the port was last settled.
func (s *Switch) Occupancy(port int, priority uint8) int { return int(s.in[port].bytes[priority]) }
