// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestStrays: of all processes, those in control groups of removed containers and their shims, and
// neither a zombie, nor a shim whose container has no process any more, nor those of other containers.
func TestStrays(t *testing.T) {
	proc := t.TempDir()
	lost, gone, other := strings.Repeat("a1", 32), strings.Repeat("b2", 32), strings.Repeat("c3", 32)
	for pid, p := range map[int]struct{ cgroup, cmdline, stat string }{
		1:  {"0::/", "init", "1 (init) S 0"},
		10: {"9:pids:/docker/" + lost + "\n0::/docker/" + lost + "\n", "/mcastlab\x00node", "10 (mcastlab) S 9"},
		11: {"0::/docker/" + lost + "\n", "runc\x00init", "11 (runc:[2:INIT]) S 9"},
		12: {"0::/docker/" + lost + "\n", "", "12 (mcastlab) Z 9"},
		13: {"0::/system.slice/docker-" + lost + ".scope\n", "another driver of control groups", "13 (x) S 1"},
		20: {"0::/engine", "containerd-shim\x00-id\x00" + lost + "\x00-address", "20 (containerd-shim) S 1"},
		21: {"0::/engine", "containerd-shim\x00-id\x00" + gone + "\x00-address", "21 (containerd-shim) S 1"},
		30: {"0::/docker/" + other, "/mcastlab\x00node", "30 (mcastlab) S 31"},
		31: {"0::/engine", "containerd-shim\x00-id\x00" + other, "31 (containerd-shim) S 1"},
	} {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"cgroup": p.cgroup, "cmdline": p.cmdline, "stat": p.stat} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Mkdir(filepath.Join(proc, "99"), 0o755); err != nil { // it has ended while we looked
		t.Fatal(err)
	}
	got, err := strays(proc, []string{gone, lost})
	slices.Sort(got)
	if want := []int{10, 11, 13, 20}; err != nil || !slices.Equal(got, want) {
		t.Errorf("strays %v, %v, want %v", got, err, want)
	}
	if got, err := strays(proc, []string{gone}); err != nil || len(got) != 0 {
		t.Errorf("strays of a container that ended %v, %v", got, err)
	}
}
