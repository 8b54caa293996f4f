// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"slices"
	"testing"
)

// TestAlltoallRounds: in every number of ranks each sends to each other one once, and in no
// step of pairwise do two send to the same.
func TestAlltoallRounds(t *testing.T) {
	for size := 1; size <= 9; size++ {
		for name, rounds := range map[string][][]int{"linear": allAtOnce(size), "pairwise": oneByOne(size)} { // independent of each other
			var all []int
			for _, round := range rounds {
				all = append(all, round...)
				if name == "pairwise" && len(round) != 1 {
					t.Errorf("pairwise of %d: %d messages in a step", size, len(round))
				}
			}
			slices.Sort(all)
			if len(all) != size-1 || len(all) > 0 && (all[0] != 1 || all[size-2] != size-1 || len(slices.Compact(all)) != size-1) {
				t.Errorf("%s of %d sends to those at %v", name, size, all)
			}
		}
	}
	two := func(_, _ int) int { return 2 }
	if a, b := AlltoallLinks("linear", 8, two), AlltoallLinks("pairwise", 8, two); a != 2 || b != 14 {
		t.Errorf("of 8 ranks two links apart, linear depends on %d and pairwise on %d", a, b)
	}
}
