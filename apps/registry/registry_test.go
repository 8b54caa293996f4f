// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"testing"

	"github.com/mcastlab/mcastlab/apps/alltoall"
	"github.com/mcastlab/mcastlab/apps/bcast"
	"github.com/mcastlab/mcastlab/apps/setting"
)

// TestLongest: every kind of workload has a longest message, or none that its settings determine.
func TestLongest(t *testing.T) {
	for _, e := range All() {
		if n := e.Longest(); n != 0 {
			t.Errorf("%s without settings: %d bytes", e.Name, n)
		}
	}
	sizes := []setting.Size{4096, 1 << 31, 0}
	for _, w := range []Workload{Of(&bcast.Settings{Sizes: sizes}), Of(&alltoall.Settings{Sizes: sizes})} {
		if n := w.Chosen().Longest(); n != 1<<31 {
			t.Errorf("%s: %d bytes", w.Chosen().Name, n)
		}
	}
}
