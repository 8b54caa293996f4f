// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/hpl"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// TestBadWorkloads: what no workload can be is one line with its place and a remedy, exit
// code 3, before anything runs.
func TestBadWorkloads(t *testing.T) {
	const hpl = "hpl: {n: [64], nb: [16], grids: [2x2], bcast: [1ring]}"
	hplWith := func(old, with string) string { return strings.Replace(hpl, old, with, 1) }
	for _, c := range []struct{ name, workload, want string }{
		{"grid of more than the ranks", hplWith("2x2", "4x2"), "workloads[0].hpl: a grid of 4 x 2 does not fit 4 ranks"},
		{"no grid", hplWith("2x2", "two"), `"two" is not a grid: write rows x columns: 2x2`},
		{"N of 0", hplWith("[64]", "[0]"), "workloads[0].hpl: a matrix of order 0: N must be at least 1"},
		{"NB above N", hplWith("[16]", "[65]"), "blocks of 65 columns do not fit a matrix of order 64: NB must be from 1 to N"},
		{"unknown panel broadcast", hplWith("1ring", "1rign"), `no panel broadcast "1rign": use 1ring, `},
		{"unknown broadcast", "bcast: {schemes: [binomal], sizes: [1KiB]}", `no broadcast scheme "binomal", did you mean "binomial"?`},
		{"far from any broadcast", "bcast: {schemes: [x], sizes: [1KiB]}", `no broadcast scheme "x": use 1ring, `},
		{"unknown allgather", "allgather: {schemes: [rings], sizes: [1KiB]}", `no allgather scheme "rings", did you mean "ring"?`},
		{"unknown reduce-scatter", "reduce-scatter: {schemes: [in-netork], sizes: [1KiB]}", `no reduce-scatter scheme "in-netork", did you mean "in-network"?`},
		{"RDMC block of 0", "bcast: {schemes: [{rdmc: {block: 0B}}], sizes: [1KiB]}", "block of 0B: use 1B to 2GiB"},
		{"RDMC block too small", "bcast: {schemes: [{rdmc: {block: 1B}}], sizes: [1MiB]}", "more than the "},
		{"half numbers", "reduce-scatter: {schemes: [ring], sizes: [6B]}", "6B are not whole numbers of 4 bytes"},
		{"other numbers", "reduce-scatter: {schemes: [ring], numbers: int64, sizes: [8B]}", `numbers cannot be "int64"`},
		{"sum of more than 2 GiB", "reduce-scatter: {schemes: [ring], sizes: [1GiB]}", "1GiB from each of 4 ranks is more than 2GiB"},
		{"parameter of another scheme", "reduce-scatter: {schemes: [{ring: {radix: 4}}], sizes: [8B]}", "scheme ring has no radix"},
		{"no scheme", "reduce-scatter: {schemes: [], sizes: [8B]}", "needs at least one scheme and one size"},
		{"pace of nothing", "allgather: {schemes: [{multicast: {pace: 0}}], sizes: [8B]}", "pace of 0: use 1 to 100 percent of a link"},
		{"pace of a ring", "allgather: {schemes: [{ring: {pace: 50}}], sizes: [8B]}", "scheme ring has no pace: it is for multicast or uc-multicast"},
		{"half numbers, overlapped", "fsdp: {schemes: [{allgather: ring, reduce-scatter: ring}], sizes: [6B]}", "6B are not whole numbers of 4 bytes"},
		{"no pair", "fsdp: {schemes: [], sizes: [8B]}", "needs at least one pair of schemes and one size"},
		{"half a pair", "fsdp: {schemes: [{allgather: ring}], sizes: [8B]}", `needs "reduce-scatter"`},
		{"misspelt half", "fsdp: {schemes: [{allgather: rings, reduce-scatter: ring}], sizes: [8B]}", `no allgather scheme "rings", did you mean "ring"?`},
		{"halves the wrong way round", "fsdp: {schemes: [{allgather: in-network, reduce-scatter: ring}], sizes: [8B]}", `no allgather scheme "in-network"`},
		{"label of a half", "fsdp: {schemes: [{allgather: {ring: {label: a}}, reduce-scatter: ring}], sizes: [8B]}", "give the pair a label"},
		{"two pairs alike", "fsdp: {schemes: [{allgather: ring, reduce-scatter: ring}, {allgather: ring, reduce-scatter: ring}], sizes: [8B]}",
			`two pairs are called "ring-ring"`},
		{"overlap of one", "fsdp: {schemes: [{allgather: ring, reduce-scatter: ring}], ranks: h0, sizes: [8B]}", "fsdp needs at least two ranks"},
		{"reduction of one", "reduce-scatter: {schemes: [ring], ranks: h0, sizes: [8B]}", "a reduce-scatter needs at least two ranks"},
	} {
		text := "name: small\ntopology: {star: {hosts: 4}}\nworkloads:\n  - " + c.workload + "\n"
		o := call(t, hooks{}, text, "run", "-q", "--runs", t.TempDir(), "-")
		if o.code != exitLab || !strings.Contains(o.err, c.want) || strings.Count(o.err, "\n") != 1 || !strings.HasPrefix(o.err, "mcastlab: standard input:4:") {
			t.Errorf("%s: exit %d, want %d\n got %swant %s", c.name, o.code, exitLab, o.err, c.want)
		}
	}
}

