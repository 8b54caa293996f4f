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
			out, err := exec.Command(bin, "run", "-q", "--runtime", runtime, "--runs", t.TempDir(), "--format", "json", ringSum).Output()
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.ExitCode() != exitFidelity {
				t.Fatalf("%v: %s", err, exit.Stderr)
			}
			r := ringSumReport(t, out)
			if r.Runtime != runtime || len(r.Fidelity.Rows) != 1 || r.Fidelity.Rows[0].Links == 0 {
				t.Errorf("runtime %s, fidelity %+v", r.Runtime, r.Fidelity)
			}
			t.Logf("the sum took %.2f us at dilation %.0f, fidelity %s", r.Results[1].JCT.P50, r.Fidelity.Dilation, r.Fidelity.Verdict)
			same(t, before, snapshot(t))
		})
	}
}
