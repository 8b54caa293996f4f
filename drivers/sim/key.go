package sim

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/window"
)

// coder packs an event into a key of the queue, in the order time, class, masked id. Times are relative to a base
// that moves. Counts of shifts are masked, which says that they are below 64.
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
