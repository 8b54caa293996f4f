// SPDX-License-Identifier: Apache-2.0

package simlab

import (
	"flag"
	"testing"

	"github.com/mcastlab/mcastlab/internal/test/sweeps"
)

// A sweep runs over seeds from..from+seeds-1.
var (
	fromSeed  = flag.Uint64("from", 0, "first seed of a sweep")
	seedCount = flag.Uint64("seeds", 0, "number of seeds of a sweep; 0: the test's own")
)

// Seeds returns the first seed of a sweep and the number of seeds: those of the flags -from
// and -seeds, or else from 0 on as many as the test asks for. A short run has at most 5.
func Seeds(t testing.TB, count uint64) (from, n uint64) {
	t.Helper()
	if *seedCount > 0 {
		count = *seedCount
	}
	if testing.Short() {
		count = min(count, 5)
	}
	return *fromSeed, count
}

// DaySeeds is Seeds for a long sweep: without the flags it returns the part of the seeds that
// the day takes.
func DaySeeds(t testing.TB, count uint64) (from, n uint64) {
	t.Helper()
	if testing.Short() || *seedCount > 0 || *fromSeed > 0 {
		return Seeds(t, count)
	}
	return sweeps.Range(t, count)
}
