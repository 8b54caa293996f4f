// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
)

// BareHeap lets the benchmarks' bare loop use the event queue by itself.
type BareHeap struct{ h radixHeap }

// Push adds a key.
func (b *BareHeap) Push(k uint64) { b.h.push(k) }

// Pop takes the smallest key.
func (b *BareHeap) Pop() (uint64, bool) { return b.h.pop() }

// WhyNoSkip returns why nothing was left out the last time that it was tried.
func (n *Net) WhyNoSkip() string {
	if n.skips == nil {
		return ""
	}
	return n.skips.why
}

// LookedForPeriods returns the number of places for queue pairs that were searched for a long message.
func (n *Net) LookedForPeriods() uint64 { return n.skips.looked }

// SkipEagerly looks for periods as often as can be.
func (n *Net) SkipEagerly() { n.skips.after, n.skips.eager = 0, true }

// Pending returns the events that are to come, in their order.
func (n *Net) Pending() string {
	var all []string
	n.queue.each(func(k uint64) {
		at, class, id := n.unpack(k)
		all = append(all, fmt.Sprintf("%020d %d %d", at, class, id))
	})
	slices.Sort(all)
	return fmt.Sprint(all, n.far.len())
}
