// SPDX-License-Identifier: Apache-2.0

//go:build linux

package programs

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestSettings: programs and ranks are given what makes UCX and Open MPI work, and nothing that the user has set, whatever its value.
func TestSettings(t *testing.T) {
	all := append(programSettings(), rankSettings(20)...)
	for _, s := range all {
		without(t, s.name)
	}
	for _, s := range mpiSettings() {
		without(t, mcaPrefix+s.name)
	}
	names := func(l []setting, prefix string) (names []string) {
		for _, s := range l {
			names = append(names, prefix+s.name)
		}
		return names
	}
	for _, mine := range append(append([]string{""}, names(all, "")...), names(mpiSettings(), mcaPrefix)...) {
		for _, value := range []string{"mine", ""} {
			if mine != "" {
				t.Setenv(mine, value)
			}
			env := environment(identity{}, "/lib", "/node")
			for _, s := range programSettings() {
				want := s.name + "=" + s.value
				if s.name == mine {
					want = s.name + "=" + value
				}
				if !slices.Contains(env, want) {
					t.Errorf("with %s=%q programs do not have %s", mine, value, want)
				}
			}
			args := mpirunArgs(&programStart{Env: env}, []string{"h0", "h1"}, 20)
			line := strings.Join(args, " ") + " "
			for _, s := range all {
				want := "-x " + s.name + "=" + s.value + " "
				if s.name == mine {
					want = "-x " + s.name + "=" + value + " "
				}
				if !strings.Contains(line, want) {
					t.Errorf("with %s=%q mpirun does not have %s: %s", mine, value, want, line)
				}
			}
			for _, s := range mpiSettings() {
				if has := slices.Contains(args, s.name); has == (mcaPrefix+s.name == mine) {
					t.Errorf("with %s=%q mpirun has --mca %s: %v", mine, value, s.name, has)
				}
			}
			if has := slices.Contains(ProgramSettings(), mine+"=mine"); has {
				t.Errorf("%s is said to be set, and is the user's", mine)
			}
		}
		if mine != "" {
			without(t, mine)
		}
	}
	if env := environment(identity{}, "/lib", ""); slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "UCX_IB_ROCE") }) {
		t.Error("a program without a NIC is given a variable of UCX")
	}
}

// without takes a variable from the environment until the test ends.
func without(t *testing.T, name string) {
	t.Helper()
	t.Setenv(name, "")
	if err := os.Unsetenv(name); err != nil {
		t.Fatal(err)
	}
}
