// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/internal/test/sweeps"
)

// TestLimits: a run in containers by a process that may have few files open, or small ones, takes place, or ends with an error that names the limit,
// and leaves nothing: no node, no folder. The nodes have the limit, too.
func TestLimits(t *testing.T) {
	need(t)
	file := write(t, "name: t-limits\ntopology: {star: {hosts: 3}}\nworkloads: [{bcast: {schemes: [cepheus], sizes: [64B], iterations: 1}}]\n")
	var all []string
	for n := 8; n <= 60; n += 2 { // with fewer, the Go runtime ends the process before its first function
		all = append(all, fmt.Sprint("-n ", n))
	}
	for _, n := range []int{0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512} {
		all = append(all, fmt.Sprint("-f ", n))
	}
	ran, failed := 0, 0
	for i, limit := range all {
		if !sweeps.Takes(t, i) {
			continue
		}
		before := snapshot(t)
		out, err := exec.Command("bash", "-c", "ulimit "+limit+" && exec \"$@\"", "bash", program1(t), "run", "-q", "-r", "netns", "--runs", filepath.Join(t.TempDir(), "r"), file).CombinedOutput()
		text := string(out)
		switch {
		case err == nil:
			ran++
		case strings.Contains(text, "panic"), strings.Contains(text, "goroutine "), !strings.Contains(text, "raise the limit"):
			t.Errorf("ulimit %s: %v\n%s", limit, err, text)
		default:
			failed++
		}
		same(t, before, snapshot(t))
		if t.Failed() {
			_ = exec.Command(program1(t), "destroy", "t-limits").Run() // what has been left
			t.Fatalf("ulimit %s: %v\n%s", limit, err, text)
		}
	}
	t.Logf("%d ran, %d failed for want of files", ran, failed)
	if ran == 0 || failed == 0 {
		t.Errorf("%d ran, %d failed: the limits do not bite, or no lab comes up", ran, failed)
	}
}
