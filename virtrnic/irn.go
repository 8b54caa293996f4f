// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// IRN is selective repeat after Mittal et al., "Revisiting Network Support for RDMA" (SIGCOMM 2018):
// the receiver keeps packets that come out of order and reports them. The sender repeats only missing
// packets, keeps no more than a bandwidth-delay product under way, and uses a short timeout while few
// packets are.
//
// A requester sets in every request the bit that it takes SACKs (wire.SACK). A responder with
// IRN then keeps packets and reports them. With any other peer both sides use go-back-N, so
// there is nothing to negotiate.
//
// It differs from the paper in the place where an early packet waits. The paper adds headers so that
// each packet can be placed by itself; here packets are those of RoCEv2. A packet of the WRITE being
// received is placed at once, and any other waits in the NIC for its turn, so receives are consumed and
// requests complete in order.
type IRN struct {
	// Cap is the bytes of payload a queue pair may have under way: the fabric's largest
	// bandwidth-delay product. If not every packet asks for an acknowledgement, a few packets
	// are added for that.
	Cap int
	// RTOLow is the timeout while at most three packets are under way, RTOHigh otherwise.
	// Retries are counted by the verbs' timeout as without IRN.
	RTOLow, RTOHigh vtime.Duration
}

// Defaults of IRN, as its authors' simulations have them.
const (
	RTOLowDefault  = 100 * vtime.Microsecond
	RTOHighDefault = 320 * vtime.Microsecond
)

const (
	irnFew   = 3   // packets under way for which RTOLow holds
	irnSlots = 512 // packets a queue pair keeps out of order, at most (as ConnectX-7)

	// irnShort is the number of short timeouts in a row with the first one's length, without progress and within one verbs
	// timeout. Each further one takes twice as long as the one before. They count as no retry, so nothing else bounds the
	// repeats to a peer that is gone or answers late: 2^31 times with the longest verbs timeout. The verbs timeout of a
	// lab by default, 4.2 ms, has 42 of the shortest (GEN-4).
	irnShort = 64
)

// selectively sets up a queue pair's selective repeat, once its path MTU is known.
func (n *NIC) selectively(q *QP) {
	if n.irn == nil || q.service != wire.RC {
		return
	}
	q.order = &reorder{}
	packets := uint64((n.irn.Cap+q.mtu-1)/q.mtu + int(n.ackEvery))
	q.sq.sel = &selective{cap: min(max(packets, irnFew+1), irnSlots, n.window)}
}

// bitRing is a set of packets by the low bits of their number.
type bitRing [irnSlots / 64]uint64

// has reports whether the bit of packet i is set.
func (b *bitRing) has(i uint64) bool { return b[i/64%(irnSlots/64)]>>(i%64)&1 != 0 }
func (b *bitRing) set(i uint64)      { b[i/64%(irnSlots/64)] |= 1 << (i % 64) }
func (b *bitRing) clear(i uint64)    { b[i/64%(irnSlots/64)] &^= 1 << (i % 64) }

// word returns 64 bits from i on.
func (b *bitRing) word(i uint64) uint64 {
	w, s := i/64, i%64
	v := b[w%(irnSlots/64)] >> s
	if s > 0 {
		v |= b[(w+1)%(irnSlots/64)] << (64 - s)
	}
	return v
}

// addSACK adds the bitmap of received packets to a NAK.
func addSACK(f *wire.Frame, came *bitRing, expected, cause wire.PSN) {
	first := uint64(expected) + 1
	f.AddSACK(wire.SACK{PSN: cause, Lo: came.word(first), Hi: came.word(first + 64)})
}
