// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/lab/sweep"
)

// sweepLab is a sweep over loss and schemes with two seeds.
const sweepLab = `name: swept
topology: {star: {hosts: 4}}
nics: {timeout: 131us}
workloads: [{bcast: {schemes: [cepheus, chain], sizes: [64KiB], iterations: 2}}]
faults: [{loss: {rate: 0%}}]
sweep:
  over: [{key: "faults[0].loss.rate", name: loss, values: [0%, 1%]}]
  repeats: 2
`

// TestSweep: run does a sweep in each format, in a folder of its own, and the seed of the command line changes it.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	o := call(t, hooks{}, sweepLab, "run", "--runs", dir, "--jobs", "2", "-")
	if o.code != 0 || !strings.Contains(o.out, "+- 95 %") || !strings.Contains(o.err, "4 of 4: ") || !strings.Contains(o.err, "sweep folder: "+filepath.Join(dir, "swept-1")) {
		t.Fatalf("exit %d\n%s\n%s", o.code, o.out, o.err)
	}
	plot := filepath.Join(dir, "swept-1", "sweep-bcast.svg")
	if _, err := os.Stat(plot); err != nil || !strings.Contains(o.err, "plot: "+plot) {
		t.Errorf("%v\n%s", err, o.err)
	}
	asCSV := call(t, hooks{}, sweepLab, "run", "--runs", dir, "-q", "--format", "csv", "-")
	if rows, err := csv.NewReader(strings.NewReader(asCSV.out)).ReadAll(); err != nil || len(rows) != 5 || asCSV.err != "" {
		t.Errorf("%d rows, %v, %s", len(rows), err, asCSV.err)
	}
	other := call(t, hooks{}, sweepLab, "run", "--runs", dir, "-q", "--format", "csv", "--seed", "7", "-")
	if other.code != 0 || other.out == asCSV.out {
		t.Errorf("--seed changes nothing:\n%s", other.out)
	}
	asJSON := call(t, hooks{}, sweepLab, "run", "--runs", dir, "-q", "--format", "json", "-")
	var r sweep.Result
	if err := json.Unmarshal([]byte(asJSON.out), &r); err != nil || r.Schema != sweep.Schema || len(r.Rows) != 4 || r.Rows[0].Half == nil {
		t.Errorf("%v\n%s", err, asJSON.out)
	}
	lines := call(t, hooks{}, sweepLab, "run", "--runs", dir, "-q", "--format", "jsonl", "-")
	if n := strings.Count(lines.out, "\n"); n != 4 {
		t.Errorf("%d lines\n%s", n, lines.out)
	}
	if o := call(t, hooks{}, sweepLab, "validate", "-"); o.code != 0 || !strings.HasSuffix(o.out, "1 workload, a sweep of 2 points and 4 runs: ok\n") {
		t.Errorf("exit %d, %s%s", o.code, o.out, o.err)
	}
	failing := sweepLab + "expect: [bcast.cepheus.64KiB.jct.avg < 0]\n"
	if o := call(t, hooks{}, failing, "run", "--runs", dir, "-q", "-"); o.code != exitFailed || !strings.Contains(o.err, `loss=1%: expect "bcast.cepheus`) {
		t.Errorf("exit %d, %s", o.code, o.err)
	}
	if o := call(t, hooks{}, sweepLab, "graph", "-"); o.code != 0 || !strings.Contains(o.err, "without the sweep") {
		t.Errorf("exit %d, %s", o.code, o.err)
	}
	wrong := strings.Replace(sweepLab, "1%", "101%", 1)
	if o := call(t, hooks{}, wrong, "validate", "-"); o.code != exitLab || !strings.Contains(o.err, "standard input:7:64: sweep, at loss=101%: ") {
		t.Errorf("exit %d, %s", o.code, o.err)
	}
}

// TestSweepUsage: what goes with no sweep, or only with one, is refused in one line, and nothing is run.
func TestSweepUsage(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("old/points", 0o755); err != nil {
		t.Fatal(err)
	}
	const single = "single.mcl.yml"
	text, _, _ := strings.Cut(sweepLab, "sweep:")
	if err := os.WriteFile(single, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	seeds := strings.NewReplacer(`"faults[0].loss.rate"`, "seed", "[0%, 1%]", "[1, 2]").Replace(sweepLab)
	for _, c := range []struct {
		in   string
		args []string
		said string
	}{
		{sweepLab, []string{"run", "-r", "docker", "-"}, "a sweep runs in the simulator: leave --runtime docker out"},
		{sweepLab, []string{"run", "--capture", "h0:0", "-"}, "--capture is for a single run"},
		{sweepLab, []string{"run", "--trace", "messages", "-"}, "--trace is for a single run"},
		{sweepLab, []string{"run", "--jobs", "0", "-"}, "--jobs 0: use 1 to 64"},
		{sweepLab, []string{"run", "--resume", ".", "-"}, "--resume .: it is no folder of a sweep"},
		{sweepLab, []string{"validate", "--resolved", "-"}, "--resolved is for a lab without a sweep"},
		{sweepLab, []string{"fuzz", "-"}, "lab swept has a sweep, which only run can do"},
		{seeds, []string{"run", "--seed", "3", "-"}, "--seed has no effect: the lab's sweep is over seed"},
		{"", []string{"run", "--jobs", "2", single}, "--jobs is for a lab with a sweep"},
		{"", []string{"run", "--resume", "old", single}, "--resume is for a lab with a sweep"},
		{"", []string{"diff", "old", "old"}, "old is the folder of a sweep, not of a run: run one of its points, such as old/points/001.mcl.yml"},
		{"", []string{"report", "old"}, "old is the folder of a sweep"},
		{"", []string{"trace", "old"}, "old is the folder of a sweep"},
	} {
		o := call(t, hooks{}, c.in, c.args...)
		if o.code != exitUsage || o.out != "" || !strings.HasPrefix(o.err, "mcastlab: "+c.said) || strings.Count(o.err, "\n") != 1 {
			t.Errorf("%v: exit %d, %q, %q", c.args, o.code, o.out, o.err)
		}
	}
	if _, err := os.Stat("runs"); err == nil {
		t.Error("something was run")
	}
}
