package sim

import "math/bits"

// The event queue holds 64-bit keys: time above, class and id below, so that an
// event is one word and ties are in the key. Time is relative to a base that moves.

// radixHeap is a monotone priority queue: what is pushed is, but for ties within an
// instant, not below what was popped last. Bucket i holds the keys whose highest bit
// that differs from the last popped key is bit i-1, so most keys move only a few
// times before they leave.
type radixHeap struct {
	bucket [65][]uint64
	mask   uint64 // bit i: bucket i is not empty (bucket 64 cannot occur: keys have 63 bits)
	last   uint64
	n      int

	// touch, if set, is shown the keys of a small bucket that is spread. It loads what
	// their events will need: the loads overlap, later misses do not happen.
	touch func(keys []uint64)
}

// touchMax is the largest bucket worth showing to touch: beyond it what was loaded
// is evicted again before its turn.
const touchMax = 128

func (h *radixHeap) push(k uint64) {
	i := bits.Len64(k ^ h.last)
	h.bucket[i] = append(h.bucket[i], k)
	h.mask |= 1 << i
	h.n++
}

func (h *radixHeap) pop() (uint64, bool) {
	if h.n == 0 {
		return 0, false
	}
	h.n--
	if h.mask&1 == 0 {
		h.spread()
	}
	b := h.bucket[0]
	k := b[len(b)-1]
	h.bucket[0] = b[:len(b)-1]
	if len(b) == 1 {
		h.mask &^= 1
	}
	return k, true
}

// spread moves the keys of the lowest bucket down, relative to the smallest of them.
func (h *radixHeap) spread() {
	i := bits.TrailingZeros64(h.mask)
	b := h.bucket[i]
	least := b[0]
	for _, k := range b[1:] {
		least = min(least, k)
	}
	h.last = least
	h.mask &^= 1 << i
	h.bucket[i] = b[:0]
	for _, k := range b {
		j := bits.Len64(k ^ least)
		h.bucket[j] = append(h.bucket[j], k)
		h.mask |= 1 << j
	}
	if h.touch != nil && len(b) > 1 && len(b) <= touchMax {
		h.touch(b)
	}
}

// drain takes all keys out, in no order.
func (h *radixHeap) drain() (all []uint64) {
	for i := range h.bucket {
		all = append(all, h.bucket[i]...)
		h.bucket[i] = h.bucket[i][:0]
	}
	h.mask, h.n = 0, 0
	return all
}
