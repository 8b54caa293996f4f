// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/lab/runner"
)

// TestLiveSchemes runs every scheme on real interfaces, loss-free and with links that lose
// one frame in a thousand: every byte, sum and residual is right. The clock's rate is fixed,
// so that the test takes as long everywhere; it is higher where timers have to run out. Where the
// server does not keep up, times are not true (exit code 5), and bytes are.
func TestLiveSchemes(t *testing.T) {
	need(t)
	unchanged(t)
	text, err := os.ReadFile(allSchemes)
	if err != nil {
		t.Fatal(err)
	}
	lossy := strings.Replace(string(text), "nics:  {mtu: 1024}", "nics:  {mtu: 1024, timeout: 1ms}", 1)
	lossy = strings.Replace(lossy, "name: all-schemes", "name: t-lossy-schemes", 1) + "faults: [{loss: {rate: 0.001}}]\n"
	for _, c := range []struct{ name, runtime, dilation, text string }{
		{"netns", "netns", "1000", strings.Replace(string(text), "name: all-schemes", "name: t-all-schemes", 1)},
		{"docker", "docker", "1000", strings.Replace(string(text), "name: all-schemes", "name: t-all-schemes-docker", 1)},
		{"netns with loss", "netns", "400", lossy},
	} {
		t.Run(c.name, func(t *testing.T) {
			need(t, c.runtime)
			t.Parallel()
			o := invoke(t, nil, "run", "-q", "--runtime", c.runtime, "--dilation", c.dilation, "--runs", t.TempDir(), "--format", "json", write(t, c.text))
			if o.code != exitOK && o.code != exitFidelity {
				t.Fatalf("exit %d\n%s%s", o.code, o.out, o.err)
			}
			var r runner.Report
			if err := json.Unmarshal([]byte(o.out), &r); err != nil {
				t.Fatal(err)
			}
			t.Logf("fidelity %s: %s", r.Fidelity.Verdict, r.Fidelity.Reason)
			allRight(t, &r)
			if lost := count(t, r.RunDir, "lost_to_fault"); (lost > 0) != (c.text == lossy) {
				t.Errorf("%d frames were lost to faults", lost)
			}
		})
	}
}
