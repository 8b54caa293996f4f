//go:build linux

package command

import (
	"errors"
	"os/exec"
	"testing"
)

// TestLiveRingSum runs the example's own binary in processes and in containers, of which it
// is the image.
func TestLiveRingSum(t *testing.T) {
	for _, runtime := range []string{"netns", "docker"} {
		t.Run(runtime, func(t *testing.T) {
			need(t, runtime)
			bin, before := buildRingSum(t), snapshot(t)
			for _, slower := range []string{"1", "2", "4", "8"} {
				cmd := exec.Command(bin, "run", "-q", "--runtime", runtime, "--slower", slower, "--runs", t.TempDir(), "--format", "json", ringSum)
				out, err := cmd.Output()
				var exit *exec.ExitError
				if errors.As(err, &exit) && exit.ExitCode() == exitFidelity && slower != "8" {
					t.Logf("slower %s: %s", slower, exit.Stderr)
					continue
				}
				if errors.As(err, &exit) {
					t.Fatalf("%v: %s", err, exit.Stderr)
				}
				r := ringSumReport(t, out)
				if r.Runtime != runtime || r.Fidelity.Verdict != "ok" || len(r.Fidelity.Rows) != 1 || r.Fidelity.Rows[0].Links == 0 {
					t.Errorf("runtime %s, fidelity %+v", r.Runtime, r.Fidelity)
				}
				t.Logf("the sum took %.2f us at dilation %.0f", r.Results[1].JCT.P50, r.Fidelity.Dilation)
				break
			}
			same(t, before, snapshot(t))
		})
	}
}
