// SPDX-License-Identifier: Apache-2.0

// Package sweeps chooses the part of a long sweep that a run of the tests takes: each day another one
// of Parts, so that go test ./... stays short and three days take all. Only tests import it.
package sweeps

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// Parts is the number of parts of a long sweep.
const Parts = 3

// Whole reports whether all parts are taken: make sweeps and the bug bank ask for that, and
// a short run is cut by other means.
func Whole() bool { return testing.Short() || os.Getenv("MCASTLAB_SWEEPS") == "all" }

// Day returns the number of the day whose part is taken: today's, counted from 1970 on, or the
// one that MCASTLAB_SWEEPS names, with which the runs of one gate take one part each.
func Day(t testing.TB) uint64 {
	t.Helper()
	named := os.Getenv("MCASTLAB_SWEEPS")
	if named == "" || named == "all" {
		return uint64(time.Now().Unix() / 86400)
	}
	day, err := strconv.ParseUint(named, 10, 32)
	if err != nil {
		t.Fatalf("MCASTLAB_SWEEPS=%s is neither all nor the number of a day", named)
	}
	return day
}

// Takes reports whether case i of a sweep is taken.
func Takes(t testing.TB, i int) bool {
	t.Helper()
	return Whole() || (uint64(i)+Day(t))%Parts == 0
}

// Range returns the cases from..from+n-1 of a sweep of count cases that are taken.
func Range(t testing.TB, count uint64) (from, n uint64) {
	t.Helper()
	if Whole() {
		return 0, count
	}
	part := Day(t) % Parts
	from = count * part / Parts
	return from, count*(part+1)/Parts - from
}
