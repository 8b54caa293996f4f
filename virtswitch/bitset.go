// SPDX-License-Identifier: Apache-2.0

package virtswitch

import "math/bits"

// bitset is a set of small numbers, such as ports, visited in ascending order.
type bitset []uint64

func newBitset(n int) bitset { return make(bitset, (n+63)/64) }

func (b bitset) set(i int)   { b[i>>6] |= 1 << (i & 63) }
func (b bitset) clear(i int) { b[i>>6] &^= 1 << (i & 63) }

// has reports whether i is in the set.
func (b bitset) has(i int) bool { return b[i>>6]>>(i&63)&1 != 0 }

// next returns the lowest member not below i, or -1.
func (b bitset) next(i int) int {
	for w := i >> 6; w < len(b); w++ {
		x := b[w]
		if w == i>>6 {
			x &= ^uint64(0) << (i & 63)
		}
		if x != 0 {
			return w<<6 | bits.TrailingZeros64(x)
		}
	}
	return -1
}
