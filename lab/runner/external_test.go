// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/lab"
)

// TestWriting: broadcasts by registered WRITEs arrive whole from either kind of root, of sizes
// that grow, for which there are new windows, and shrink, also when packets are lost. In a
// simulation the external host is one of the lab's.
func TestWriting(t *testing.T) {
	for _, root := range []string{"h0", "h3"} {
		for _, fault := range []string{"", "faults:\n  - {at: 0us, loss: {links: \"*\", rate: 0.01}}\n"} {
			l, err := lab.Parse("x", []byte(strings.Replace(`name: x
topology: {leaf-spine: {leaves: 2, spines: 2, hosts: 2}}
links: {rate: 10Gbps}
nics: {mtu: 1024, timeout: 1ms}
hosts:
  - {name: h3, kind: external, external: {qpn: 17, timeout: 17ms}}
workloads:
  - bcast: {schemes: [cepheus], root: ROOT, sizes: [1B, 5000B, 64KiB, 100B, 100KiB], iterations: 3, operation: write, group: 10.254.255.1}
`, "ROOT", root, 1)+fault))
			if err != nil {
				t.Fatal(err)
			}
			rep, err := Simulate(t.Context(), l, Options{Base: t.TempDir(), Check: true})
			if err != nil {
				t.Fatalf("root %s, %q: %v", root, fault, err)
			}
			for _, row := range rep.Results {
				if row.Verified == nil || !*row.Verified || row.Payload != "bytes" || row.Iterations != 3 {
					t.Errorf("root %s, %q: %+v", root, fault, row)
				}
			}
			sw := rep.Counters["switch"].Counts
			if len(rep.Results) != 5 || sw["reths_rewritten"] == 0 || (rep.Counters["host"].Counts["retransmitted"] > 0) != (fault != "") {
				t.Errorf("root %s, %q: %d rows, counters %v", root, fault, len(rep.Results), rep.Counters)
			}
		}
	}
}
