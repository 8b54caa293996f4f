package virtswitch

import "github.com/mcastlab/mcastlab/vtime"

// buffer is the account of the shared packet memory, in bytes on the wire. Lossless
// classes have a part of their own (thresholds and headroom of every port), the
// others share the rest. A frame is charged while it waits, from its arrival to its
// start; what leaves at once is never charged.
type buffer struct {
	limit     int // all of it
	lossy     int // charged by lossy classes
	lossyMax  int
	lossless  int // charged by lossless classes
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
	xoff  uint8 // priorities for which the neighbour is paused
}

// charge books the frame that is being handled on its ingress; a.dead says that
// there was no room. It is called when the frame's first copy has to wait.
func (s *Switch) charge(now vtime.Time, a *arrival) {
	lossless := s.pfc.lossless>>a.prio&1 != 0
	if !s.admits(lossless, a) {
		s.settleAll(now - 1) // R4: the account may be stale, but only upwards
		if !s.admits(lossless, a) {
			a.dead, a.refused = true, DropBufferFull
			if lossless {
				a.refused = DropHeadroom
			}
			return
		}
	}
	a.charged = true
	s.in[a.in].bytes[a.prio] += int32(a.size)
	c := int32(a.in)<<3 | int32(a.prio)
	if lossless {
		s.buffer.lossless += a.size
		s.checkXOFF(now, a.in, a.prio)
	} else {
		s.buffer.lossy += a.size
	}
	a.charge = c
	if a.shared {
		a.charge = ^s.buffer.share(c, int32(a.size))
	}
}

func (s *Switch) admits(lossless bool, a *arrival) bool {
	b := &s.buffer
	if lossless {
		return int(s.in[a.in].bytes[a.prio])+a.size <= s.pfc.xoffBytes+s.pfc.headroom[a.in] &&
			b.lossless+b.lossy+a.size <= b.limit
	}
	return b.lossy+a.size <= b.lossyMax
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
	s.in[in].bytes[prio] -= size
	if s.pfc.lossless>>prio&1 == 0 {
		s.buffer.lossy -= int(size)
		return
	}
	s.buffer.lossless -= int(size)
	s.checkXON(now, in, prio)
}

// Occupancy returns the bytes charged to a port's arrivals of one priority. The
// figure may include frames that have started since the port was last settled.
func (s *Switch) Occupancy(port int, priority uint8) int { return int(s.in[port].bytes[priority]) }
