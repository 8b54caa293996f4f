// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/hpl"
	"github.com/mcastlab/mcastlab/lab"
)

// TestFallbackHPL: HPL's residual and factors are those of a run in which nothing is wrong,
// also if its groups break down in the middle, some of them for good.
func TestFallbackHPL(t *testing.T) {
	const text = `name: x
topology: {leaf-spine: {leaves: 2, spines: 2, hosts: 3}}
links: {rate: 10Gbps}
workloads:
  - hpl: {n: [320], nb: [32], grids: [2x3], bcast: [cepheus], swap: multicast, gflops: 5000, fallback: MODE}
`
	factors := ""
	for _, more := range []string{"", "faults:\n  - {at: 800us, every: 1500us, wipe-mft: {nodes: leaf0}}\n", "faults:\n  - {at: 1ms, mft-full: {nodes: leaf1}}\n  - {at: 1500us, wipe-mft: {nodes: leaf1}}\n"} {
		for _, mode := range []string{"full", "partial"} {
			l, err := lab.Parse("x", []byte(strings.Replace(text, "MODE", mode, 1)+more))
			if err != nil {
				t.Fatal(err)
			}
			rep, err := Simulate(t.Context(), l, Options{Base: t.TempDir()})
			if err != nil {
				t.Fatalf("%s: %v", more, err)
			}
			s := apps.DetailsOf[hpl.Solve](rep.Results[0])
			if s == nil || s.Passed == nil || !*s.Passed {
				t.Fatalf("%s: %+v", more, rep.Results)
			}
			if factors == "" {
				factors = s.Factors
			}
			if s.Factors != factors {
				t.Errorf("%s, %s: other factors than without a fault", mode, more)
			}
			if fell := rep.Counters["host"].Counts["fallbacks"]; (fell > 0) != (more != "") {
				t.Errorf("%s, %q: %d fallbacks", mode, more, fell)
			}
		}
	}
}

// TestFallbackTold: the report, the table and the events of a run show fallbacks, also of a run that
// has lost a member.
func TestFallbackTold(t *testing.T) {
	l, err := lab.Parse("x", []byte(`name: x
topology: {star: {hosts: 5}}
links: {rate: 10Gbps}
nics: {timeout: 524us}
workloads:
  - bcast: {schemes: [{cepheus: {fallback: partial}}], sizes: [100000B], iterations: 30}
faults:
  - {at: 500us, crash: {nodes: h3}}
`))
	if err != nil {
		t.Fatal(err)
	}
	rep, err := Simulate(t.Context(), l, Options{Base: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "host crashed: h3") || len(rep.Results) != 1 {
		t.Fatalf("%v, %+v", err, rep)
	}
	row := rep.Results[0]
	if row.Safety == nil || row.Safety.Fallbacks != 1 || len(row.Lost) != 1 || row.Lost[0] != "h3" || row.Iterations != 30 || !*row.Verified {
		b, _ := json.Marshal(row)
		t.Errorf("%s", b)
	}
	var table strings.Builder
	if err := rep.WriteTable(&table); err != nil || !strings.Contains(table.String(), "left multicast once (") || !strings.Contains(table.String(), "h3 was given up.") {
		t.Errorf("%s", &table)
	}
	events, err := os.ReadFile(filepath.Join(rep.RunDir, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"event":"fallback","group":"10.254.0.1","value":0,"text":"`, `"event":"return","group":"10.254.0.2","value":1`, `"event":"member-lost","value":3,"text":"h3: its adapter does not answer"`} {
		if !strings.Contains(string(events), want) {
			t.Errorf("events.jsonl has no %s", want)
		}
	}
}
