// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/window"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// coder packs an event into a key of the queue, in the order time, class, masked id. Times are relative to a base
// that moves. Counts of shifts are masked, so that the compiler knows that they are below 64.
type coder struct {
	base   vtime.Time // instant that keys count from
	limit  vtime.Time // the first instant whose distance from the base does not fit a key
	idBits uint
	order  window.Order
}

// span returns the distance from the base from which on an instant does not fit a key.
func (c *coder) span() vtime.Time { return 1 << (63 - classBits - c.idBits) }

// from makes an instant the base of all keys.
func (c *coder) from(base vtime.Time) { c.base, c.limit = base, base+c.span() }

// key returns the key of an event, whose instant must be below the limit.
func (c *coder) key(at vtime.Time, class, id int) uint64 {
	return uint64(at-c.base)<<((c.idBits+classBits)&63) | uint64(class)<<(c.idBits&63) | uint64(id) ^ c.order.Mask(at)
}

// when returns the instant of a key.
func (c *coder) when(k uint64) vtime.Time { return c.base + vtime.Time(k>>((c.idBits+classBits)&63)) }

// class returns the class of a key.
func (c *coder) class(k uint64) int { return int(k >> (c.idBits & 63) & (1<<classBits - 1)) }

// id returns the id of a key of the given instant.
func (c *coder) id(k uint64, at vtime.Time) int {
	return int((k ^ c.order.Mask(at)) & (1<<(c.idBits&63) - 1))
}

// unpack returns the event of a key.
func (c *coder) unpack(k uint64) (at vtime.Time, class, id int) {
	at = c.when(k)
	return at, c.class(k), c.id(k, at)
}

// schedule puts an event into the queue. An event whose distance from the base does not fit a
// key waits in n.far.
func (n *Net) schedule(at vtime.Time, class, id int) {
	if at >= n.limit && !n.reaches(at) {
		n.far.push(at, event{class, id})
		return
	}
	n.queue.push(n.key(at, class, id))
}

// reaches reports whether an instant fits a key after the base has moved, if it has reason to.
func (n *Net) reaches(at vtime.Time) bool {
	if n.now-n.base > n.span()/2 {
		n.rebase()
	}
	return at < n.limit
}

// rebase makes the current instant the base of all keys. It is rare, because the span is a
// quarter of a second at least.
func (n *Net) rebase() {
	q := &n.queue
	shift := uint64(n.now-n.base) << (n.idBits + classBits)
	keys := q.drain()
	q.last -= shift
	for _, k := range keys {
		q.push(k - shift)
	}
	n.countFrom(n.now)
}

// skip makes the instant of the earliest event in n.far the base of all keys. The queue must be
// empty. skip returns false if n.far is empty too, or if the run has ended.
func (n *Net) skip() bool {
	at := n.far.first()
	if at == vtime.Never {
		return false
	}
	n.queue.last = 0
	n.countFrom(at)
	return n.err == nil
}

// countFrom sets the base of all keys and moves the events of n.far whose instants now fit a key
// into the queue. A base after the end of lab time ends the run with rankhost.ErrEnd.
func (n *Net) countFrom(base vtime.Time) {
	if base > vtime.End && n.err == nil {
		n.err = rankhost.Ended(n.blocked())
	}
	n.from(base)
	for n.far.first() < n.limit {
		at := n.far.first()
		e := n.far.pop()
		n.queue.push(n.key(at, e.class, e.id))
	}
}
