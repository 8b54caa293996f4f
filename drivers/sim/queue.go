// SPDX-License-Identifier: Apache-2.0

package sim

import "math/bits"

// The event queue holds 64-bit keys: the time in the upper bits, class and id in the lower ones.
// An event is one word, and the key itself decides ties. Times are relative to a base that moves.

// radixHeap is a monotone priority queue: except for ties within an instant, no key is pushed
// that is below the last popped key. Its order is that of the rank of keys, which is the highest bit
// in which they differ from the last popped key, and of the keys among those of one rank. A key
// below the last one comes after those that share more bits with that.
//
// Keys of high ranks wait in buckets, one for each rank, and those of the lowest ranks in order in
// front. When front is empty the lowest buckets move there. A bucket of many keys is spread over
// those below it first, relative to the smallest of its keys.
//
// Invariant: buckets 0 to reach are empty. Invariant: a rank does not change until the last key
// of a lower rank has been popped, so that keys stay in the right bucket and in the right order.
type radixHeap struct {
	front []uint64 // the last one goes first
	reach int      // keys of ranks up to this one go to front
	last  uint64   // the last popped key, or its substitute

	// early is set if there may be keys below last. They were pushed when the last key was earlyLast,
	// and none of them had a rank above earlyRank. With none the order in front is that of the keys.
	early     bool
	earlyLast uint64
	earlyRank int

	bucket [65][]uint64
	mask   uint64 // bit i: bucket i is not empty (bucket 64 cannot occur: keys have 63 bits)
	n      int

	// prefetch, if set, is called with the keys that have moved to front. It loads the memory that
	// their events will need, so that the cache misses overlap.
	prefetch func(keys []uint64)
}

// frontMany is the number of keys that buckets bring to front at a time, and frontMax the most that may
// be there. To sort some tens of keys takes less time than to spread them, bit by bit.
const (
	frontMany = 32
	frontMax  = 96
)

func (h *radixHeap) push(k uint64) {
	h.n++
	rank := bits.Len64(k ^ h.last)
	if k < h.last {
		h.pushEarly(rank)
	}
	if rank <= h.reach {
		h.insert(k)
		return
	}
	h.bucket[rank] = append(h.bucket[rank], k)
	h.mask |= 1 << rank
}

// pushEarly takes note of a key below the last one.
func (h *radixHeap) pushEarly(rank int) {
	if !h.early {
		h.early, h.earlyRank = true, 0
	}
	h.earlyLast, h.earlyRank = h.last, max(h.earlyRank, rank)
}

// insert puts a key in its place in front.
func (h *radixHeap) insert(k uint64) {
	if len(h.front) >= frontMax && h.reach > 0 {
		h.retreat()
		h.n--
		h.push(k)
		return
	}
	h.front = append(h.front, k)
	q := h.front
	i := len(q) - 1
	if h.early {
		for ; i > 0 && h.before(q[i-1], k); i-- {
			q[i] = q[i-1]
		}
	} else {
		for ; i > 0 && q[i-1] < k; i-- {
			q[i] = q[i-1]
		}
	}
	q[i] = k
}

// before reports whether a goes before b.
func (h *radixHeap) before(a, b uint64) bool {
	ra, rb := bits.Len64(a^h.last), bits.Len64(b^h.last)
	return ra < rb || ra == rb && a < b
}

// retreat moves the keys of the highest ranks from front back to their buckets until it has room.
func (h *radixHeap) retreat() {
	gone := 0
	for gone < len(h.front) && len(h.front)-gone > frontMax/2 {
		rank := bits.Len64(h.front[gone] ^ h.last)
		if rank == 0 {
			break
		}
		for gone < len(h.front) && bits.Len64(h.front[gone]^h.last) == rank {
			h.bucket[rank] = append(h.bucket[rank], h.front[gone])
			gone++
		}
		h.mask |= 1 << rank
		h.reach = rank - 1
	}
	h.front = h.front[:copy(h.front, h.front[gone:])]
	if gone == 0 {
		h.reach = 0
	}
}

func (h *radixHeap) pop() (uint64, bool) {
	if h.n == 0 {
		return 0, false
	}
	h.n--
	if len(h.front) == 0 {
		h.fill()
	}
	end := len(h.front) - 1
	k := h.front[end]
	h.front = h.front[:end]
	if h.early && (h.n == 0 || k > h.earlyLast && bits.Len64(k^h.earlyLast) > h.earlyRank) {
		h.early = false
	}
	h.last = k
	return k, true
}

// least returns the key that pop would return, which stays.
func (h *radixHeap) least() (uint64, bool) {
	if h.n == 0 {
		return 0, false
	}
	if end := len(h.front); end > 0 {
		return h.front[end-1], true
	}
	return smallest(h.bucket[bits.TrailingZeros64(h.mask)]), true
}

func smallest(keys []uint64) uint64 {
	least := keys[0]
	for _, k := range keys[1:] {
		least = min(least, k)
	}
	return least
}

// fill moves the keys of the lowest buckets to front.
func (h *radixHeap) fill() {
	low := bits.TrailingZeros64(h.mask)
	for low > 0 && len(h.bucket[low]) > frontMany {
		h.spread(low)
		low = bits.TrailingZeros64(h.mask)
	}
	high, n := low, len(h.bucket[low])
	for rest := h.mask &^ (1<<(low+1) - 1); rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(rest)
		if n += len(h.bucket[i]); n > frontMany {
			break
		}
		high = i
	}
	h.last, h.reach = smallest(h.bucket[low]), high
	for m := h.mask & (1<<(high+1) - 1); m != 0; {
		i := 63 - bits.LeadingZeros64(m)
		m &^= 1 << i
		h.take(i)
	}
	if h.prefetch != nil && len(h.front) > 1 {
		h.prefetch(h.front)
	}
}

// take moves a bucket to front, in order, behind the keys there. All of its keys go before those.
func (h *radixHeap) take(rank int) {
	begin := len(h.front)
	h.front = append(h.front, h.bucket[rank]...)
	h.bucket[rank] = h.bucket[rank][:0]
	h.mask &^= 1 << rank
	q := h.front[begin:]
	for i := 1; i < len(q); i++ {
		k := q[i]
		j := i
		for ; j > 0 && q[j-1] < k; j-- {
			q[j] = q[j-1]
		}
		q[j] = k
	}
}

// spread moves the keys of the lowest bucket down, relative to the smallest of them.
func (h *radixHeap) spread(rank int) {
	b := h.bucket[rank]
	least := smallest(b)
	h.last = least
	h.mask &^= 1 << rank
	h.bucket[rank] = b[:0]
	for _, k := range b {
		j := bits.Len64(k ^ least)
		h.bucket[j] = append(h.bucket[j], k)
		h.mask |= 1 << j
	}
}

// each visits all keys, in no particular order.
func (h *radixHeap) each(visit func(k uint64)) {
	for _, k := range h.front {
		visit(k)
	}
	for _, b := range h.bucket {
		for _, k := range b {
			visit(k)
		}
	}
}

// drain removes and returns all keys, in no particular order.
func (h *radixHeap) drain() (all []uint64) {
	all = append(all, h.front...)
	h.front = h.front[:0]
	for i := range h.bucket {
		all = append(all, h.bucket[i]...)
		h.bucket[i] = h.bucket[i][:0]
	}
	h.mask, h.n, h.reach, h.early = 0, 0, 0, false
	return all
}
