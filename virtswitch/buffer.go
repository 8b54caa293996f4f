// SPDX-License-Identifier: Apache-2.0

package virtswitch

import "github.com/mcastlab/mcastlab/core/vtime"

// buffer is the account of the shared packet memory, in bytes on the wire, and of the neighbours that
// are paused to keep it from overflowing. It is a value: its methods take the bytes that frames charge
// and release, and return the neighbours to pause and to resume. A frame is charged while it waits,
// from its arrival to its start; a frame that leaves at once is never charged.
//
// With static thresholds lossless classes have a part of their own (thresholds, headroom
// and one frame of every queue), and the others share the rest. With dynamic thresholds all
// queues share a pool, up to a threshold that falls as the pool fills; only beyond it does a
// lossless queue take from its own part.
type buffer struct {
	thresholds

	// limit is the size of the whole memory. Invariant with static thresholds:
	// losslessBytes + lossyBytes <= limit.
	limit int

	// lossyBytes and losslessBytes are the bytes charged by priorities of either kind. Invariant:
	// together they are the sum of bytes of all ingresses.
	lossyBytes, losslessBytes int

	// lossyMax is the number of bytes that lossy priorities may charge with static thresholds.
	// Invariant with static thresholds: lossyBytes <= lossyMax.
	lossyMax int

	// pool is the memory that all queues share with dynamic thresholds, and used the bytes of it that
	// they hold. Invariant: 0 <= used <= pool; used is the sum of bytes less own of all ingresses. With
	// static thresholds used is 0.
	pool, used int

	in []ingress // by port

	// paused has, by port, a bit for each priority for which the neighbour is paused.
	paused []uint8

	// pauses is the number of pairs of port and priority that are paused, and pausedPorts the ports
	// with at least one such priority. Invariant: they agree with paused.
	pauses      int
	pausedPorts bitset

	// shared holds the charges of frames with several copies, and freeIndex its free places.
	shared    []sharedCharge
	freeIndex []int32
}

// sharedCharge is the one charge of a frame that waits on several ports.
type sharedCharge struct {
	charge int32 // ingress<<3 | priority
	size   int32
	copies int32
}

// ingress holds the bytes of the buffer that frames from one port charge, by priority. It has the size of a cache
// line.
type ingress struct {
	bytes [8]int32

	// own is the share of bytes in the queue's own part, with dynamic thresholds. Invariant: 0 <= own
	// <= bytes, and own <= ownPart of the port; 0 for a lossy priority.
	own [8]int32
}

// place is the part of the buffer that a frame is charged to.
type place uint8

const (
	placeShared place = iota
	placeOwn
	placeNone
)

func newBuffer(c PFCConfig, ports, limit int) buffer {
	t := newThresholds(c, ports, limit)
	return buffer{
		thresholds: t, limit: limit, lossyMax: limit - t.reserved(), pool: limit - t.reserved(),
		in: make([]ingress, ports), paused: make([]uint8, ports), pausedPorts: newBitset(ports),
	}
}

// reset empties the buffer and forgets all pauses.
func (b *buffer) reset() {
	clear(b.in)
	clear(b.paused)
	clear(b.pausedPorts)
	*b = buffer{
		thresholds: b.thresholds, limit: b.limit, lossyMax: b.lossyMax, pool: b.pool, in: b.in, paused: b.paused, pausedPorts: b.pausedPorts,
	}
}

// threshold returns the number of bytes of the pool that a queue may hold now.
func (b *buffer) threshold() int { return int(b.alpha * float64(b.pool-b.used)) }

// place finds room for a frame.
func (b *buffer) place(in int, prio uint8, size int) place {
	g := &b.in[in]
	lossless := b.lossless>>prio&1 != 0
	have := int(g.bytes[prio]) + size
	if b.alpha > 0 {
		switch {
		case b.paused[in]>>prio&1 == 0 && have <= b.threshold() && b.used+size <= b.pool:
			return placeShared
		case lossless && int(g.own[prio])+size <= b.ownPart(in):
			return placeOwn
		}
		return placeNone
	}
	if lossless && have <= b.xoffBytes+b.ownPart(in) && b.losslessBytes+b.lossyBytes+size <= b.limit ||
		!lossless && b.lossyBytes+size <= b.lossyMax {
		return placeShared
	}
	return placeNone
}

// take charges a frame to its ingress, in a place that place has found.
func (b *buffer) take(in int, prio uint8, size int, where place) {
	g := &b.in[in]
	g.bytes[prio] += int32(size)
	if b.lossless>>prio&1 != 0 {
		b.losslessBytes += size
	} else {
		b.lossyBytes += size
	}
	switch {
	case b.alpha == 0:
	case where == placeShared:
		b.used += size
	default:
		g.own[prio] += int32(size)
	}
}

