// SPDX-License-Identifier: Apache-2.0

package virtrnic

import "math/bits"

// weights share a NIC's link among priorities: those with a weight take turns in proportion to it, below the strict
// ones. A turn ends when the priority has sent its share, and the excess of its last frame counts against its next
// turn (surplus round robin, in bytes on the wire), since the length of a queue pair's next packet is not known
// before it is made.
type weights struct {
	weighted uint8 // priorities in the round
	at       uint8 // the one whose turn it is
	granted  bool  // it has had the quantum of this turn
	quantum  [8]int32
	credit   [8]int32 // above -frameMax
}

// frameMax is an upper bound of a frame's size on the wire. A quantum is as large, so that every priority sends
// in every round.
const frameMax = MaxMTU + 256

// newWeights returns nil if all priorities are strict.
func newWeights(of [8]uint8) *weights {
	w := &weights{}
	for p, share := range of {
		if share > 0 {
			w.weighted |= 1 << p
			w.quantum[p] = int32(share) * frameMax
		}
	}
	if w.weighted == 0 {
		return nil
	}
	return w
}

// choose returns the priority that sends next, of those in may, of which there is one.
func (w *weights) choose(may uint8) uint8 {
	if strict := may &^ w.weighted; strict != 0 {
		return uint8(bits.Len8(strict) - 1)
	}
	for {
		p := w.at
		switch {
		case may>>p&1 == 0:
			w.credit[p] = min(w.credit[p], 0) // credit that is not used is lost
		case !w.granted:
			w.credit[p] += w.quantum[p]
			w.granted = true
			fallthrough
		default:
			if w.credit[p] > 0 {
				return p
			}
		}
		w.at, w.granted = (p+1)&7, false
	}
}

// spend takes a frame off the credit of the priority that sent it.
func (w *weights) spend(prio uint8, bytes int) {
	if w.weighted>>prio&1 != 0 {
		w.credit[prio] -= int32(bytes)
	}
}

// reset forgets whose turn it is.
func (w *weights) reset() { w.at, w.granted, w.credit = 0, false, [8]int32{} }
