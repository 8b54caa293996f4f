// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/lab"
)

const head = `name: swept
topology: {star: {hosts: 4}}
nics: {timeout: 131us}
`

// losses is a sweep over loss and schemes with five seeds.
const losses = head + `workloads: [{bcast: {schemes: [cepheus, chain], sizes: [64KiB], iterations: 3}}]
faults: [{loss: {rate: 0%}}]
sweep:
  over: [{key: "faults[0].loss.rate", name: loss, values: [0%, 0.1%, 2%]}]
  repeats: 5
`

// run runs a sweep.
func run(t *testing.T, ctx context.Context, text string, o Options) (*Result, error) {
	t.Helper()
	l, points, err := lab.Reader{}.ParsePoints("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if o.Base == "" {
		o.Base = t.TempDir()
	}
	return Run(ctx, l, points, o)
}

// file returns a file of a sweep's folder.
func file(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestJobs: a sweep over loss and schemes gives the same table, CSV and plot however many runs there are at a time,
// and each interval is that of its values.
func TestJobs(t *testing.T) {
	var first *Result
	for _, jobs := range []int{1, 2} {
		r, err := run(t, t.Context(), losses, Options{Jobs: jobs})
		if err != nil || len(r.Failures) > 0 {
			t.Fatalf("%v, %q", err, r.Failures)
		}
		if left, err := filepath.Glob(filepath.Join(r.Dir, "run-*")); err != nil || len(left) > 0 {
			t.Errorf("left behind: %q, %v", left, err)
		}
		if first == nil {
			first = r
			continue
		}
		for _, name := range []string{"sweep.csv", "sweep.txt", "sweep-bcast.csv", "sweep-bcast.svg", "points/003.mcl.yml"} {
			if file(t, r.Dir, name) != file(t, first.Dir, name) {
				t.Errorf("%s depends on the jobs", name)
			}
		}
	}
	if len(first.Points) != 3 || len(first.Rows) != 6 {
		t.Fatalf("%d points, %d rows", len(first.Points), len(first.Rows))
	}
	for i := range first.Rows {
		x := &first.Rows[i]
		sum, squares := 0.0, 0.0
		for _, v := range x.Values {
			sum += v
		}
		for _, v := range x.Values {
			squares += (v - sum/5) * (v - sum/5)
		}
		const t4 = 2.7764451051977987
		if half := t4 * math.Sqrt(squares/4/5); len(x.Values) != 5 || x.Half == nil || math.Abs(*x.Half-half) > 1e-6*x.Mean {
			t.Errorf("%+v, want half of %g", x, half)
		}
	}
	lossy, svg := first.Rows[4], file(t, first.Dir, "sweep-bcast.svg")
	if *lossy.Half == 0 || lossy.Min == lossy.Max {
		t.Errorf("seeds make no difference: %+v", lossy)
	}
	if n := strings.Count(svg, `stroke-width="1.5"`); n != 6 {
		t.Errorf("%d intervals are drawn, want 6\n%s", n, svg)
	}
	if got := file(t, first.Dir, "sweep.csv"); !strings.HasPrefix(got, "loss,workload,scheme,size_bytes,measure,runs,mean,ci95_low,ci95_high,stddev,min,max\n0%,bcast,cepheus,65536,jct.avg,5,") {
		t.Error(got)
	}
	for _, p := range first.Points[1:] {
		for k := range p.Runs {
			if p.Runs[k].Seed != first.Points[0].Runs[k].Seed {
				t.Errorf("seed %d differs between points", k)
			}
		}
	}
	if seeds := first.Points[0].Runs; seeds[0].Seed != 1 || seeds[1].Seed == seeds[2].Seed {
		t.Errorf("seeds are %v", seeds)
	}
}

// TestPointLab: a point that is run by itself has its result of the sweep.
func TestPointLab(t *testing.T) {
	r, err := run(t, t.Context(), strings.Replace(losses, "repeats: 5", "repeats: 1", 1), Options{})
	if err != nil {
		t.Fatal(err)
	}
	text := file(t, r.Dir, r.Points[2].File)
	if l, err := lab.Parse("f", []byte(text)); err != nil || l.Sweep != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	alone, err := run(t, t.Context(), text+"sweep: {repeats: 2}\n", Options{})
	if err != nil || alone.Points[0].Runs[0].Digest != r.Points[2].Runs[0].Digest {
		t.Errorf("%v: digests %v and %v", err, alone.Points[0].Runs, r.Points[2].Runs)
	}
	for i := range r.Rows {
		if r.Rows[i].Half != nil {
			t.Errorf("one run has an interval: %+v", r.Rows[i])
		}
	}
	if got := file(t, r.Dir, "sweep.csv"); !strings.Contains(got, ",,,,") || strings.Contains(file(t, r.Dir, "sweep.txt"), "95 %") {
		t.Error(got)
	}
}

// TestInterrupted: an interrupted sweep leaves its measurements and no result, prints the command to resume it, and
// resumes; the rest of a killed one is deleted.
func TestInterrupted(t *testing.T) {
	whole, err := run(t, t.Context(), losses, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	lines := 0
	dir := t.TempDir()
	_, err = run(t, ctx, losses, Options{Base: dir, Jobs: 2, Say: func(string, ...any) {
		if lines++; lines == 4 {
			cancel(context.Canceled)
		}
	}})
	dir = filepath.Join(dir, "swept-1")
	if want := "--resume " + dir + " continues it"; !errors.Is(err, context.Canceled) || !strings.Contains(fmt.Sprint(err), want) {
		t.Fatalf("%v, want %s", err, want)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 { // points and measurements
		t.Errorf("half a result is left: %v, %v", left, err)
	}
	killed := filepath.Join(dir, "run-009-5", "swept-1")
	kept, err := filepath.Glob(filepath.Join(dir, measuredFolder, "*.json"))
	if err != nil || len(kept) < 2 {
		t.Fatal(kept, err)
	}
	wrong := regexp.MustCompile(`("value": )\d`).ReplaceAllString(file(t, "", kept[1]), "${1}7") // another measurement
	if err := errors.Join(os.MkdirAll(killed, 0o755), os.WriteFile(kept[0], []byte("{"), 0o644), os.WriteFile(kept[1], []byte(wrong), 0o644)); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	r, err := run(t, t.Context(), losses, Options{Resume: dir, Say: func(f string, a ...any) { fmt.Fprintf(&said, f+"\n", a...) }})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(said.String(), "measured before"); n < 2 || n > 8 {
		t.Errorf("%d runs are known\n%s", n, said.String())
	}
	if r.Dir != dir || file(t, dir, "sweep.csv") != file(t, whole.Dir, "sweep.csv") {
		t.Errorf("%s is not as without an interrupt:\n%s", r.Dir, file(t, dir, "sweep.csv"))
	}
	if _, err := os.Stat(killed); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a killed run has left: %v", err)
	}
	other := strings.Replace(losses, "2%", "3%", 1)
	if _, err := run(t, t.Context(), other, Options{Resume: dir}); err == nil || !strings.Contains(err.Error(), "is the folder of another sweep") {
		t.Errorf("another sweep goes on there: %v", err)
	}
}

// TestFailures: a failure at a point is reported with the point's name, and the other points are there.
func TestFailures(t *testing.T) {
	r, err := run(t, t.Context(), head+`workloads: [{bcast: {schemes: [cepheus, chain], sizes: [64KiB]}}]
faults: [{loss: {links: h1-leaf0, rate: 0%}}]
expect: [bcast.cepheus.64KiB.jct.avg > 0, bcast.cepheus.64KiB.jct.avg < 3]
sweep:
  over: [{key: "faults[0].loss.rate", name: loss, values: [0%, 100%]}, {key: nics.mtu, values: [1024, 4096]}]
`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`loss=0%, nics.mtu=1024: expect "bcast.cepheus.64KiB.jct.avg < 3" does not hold: its left side is `,
		"loss=100%, nics.mtu=4096: ",
		`loss=100%, nics.mtu=1024: expect "bcast.cepheus.64KiB.jct.avg > 0" cannot be checked: bcast.cepheus.64KiB.jct.avg was not measured`,
	} {
		if !slices.ContainsFunc(r.Failures, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("no failure %q:\n%s", want, strings.Join(r.Failures, "\n"))
		}
	}
	if len(r.Rows) != 4 || len(r.Points) != 4 {
		t.Errorf("%d rows, %d points", len(r.Rows), len(r.Points))
	}
	table := file(t, r.Dir, "sweep.txt")
	if !strings.Contains(table, "[FAIL] bcast.cepheus.64KiB.jct.avg > 0 (at 2 of 4 points: loss=100%, nics.mtu=1024; loss=100%, nics.mtu=4096)") {
		t.Error(table)
	}
}

// TestRepeatsOnly: a sweep may vary nothing but the seed; then its plot is over the sizes.
func TestRepeatsOnly(t *testing.T) {
	r, err := run(t, t.Context(), head+`workloads: [{bcast: {schemes: [chain], sizes: [0B, 64B, 64KiB], memory: phantom}}, {allgather: {schemes: [ring], sizes: [1KiB]}}]
expect: [bcast.chain.64B.jct.avg < 100]
sweep: {repeats: 2, measure: source.max}
`, Options{})
	if err != nil || len(r.Failures) > 0 || len(r.Rows) != 4 {
		t.Fatalf("%v, %+v", err, r)
	}
	if !strings.HasPrefix(file(t, r.Dir, "sweep-bcast.csv"), "message size,chain,chain +-\n0B,") {
		t.Error(file(t, r.Dir, "sweep-bcast.csv"))
	}
	table := file(t, r.Dir, "sweep.txt")
	if !strings.Contains(table, "Workload.Scheme") || !strings.Contains(table, "source.max (us)") || !strings.Contains(table, "[PASS] bcast.chain.64B.jct.avg < 100\n") {
		t.Error(table)
	}
}

// TestNumbers: an axis has the scale of numbers if all values are numbers, of whatever unit.
func TestNumbers(t *testing.T) {
	for text, want := range map[string][]float64{
		"0,1%,0.5": {0, 0.01, 0.5}, "1KiB,2MiB": {1 << 10, 2 << 20}, "10Gbps,1Tbps": {1e10, 1e12}, "1us,1ms": {1e6, 1e9}, `"3",'4'`: {3, 4},
		"1,true": nil, "1,[2]": nil, "infinite,1ms": nil, "Inf": nil, "NaN": nil, "x%": nil,
	} {
		if got := numbers(strings.Split(text, ",")); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	key := func(values ...string) Key { return Key{Values: values} }
	for want, keys := range map[int][]Key{bySize: {key("1")}, 0: {key("a", "b"), key("1")}, 1: {key("a", "b"), key("1", "2"), key("3", "4")}} {
		if got := (&Result{Keys: keys}).over(); got != want {
			t.Errorf("%v: key %d, want %d", keys, got, want)
		}
	}
}

// TestBars: values that are no numbers are bars, each with its interval.
func TestBars(t *testing.T) {
	r, err := run(t, t.Context(), head+`workloads: [{bcast: {schemes: [cepheus], sizes: [4KiB, 64KiB]}}]
sweep: {over: [{key: switches.forwarding, values: [store-and-forward, cut-through]}], repeats: 2}
`, Options{})
	if err != nil || len(r.Plots) != 2 {
		t.Fatalf("%v, %+v", err, r)
	}
	svg := file(t, r.Dir, "sweep-bcast-4KiB.svg")
	if strings.Count(svg, "<rect") != 3 || strings.Count(svg, `stroke-width="1.5"`) != 2 {
		t.Error(svg)
	}
}
