// SPDX-License-Identifier: Apache-2.0

package crew

import (
	"testing"
)

// TestCrew: in each round every part runs its share once, and every part can read in the next round the
// writes of the others.
func TestCrew(t *testing.T) {
	for _, parts := range []int{1, 2, 3, 8} {
		const rounds = 500
		sums, last := make([]int, parts), make([]int, parts) // by part; of the round before
		c := New(parts, func(part int) {
			for _, x := range last {
				sums[part] += x
			}
		})
		want := 0
		for round := range rounds {
			for i := range last {
				last[i] = round + i
				want += round + i
			}
			c.All()
		}
		c.End()
		for i, got := range sums {
			if got != want {
				t.Errorf("%d parts: part %d has summed up %d, want %d", parts, i, got, want)
			}
		}
	}
}
