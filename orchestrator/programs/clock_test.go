// SPDX-License-Identifier: Apache-2.0

//go:build linux

package programs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestKernelStamps: a program that reads the kernel's time stamps keeps this server's clock by default, and no other
// program does, nor that one if it is to have the lab's time.
func TestKernelStamps(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, timeLibrary), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		program, clock string
		turns, lab     bool
	}{
		{"ping", ClockAuto, false, false},
		{"/usr/bin/ping", ClockAuto, false, false},
		{"ping", ClockLab, false, true},
		{"ping", ClockAuto, true, true},
		{"ping", ClockWall, false, false},
		{"no-ping", ClockAuto, false, true},
		{"sh", ClockAuto, false, true},
	} {
		x := Execution{Argv: []string{c.program, "h1"}, Clock: c.clock, Library: dir, inTurns: c.turns}
		env, err := x.withLabTime(nil, programSite{})
		if lab := slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "MCASTLAB_CLOCK=") }); err != nil || lab != c.lab {
			t.Errorf("%+v: lab time %v, %v", c, lab, err)
		}
	}
}
