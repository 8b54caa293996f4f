// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestReregister: after any change of a region by ibv_rereg_mr, or one that is refused, its peer and its own end have the requested access to
// it, and no more (testdata/rereg.c).
func TestReregister(t *testing.T) {
	lib := library(t)
	program := build(t, lib, "rereg.c")
	h, _ := hosts(t)
	for seed := range 3 {
		if out, err := h[0].at(t, lib, program, h[0].path, h[1].path, fmt.Sprint(seed)).CombinedOutput(); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, out)
		}
		h[0].emptied(t)
		h[1].emptied(t)
	}
}

// build compiles a program of testdata.
func build(t *testing.T, lib, name string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	out, err := exec.Command("cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, filepath.Join("testdata", name),
		filepath.Join(lib, "libibverbs.so.1")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}
