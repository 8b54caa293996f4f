// SPDX-License-Identifier: Apache-2.0

package collective

// binaryTree is the binary tree in heap order (BAS-9): rank i passes on to 2i+1 and 2i+2.
// The whole message in turn:
//
//	T = max over paths root..leaf of sum (S(M, L) of each edge
//	    + a round trip and S of the sibling before it)
//
// or two sends per level. Pipelined, with s slices of M/s to both children at once, and
// c children of each rank on the path, the root first:
//
//	T = max over paths of c_0 s wire(M/s)/B + sum over the others with children of c wire(M/s)/B
//	    + sum over edges of (S(M/s, L) - wire(M/s)/B)
func binaryTree(me, size int, _ Options) (parent int, children []int) {
	parent = (me+1)/2 - 1
	return parent, upTo(size, 2*me+1, 2*me+2)
}

// inOrder is the first of the two trees of the double binary tree (Sanders, Speck and
// Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan"), as
// MPI libraries and NCCL have it: the receivers stand in a binary tree in order, so that
// those with odd numbers are leaves. The other tree is the same with the receivers
// shifted by one: who passes on in one is a leaf in the other. Each tree moves half of
// the message in s slices of M/2s, so that every link is used in full in both
// directions, after a start-up that grows with the trees' depth D = floor(log2 r) + 1:
//
//	T = 2 s wire(M/2s)/B + sum over the other edges of a path of 2 wire(M/2s)/B
//	    + sum over edges of (S(M/2s, L) - wire(M/2s)/B) + 2 t_pkt
//
// The last term is where the packets of the two trees meet, at the port of a receiver.
func inOrder(me, size int, _ Options) (parent int, children []int) {
	if me == 0 {
		top := 1
		for 2*top < size {
			top *= 2
		}
		return -1, upTo(size, top)
	}
	low := me & -me
	parent = me ^ low | low<<1
	if parent >= size {
		parent = me ^ low
	}
	if low > 1 {
		children = append(children, me-low/2)
	}
	for s := low / 2; s > 0; s /= 2 {
		if me+s < size {
			return parent, append(children, me+s)
		}
	}
	return parent, children
}

// inOrderShifted is the second tree: rank i stands where i+1 is in the first one, and
// the last rank where 1 is.
func inOrderShifted(me, size int, o Options) (parent int, children []int) {
	place := func(rank int) int {
		if rank == 0 {
			return 0
		}
		return rank%(size-1) + 1
	}
	rank := func(place int) int {
		if place <= 0 {
			return place
		}
		return (place+size-3)%(size-1) + 1
	}
	parent, children = inOrder(place(me), size, o)
	for i := range children {
		children[i] = rank(children[i])
	}
	return rank(parent), children
}
