// SPDX-License-Identifier: Apache-2.0

package collective

import "github.com/mcastlab/mcastlab/rank"

// newUDMulticast is Broadcast over UD multicast (see cast). The root multicasts its buffer in
// datagrams of an MTU, which land in staging rings.
//
//	T = T_bar + max(wire(M)/B, M/W) + path + T_fin
//
// (F-12) with T_bar = ceil(log2 N) S(0, L), path = S(l, Lmax) - wire(l)/B of the last
// packet l, T_fin = S(0, L) with 4 bytes more, and W the rate of the receive workers (see engine). A packet
// carries 12 bytes more than one of a reliable connection. Does not depend on N but for
// the barrier and the depth of the tree (AG-3).
func newUDMulticast(r *rank.Rank, o *Options) (Algorithm, error) {
	return newCast(r, o, rank.Datagrams, false)
}

// newUCMulticast is newUDMulticast over UC: chunks, which may have several packets, are WRITEs
// with immediate data that land in their place without staging (AG-27). A lost packet costs
// its whole chunk. It needs memory at the same address with the same key on all ranks, and UC
// queue pairs that receive from a multicast group, which no standard provides (rank.Writes).
// The first packet of a chunk carries 16 bytes more, and the last 4.
func newUCMulticast(r *rank.Rank, o *Options) (Algorithm, error) {
	return newCast(r, o, rank.Writes, false)
}

// newMulticast is Allgather over UD multicast. There are M chains of R = N/M ranks, and in
// each chain one rank at a time multicasts its block (AG-21).
//
//	T = T_bar + R min(M, N-1) wire(n)/B + (R-1) sigma + path + T_fin
//
// (F-13): a step brings each receiver the blocks of all chains. sigma, the activation of
// the next rank of a chain, goes right behind the block's last packet and takes path and
// the time of an empty message on the wire. T_bar, path and T_fin are those of
// newUDMulticast. More chains save activations, not time for bytes.
func newMulticast(r *rank.Rank, o *Options) (Algorithm, error) {
	return newCast(r, o, rank.Datagrams, true)
}

// newUCGather is newMulticast over UC. Each chain has queue pairs of its own.
func newUCGather(r *rank.Rank, o *Options) (Algorithm, error) {
	return newCast(r, o, rank.Writes, true)
}