const allSchemes = "../examples/all-schemes.mcl.yml"

// allRight fails unless the report has every scheme there is, all on eight ranks, HPL on
// four, and every byte, sum and residual was right.
func allRight(t *testing.T, r *runner.Report) {
	t.Helper()
	have := map[string]bool{}
	for _, x := range r.Results {
		have[x.Workload+" "+x.Scheme] = true
		ranks := 8
		if apps.DetailsOf[hpl.Solve](x) != nil {
			ranks = 4
			if apps.DetailsOf[hpl.Solve](x).N != 256 || apps.DetailsOf[hpl.Solve](x).Passed == nil || !*apps.DetailsOf[hpl.Solve](x).Passed {
				t.Errorf("%s %s of order %d: passed is %v", x.Workload, x.Scheme, apps.DetailsOf[hpl.Solve](x).N, apps.DetailsOf[hpl.Solve](x).Passed)
			}
		}
		if x.Verified == nil || !*x.Verified || x.Ranks != ranks {
			t.Errorf("%s %s on %d ranks: verified is %v", x.Workload, x.Scheme, x.Ranks, x.Verified)
		}
	}
	for workload, schemes := range map[string][]string{
		"bcast": collective.Names(), "allgather": collective.AllgatherNames(), "reduce-scatter": collective.ReduceScatterNames(),
		"float": collective.ReduceScatterNames(), "hpl": {"1ring", "long", "cepheus"},
		"fsdp": {"ring-ring", "multicast-in-network", "mixed"},
	} {
		for _, s := range schemes {
			if s != "gleam" && !have[workload+" "+s] { // gleam: by other rules, below
				t.Errorf("%s %s is not in the lab", workload, s)
			}
		}
	}
}

// TestAllSchemes runs the example with every scheme in a simulation with all invariants
// verified, loss-free and with loss, and scheme gleam by its rules.
func TestAllSchemes(t *testing.T) {
	text, err := os.ReadFile(allSchemes)
	if err != nil {
		t.Fatal(err)
	}
	for _, faults := range []string{"", "faults: [{loss: {rate: 0.001}}]\n"} {
		o := call(t, hooks{}, string(text)+faults, "run", "-q", "--check", "--format", "json", "--runs", t.TempDir(), "-")
		var r runner.Report
		if err := json.Unmarshal([]byte(o.out), &r); err != nil || o.code != 0 {
			t.Fatalf("exit %d, %v\n%s", o.code, err, o.err)
		}
		allRight(t, &r)
	}
	gleam := "name: small\nswitches: {rules: gleam}\n" + strings.SplitAfter(star, "\n")[1] + "workloads: [{bcast: {schemes: [gleam], sizes: [50kB]}}]\n"
	if o := call(t, hooks{}, gleam, "run", "-q", "--runs", t.TempDir(), "-"); o.code != 0 || !strings.Contains(o.out, "Every byte was right") {
		t.Errorf("gleam: exit %d\n%s%s", o.code, o.out, o.err)
	}
}
