// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"errors"
	"os"
	"os/exec"
	"testing"
)

// TestLiveRingSum runs the example's own binary in containers, of which it is the image, with a
// dilated clock, and in processes in virtual time.
func TestLiveRingSum(t *testing.T) {
	b, err := os.ReadFile(ringSum)
	if err != nil {
		t.Fatal(err)
	}
	stepped := write(t, string(b)+"runtime: {clock: lockstep}\n")
	for runtime, file := range map[string]string{"docker": ringSum, "netns": stepped} { // by themselves
		t.Run(runtime, func(t *testing.T) {
			need(t, runtime)
			bin, before := buildRingSum(t), snapshot(t)
			args := []string{"run", "-q", "--runtime", runtime, "--runs", t.TempDir(), "--format", "json", file}
			if file != stepped {
				args = append(args, "--slower", "1") // on the wall clock
			}
			out, err := exec.Command(bin, args...).Output()
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.ExitCode() != exitFidelity {
				t.Fatalf("%v: %s", err, exit.Stderr)
			}
			r := ringSumReport(t, out)
			if file == stepped {
				sim, err := exec.Command(bin, "run", "-q", "--runs", t.TempDir(), "--format", "json", file).Output()
				if err != nil {
					t.Fatal(err)
				}
				if want := ringSumReport(t, sim); r.Digest != want.Digest || r.Digest == "" {
					t.Errorf("digest %s, in the simulation %s", r.Digest, want.Digest)
				}
			} else if len(r.Fidelity.Rows) != 1 || r.Fidelity.Rows[0].Links == 0 {
				t.Errorf("fidelity %+v", r.Fidelity)
			}
			if r.Runtime != runtime {
				t.Errorf("runtime %s", r.Runtime)
			}
			t.Logf("the sum took %.2f us at dilation %.0f, fidelity %s", r.Results[1].JCT.P50, r.Fidelity.Dilation, r.Fidelity.Verdict)
			same(t, before, snapshot(t))
		})
	}
}
