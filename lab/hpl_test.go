// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/hpl"
)

const hplLab = "name: a\ntopology: {star: {hosts: 4}}\nworkloads:\n  - hpl: {%s}\n"

func TestHPLMistakes(t *testing.T) {
	const good = "n: [64], nb: [16], grids: [2x2], bcast: [1ring]"
	for _, c := range []struct{ keys, want string }{
		{good, ""},
		{good + ", ranks: [h0..h2]", "x:4:10: workloads[0].hpl: a grid of 2 x 2 does not fit 3 ranks"},
		{strings.Replace(good, "2x2", "2x3", 1), "x:4:10: workloads[0].hpl: a grid of 2 x 3 does not fit 4 ranks"},
		{strings.Replace(good, "2x2", "two", 1), `x:4:10: workloads[0].hpl: "two" is not a grid: write rows x columns: 2x2`},
		{strings.Replace(good, "64", "0", 1), "x:4:10: workloads[0].hpl: a matrix of order 0: N must be at least 1"},
		{strings.Replace(good, "16", "65", 1), "x:4:10: workloads[0].hpl: blocks of 65 columns do not fit a matrix of order 64"},
		{strings.Replace(good, "64", "99999", 1), "a matrix of order 99999 does not fit into memory (at most 16384): use cost-only: true"},
		{strings.Replace(good, "1ring", "ring", 1), `no panel broadcast "ring": use 1ring, 1ringM`},
		{good + ", epochs: 2", "2 epochs: a run of some panels only is for cost-only"},
		{good + ", gflops: -1", "-1 GFLOP/s"},
		{good + ", swap: roll", `workloads[0].hpl.swap cannot be "roll"`},
		{"nb: [16]", `workloads[0].hpl needs "n", or "dat"`},
		{"dat: ../HPL.dat", "../HPL.dat is not in the lab file's folder or below it"},
		{"dat: none.dat", "read none.dat: openat none.dat: no such file"},
		{good + ", dat: HPL.dat", "HPL.dat says what n, nb, grids and bcast say: give either"},
	} {
		l, err := Parse("x", fmt.Appendf(nil, hplLab, c.keys))
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", c.keys, err, c.want)
		case err == nil:
			again, err := Parse("y", l.Resolved())
			if err != nil || !bytes.Equal(again.Resolved(), l.Resolved()) || !reflect.DeepEqual(again.Workloads, l.Workloads) {
				t.Errorf("resolved, it is another lab: %v\n%s", err, l.Resolved())
			}
		}
	}
	both := "name: a\ntopology: {star: {hosts: 4}}\nworkloads:\n  - hpl: {" + good + "}\n    bcast: {schemes: [cepheus], sizes: [1KiB]}\n"
	if _, err := Parse("x", []byte(both)); err == nil || !strings.Contains(err.Error(), "a workload needs one kind: bcast, allgather, reduce-scatter, alltoall, fsdp, hpl, storage, program, many-to-many, flows or command") {
		t.Error(err)
	}
}

// TestHPLDat: the values of HPL.dat are the lab's, and the lab does not need the file again.
func TestHPLDat(t *testing.T) {
	dir := t.TempDir()
	var b strings.Builder
	for _, line := range []string{
		"", "", "HPL.out", "6", "1", "64 Ns", "1", "16", "1", "1", "2", "2", "12.5", "1", "2", "1", "4", "1", "2", "1", "1",
		"2", "4 cepheus", "2", "0 1", "multicast", "60", "0", "0", "1", "8",
	} {
		b.WriteString(line + "\n")
	}
	if err := os.WriteFile(filepath.Join(dir, "HPL.dat"), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := Parse(filepath.Join(dir, "x.mcl.yml"), fmt.Appendf(nil, hplLab, "dat: HPL.dat, gflops: 10"))
	if err != nil {
		t.Fatal(err)
	}
	h := l.Workloads[0].HPL
	p := input[hpl.Params](t, l, 0)
	if len(p.Tests) != 4 || p.Tests[3].Label != "cepheus_depth1" || p.Tests[3].TV() != "WC1XC2R4" || p.Threshold != 12.5 || p.GFlops != 10 || h.Dat != "" {
		t.Errorf("%+v", p)
	}
	if p.Tests[0].Bcast != "long" || p.Tests[0].Swap != "multicast" || p.Tests[0].SwapThreshold != 60 {
		t.Errorf("%+v", p.Tests[0])
	}
	if again, err := Parse("elsewhere", l.Resolved()); err != nil || !reflect.DeepEqual(again.Workloads, l.Workloads) {
		t.Errorf("resolved, it is another lab: %v\n%s", err, l.Resolved())
	}
}

// input returns the parameters of a workload's program. All hosts of the lab take part.
func input[P any](t *testing.T, l *Lab, workload int) P {
	t.Helper()
	g, err := l.graph()
	if err != nil {
		t.Fatal(err)
	}
	w, err := l.Workloads[workload].Chosen().Kind.Prepare(&apps.Setup{Graph: g})
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Hosts) != g.Hosts {
		t.Errorf("%d of %d hosts take part", len(w.Hosts), g.Hosts)
	}
	p, ok := w.Input.(P)
	if !ok {
		t.Fatalf("its parameters are %T", w.Input)
	}
	return p
}
