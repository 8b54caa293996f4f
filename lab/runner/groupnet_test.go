// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/traces/explain"
)

// TestGroupNet: with McstIDs of another network (CEP-5) a run takes the same times, over either family. Switches, adapters,
// agents and the checks of invariants find groups there, a fault of frames to groups hits them, and the events name them.
func TestGroupNet(t *testing.T) {
	const text = `name: net
topology: {leaf-spine: {leaves: 2, spines: 2, hosts: 2}}
links: {ip: %s}
switches: {%s}
nics: {timeout: 262us}
trace: messages
workloads:
  - bcast: {schemes: [cepheus], sizes: [100kB], iterations: 2}
faults:
  - {loss: {links: h0-leaf0, direction: up, frames: {kind: data, to: group}, nth: [3]}}
`
	for _, family := range []string{"4", "6"} {
		usual, parts := "", ""
		for _, c := range []struct{ key, group string }{
			{"groups: 9", "10.254.0.1"}, {"group-net: 10.254.0.0/16", "10.254.0.1"}, {"group-net: 10.255.0.0/16", "10.255.0.1"}, {"group-net: 192.168.0.0/16", "192.168.0.1"},
		} {
			r, table := simulated(t, fmt.Sprintf(text, family, c.key))
			if !strings.Contains(table, "loss 1") {
				t.Errorf("IPv%s, %s: the fault did not hit one packet to the group:\n%s", family, c.key, table)
			}
			got := fmt.Sprint(jcts(r), r.Counters)
			if usual == "" {
				usual = got
			}
			if got != usual {
				t.Errorf("IPv%s, %s: not the run of the usual network:\n%s\n%s", family, c.key, got, usual)
			}
			events, err := os.ReadFile(filepath.Join(r.RunDir, "events.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf(`"group":"%s"`, c.group); !strings.Contains(string(events), want) {
				t.Errorf("IPv%s, %s: no event has %s", family, c.key, want)
			}
			if got := explained(t, r.RunDir); parts == "" {
				parts = got
			} else if got != parts {
				t.Errorf("IPv%s, %s: the trace is explained as\n%s\nnot as\n%s", family, c.key, got, parts)
			}
		}
	}
}

// explained returns where the time of a run's messages went.
func explained(t *testing.T, dir string) string {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "trace.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tr, err := explain.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(tr.Table())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