// give ends a charge. With dynamic thresholds the queue's own part is freed before the pool.
func (b *buffer) give(in int, prio uint8, size int32) {
	g := &b.in[in]
	g.bytes[prio] -= size
	if b.lossless>>prio&1 == 0 {
		b.lossyBytes -= int(size)
	} else {
		b.losslessBytes -= int(size)
	}
	if b.alpha > 0 {
		own := min(g.own[prio], size)
		g.own[prio] -= own
		b.used -= int(size - own)
	}
}

// mustPause reports whether the neighbour has to be paused and is not paused yet: with static
// thresholds if its arrivals hold more than XOFF, with dynamic ones if they have reached the
// queue's own part.
func (b *buffer) mustPause(in int, prio uint8) bool {
	g := &b.in[in]
	switch {
	case b.paused[in]>>prio&1 != 0 || b.lossless>>prio&1 == 0:
		return false
	case b.alpha > 0:
		return g.own[prio] > 0
	}
	return int(g.bytes[prio]) > b.xoffBytes
}

// mayResume reports whether a neighbour that is paused may send again.
func (b *buffer) mayResume(in int, prio uint8) bool {
	g := &b.in[in]
	switch {
	case b.alpha > 0 && b.resumeOffset > 0:
		return g.own[prio] == 0 && (g.bytes[prio] == 0 || int(g.bytes[prio])+b.resumeOffset <= b.threshold())
	case b.alpha > 0:
		return g.own[prio] == 0 && int(g.bytes[prio]) <= b.threshold()/4*3
	}
	return int(g.bytes[prio]) <= b.xonBytes
}

// pause records that the neighbour, which was not paused, is paused.
func (b *buffer) pause(in int, prio uint8) {
	b.paused[in] |= 1 << prio
	b.pauses++
	b.pausedPorts.set(in)
}

// resume records that the neighbour, which was paused, is paused no more. It reports whether
// that was the port's last paused priority.
func (b *buffer) resume(in int, prio uint8) (last bool) {
	b.paused[in] &^= 1 << prio
	b.pauses--
	if b.paused[in] == 0 {
		b.pausedPorts.clear(in)
	}
	return b.paused[in] == 0
}

// share enters a charge for copies on several ports and returns its index.
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

// unshare takes one copy off a shared charge. If it was the last copy, it returns the charge
// and its size, and last is true.
func (b *buffer) unshare(i int32) (charge, size int32, last bool) {
	c := &b.shared[i]
	if c.copies--; c.copies > 0 {
		return 0, 0, false
	}
	b.freeIndex = append(b.freeIndex, i)
	return c.charge, c.size, true
}

// charge charges the frame that is being handled to its ingress, or sets a.dead if there is
// no room. It is called when the frame's first copy has to wait.
func (s *Switch) charge(now vtime.Time, a *arrival) {
	b := &s.buffer
	where := b.place(a.in, a.prio, a.size)
	if where != placeShared && b.paused[a.in]>>a.prio&1 == 0 || where == placeNone {
		s.settleAll(now - 1) // never underestimate occupancy: the account may be stale, but only upwards
		where = b.place(a.in, a.prio, a.size)
	}
	if where == placeNone {
		a.dead, a.refused = true, DropBufferFull
		if b.lossless>>a.prio&1 != 0 {
			a.refused = DropHeadroom
		}
		return
	}
	a.charged = true
	a.charge = int32(a.in)<<3 | int32(a.prio)
	b.take(a.in, a.prio, a.size, where)
	if b.mustPause(a.in, a.prio) {
		if b.alpha == 0 {
			s.settleAll(now - 1) // never underestimate occupancy
		}
		if b.mustPause(a.in, a.prio) {
			s.xoff(now, a.in, a.prio)
		}
	}
	if a.shared {
		a.charge = ^b.share(a.charge, int32(a.size))
	}
}

// release ends the charge of a waiting frame, or its share in one, at the instant it starts.
func (s *Switch) release(now vtime.Time, w waiter) {
	b := &s.buffer
	c, size := w.charge, w.size
	if c < 0 {
		var last bool
		if c, size, last = b.unshare(^c); !last {
			return
		}
	}
	in, prio := int(c>>3), uint8(c&7)
	b.give(in, prio, size)
	if b.alpha == 0 {
		if b.paused[in]>>prio&1 != 0 {
			s.checkXON(now, in, prio)
		}
		return
	}
	if b.pauses > 0 {
		s.checkAllXON(now)
	}
}

// Occupancy returns the bytes charged to a port's arrivals of one priority. The
// figure may include frames that have started since the port was last settled.
func (s *Switch) Occupancy(port int, priority uint8) int {
	return int(s.buffer.in[port].bytes[priority])
}
