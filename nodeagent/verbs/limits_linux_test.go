// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// TestLimits: the device grants its advertised limits, and no more; a queue takes as many requests as were granted; an operation that
// is granted is served (testdata/limits.c).
func TestLimits(t *testing.T) {
	lib := library(t)
	program := filepath.Join(t.TempDir(), "limits")
	out, err := exec.Command("cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, filepath.Join("testdata", "limits.c"),
		filepath.Join(lib, "libibverbs.so.1")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, part := range []string{"advertised", "depths", "operations", "short-region", "domains", "resets"} {
		t.Run(part, func(t *testing.T) {
			h, _ := hosts(t)
			h[0].loop.Call(vtime.Never, func(vtime.Time) {
				for k := range h[0].server.most { // as many as the device has would take minutes
					h[0].server.most[k] = 100 + 10*k
				}
			})
			if out, err := h[0].at(t, lib, program, part).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			h[0].emptied(t)
		})
	}
}
