// SPDX-License-Identifier: Apache-2.0

package collective

// The rings of HPL's panel broadcast (HPL's documentation, "Panel Broadcast"; BAS-5),
// and the chain. A ring passes the whole message; slices pipeline it.

// ring is HPL's increasing ring: 0 to 1 to 2 and so on. With slices it is the chain
// (BAS-2). With s slices, at most one per packet:
//
//	T = sum over hops of (S(M/s, L) - wire(M/s)/B) + (r+s-1) wire(M/s)/B
func ring(me, size int, _ Options) (parent int, children []int) { return along(me, 0, size) }

// ringM is HPL's modified increasing ring: 0 sends to 1, which does not forward, then to 2, where the
// ring continues.
//
//	T = max(S(M, L), S(M, L) + A(L) + the ring of N-1 without rank 1)
func ringM(me, size int, _ Options) (parent int, children []int) {
	switch {
	case me == 0:
		return -1, upTo(size, 1, 2)
	case me <= 2:
		_, children = along(me, 2, size)
		return 0, children
	}
	return along(me, 2, size)
}

// twoRings is HPL's increasing two-ring: 0 serves one ring of ranks 1 to half and one
// of the others.
//
//	T = max(ring of the first half, S(M, L) + A(L) + ring of the second)
func twoRings(me, size int, _ Options) (parent int, children []int) {
	return twoRingsFrom(me, 1, size)
}

// twoRingsM is HPL's modified increasing two-ring: 0 sends to 1, which passes nothing
// on, and then the others are divided as in the increasing two-ring, one send later.
func twoRingsM(me, size int, _ Options) (parent int, children []int) {
	switch me {
	case 0:
		_, children = twoRingsFrom(0, 2, size)
		return -1, append(upTo(size, 1), children...)
	case 1:
		return 0, nil
	}
	return twoRingsFrom(me, 2, size)
}

// twoRingsFrom divides the ranks from the given one on into two rings. The root counts
// as the first ring's, so that the second is longer by up to one.
func twoRingsFrom(me, from, size int) (parent int, children []int) {
	second := from - 1 + (size-from+2)/2
	if second <= from {
		second = size // too few for two
	}
	switch {
	case me == 0:
		return -1, upTo(size, from, second)
	case me == from || me == second:
		parent = 0
	default:
		parent = me - 1
	}
	if me < second {
		return parent, upTo(second, me+1)
	}
	return parent, upTo(size, me+1)
}

// along returns a rank's place in a ring from rank from to rank end-1.
func along(me, from, end int) (parent int, children []int) {
	if me >= from {
		children = upTo(end, me+1)
	}
	return me - 1, children
}

// upTo returns those of the given ranks that are below end.
func upTo(end int, ranks ...int) (in []int) {
	for _, r := range ranks {
		if r < end {
			in = append(in, r)
		}
	}
	return in
}
