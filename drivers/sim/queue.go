package sim

import "math/bits"

// The event queue holds 64-bit keys: the time in the upper bits, class and id in the lower ones.
// An event is one word, and the key itself decides ties. Times are relative to a base that moves.

// radixHeap is a monotone priority queue: except for ties within an instant, no key is pushed
// that is below the last popped key. Bucket i holds the keys whose highest bit that differs from
// the last popped key is bit i-1, so that most keys move only a few times before they leave.
type radixHeap struct {
	bucket [65][]uint64
	mask   uint64 // bit i: bucket i is not empty (bucket 64 cannot occur: keys have 63 bits)
	last   uint64
	n      int

	// prefetch, if set, is called with the keys of a small bucket that is spread. It loads what
	// their events will need, so that the cache misses overlap.
	prefetch func(keys []uint64)
}

// prefetchMax is the size of the largest bucket that is worth prefetching. The data of a larger
// one would be evicted before its use.
const prefetchMax = 128

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

// least returns the smallest key, which stays.
func (h *radixHeap) least() (uint64, bool) {
	if h.n == 0 {
		return 0, false
	}
	b := h.bucket[bits.TrailingZeros64(h.mask)]
	least := b[0]
	for _, k := range b[1:] {
		least = min(least, k)
	}
	return least, true
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
	if h.prefetch != nil && len(b) > 1 && len(b) <= prefetchMax {
		h.prefetch(b)
	}
}

// drain removes and returns all keys, in no particular order.
func (h *radixHeap) drain() (all []uint64) {
	for i := range h.bucket {
		all = append(all, h.bucket[i]...)
		h.bucket[i] = h.bucket[i][:0]
	}
	h.mask, h.n = 0, 0
	return all
}
