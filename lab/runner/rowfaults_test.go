// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/lab"
)

// simulated runs a lab with every invariant checked, and returns its report and its table.
func simulated(t *testing.T, text string) (*Report, string) {
	t.Helper()
	l, err := lab.Parse("x.mcl.yml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Simulate(t.Context(), l, Options{Base: t.TempDir(), Check: true})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	return r, b.String()
}

// rowLab is a lab with a pause in the middle of the first message, and a loss.
func rowLab(in, schemes string) string {
	return fmt.Sprintf(`name: rows
topology: {star: {hosts: 4}}
nics: {timeout: 262us}
workloads:
  - bcast: {schemes: [%s], sizes: [64KiB, 1MiB], iterations: 2}
faults:
  - {%sat: 34us, for: 100us, pause: {node: h1}}
  - {%sloss: {links: h2-leaf0, direction: down, frames: {kind: data}, nth: [7]}}
  - {%sat: 90ms, link-down: {links: h3-leaf0}}
`, schemes, in, in, in)
}

// jcts returns the JCT of each row by its scheme and size.
func jcts(r *Report) map[string]string {
	all := map[string]string{}
	for _, row := range r.Results {
		all[fmt.Sprintf("%s %d", row.Scheme, row.SizeBytes)] = fmt.Sprintf("%v %v", row.JCT.Min, row.JCT.Max)
	}
	return all
}

// TestRowsAlike: rows are treated alike whatever their order. Where faults count from the run's start they
// are not, and the sentence says so.
func TestRowsAlike(t *testing.T) {
	one, table := simulated(t, rowLab("", "cepheus, chain"))
	two, other := simulated(t, rowLab("", "chain, cepheus"))
	a, b := jcts(one), jcts(two)
	if len(a) != 4 || fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("the order of the schemes changes their times:\n%v\n%v", a, b)
	}
	for _, text := range []string{table, other} {
		if strings.Count(text, "loss 1, link-down not reached") != 4 || !strings.Contains(text, "pause 2, loss 1") {
			t.Errorf("the table does not say what hit each row:\n%s", text)
		}
		if at := text[strings.Index(text, "1MiB to 4 ranks"):]; strings.Contains(at[:strings.IndexAny(at, ";")], "different") {
			t.Errorf("rows of 1 MiB were treated alike:\n%s", text)
		}
	}
	_, run := simulated(t, rowLab("in: run, ", "cepheus, chain"))
	if want := "but the schemes met different faults: "; strings.Count(run, want) != 2 || !strings.Contains(run, "pause not in force") ||
		!strings.Contains(run, "chain was hit by 1 fault (loss), cepheus by 2 faults (pause, loss), and loss counts its frames through all rows") {
		t.Errorf("of faults that count from the run's start:\n%s", run)
	}
}

// TestRowFaultsCounted: the report has for each row the faults that occurred and their hits, and for
// the run the sums.
func TestRowFaultsCounted(t *testing.T) {
	r, _ := simulated(t, rowLab("", "cepheus, chain"))
	var hits uint64
	for _, row := range r.Results {
		if len(row.Faults) != 3 || row.Faults[2].Came || row.Faults[2].Hit == nil || *row.Faults[2].Hit != 0 || !row.Faults[1].Came {
			t.Fatalf("%s: %+v", row.Scheme, row.Faults)
		}
		hits += *row.Faults[1].Hit
	}
	if len(r.Faults) != 3 || r.Faults[1].Hit != hits || hits != 4 || r.Faults[2].Seen != 0 {
		t.Errorf("%+v, and rows have %d", r.Faults, hits)
	}
	b, err := json.Marshal(r.Results[0])
	var back apps.Row
	if err != nil || json.Unmarshal(b, &back) != nil || len(back.Faults) != 3 || back.Faults[0].In != "row" || back.Details != nil {
		t.Errorf("%v\n%s", err, b)
	}
}

// TestRowFaultsLifted: faults in force when a row ends are lifted before the next one begins: each row
// finds the lab whole, also after a switch that stays dead and an adapter that stays slow.
func TestRowFaultsLifted(t *testing.T) {
	const text = `name: lifted
topology: {leaf-spine: {leaves: 2, spines: 2, hosts: 2}}
nics: {timeout: 262us}
switches: {reconverge: 50us}
workloads:
  - bcast: {schemes: [%s], sizes: [256KiB], iterations: 2}
  - allgather: {schemes: [ring], sizes: [64KiB], iterations: 2}
faults:
  - {at: 10us, crash: {nodes: spine1}}
  - {at: 15us, slow-receiver: {nodes: h3, rate: 10Gbps}}
  - {at: 20us, rate-cut: {links: h1-leaf0, rate: 10Gbps}}
  - {at: 20us, for: 400ms, pause-storm: {node: h2, gap: 500us}}
`
	a, _ := simulated(t, fmt.Sprintf(text, "chain, unicast, binomial"))
	b, _ := simulated(t, fmt.Sprintf(text, "binomial, chain, unicast"))
	if len(a.Results) != 4 || fmt.Sprint(jcts(a)) != fmt.Sprint(jcts(b)) {
		t.Errorf("%v\n%v", jcts(a), jcts(b))
	}
	for _, f := range a.Faults {
		if f.Seen < 4 {
			t.Errorf("%s came %d times in 4 rows", f.ID, f.Seen)
		}
	}
}

// TestWholeWorkloads: a workload whose rows cannot be measured alone is one row, and meets the faults once.
func TestWholeWorkloads(t *testing.T) {
	r, table := simulated(t, `name: whole
topology: {m-port-n-tree: {m: 4, n: 2}}
workloads:
  - many-to-many: {schemes: [cyclic, opensm], sources: 4, group: 4, sizes: [4KiB], iterations: 2}
faults:
  - {at: 1us, for: 50us, rate-cut: {links: "*", rate: 50Gbps}}
`)
	if len(r.Results) < 2 || r.Faults[0].Seen == 0 {
		t.Fatalf("%d rows, faults %+v", len(r.Results), r.Faults)
	}
	for _, row := range r.Results {
		if len(row.Faults) != 1 || row.Faults[0].Hit != nil {
			t.Errorf("%s: %+v", row.Scheme, row.Faults)
		}
	}
	if !strings.Contains(table, "  rate-cut\n") {
		t.Error(table)
	}
}
