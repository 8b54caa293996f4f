// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/lab"
)

// TestNotFinite: a line of expect with a side that is infinite or not a number does not hold, and the run's files have the
// reason.
func TestNotFinite(t *testing.T) {
	const jct = "bcast.unicast.64B.jct."
	for _, c := range []struct{ line, why string }{
		{jct + "avg / (" + jct + "max - " + jct + "min) > 5", "its left side is +Inf"},
		{"(" + jct + "max - " + jct + "max) / (" + jct + "min - " + jct + "min) < 1", "its left side is NaN"},
		{jct + "avg < " + jct + "avg / (" + jct + "max - " + jct + "min)", "its right side is +Inf"},
		{jct + "avg > 0 - " + jct + "avg / (" + jct + "max - " + jct + "min)", "its right side is -Inf"},
	} {
		l, err := lab.Parse("x", []byte("name: x\ntopology: {star: {hosts: 2}}\nworkloads: [{bcast: {schemes: [unicast], sizes: [64B]}}]\nexpect: ['"+c.line+"']\n"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := Simulate(t.Context(), l, Options{Base: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		var meta Meta
		var kept Report
		if err := errors.Join(ReadJSON(filepath.Join(r.RunDir, "meta.json"), &meta), ReadJSON(filepath.Join(r.RunDir, "summary.json"), &kept)); err != nil {
			t.Fatal(err)
		}
		e := kept.Expect[0]
		if meta.Status != StatusFailed || e.OK || !strings.HasPrefix(e.Why, c.why) || len(kept.Failures()) != 1 || fmt.Sprint(kept.Failures()) != fmt.Sprint(r.Failures()) {
			t.Errorf("%s: %s, %+v, %q", c.line, meta.Status, e, kept.Failures())
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	}
}

// TestNotWritten: a run whose files could not all be written is not ok, and leaves no part of one.
func TestNotWritten(t *testing.T) {
	for _, name := range []string{"summary.json", "counters.json", TimesFile} {
		l, err := lab.Parse("x", []byte("name: x\ntopology: {star: {hosts: 2}}\ntimes: ranks\nworkloads: [{bcast: {schemes: [unicast], sizes: [64B]}}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		base := t.TempDir()
		dir := filepath.Join(base, "x-1")
		r, err := Simulate(t.Context(), l, Options{Base: base, Say: nil, Progress: during(func() {
			_ = os.MkdirAll(filepath.Join(dir, name, "in the way"), 0o755) // the file cannot take its place
		})})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Fatalf("%s: %v", name, err)
		}
		var meta Meta
		if err := ReadJSON(filepath.Join(r.RunDir, "meta.json"), &meta); err != nil || meta.Status != StatusError || !strings.Contains(meta.Error, name) {
			t.Errorf("%s: %v, %+v", name, err, meta)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(left) > 0 {
			t.Errorf("%s: %q are left", name, left)
		}
	}
}

// during is a progress that is called at the end of the simulation, before its files are written.
type during func()

// Update implements Progress.
func (during) Update(ProgressState) {}

// Done implements Progress.
func (f during) Done() { f() }

// TestRowsBeside: each of several flows that run side by side lists the faults in force while it lasted.
func TestRowsBeside(t *testing.T) {
	r, table := simulated(t, `name: beside
topology: {star: {hosts: 4}}
workloads:
  - flows: {message: 16KiB, interval: 100us, flows: [
      {name: one, from: h0, to: h1, end: 1ms}, {name: other, from: h2, to: h3, end: 1ms},
      {name: early, from: h0, to: h2, end: 100us}, {name: late, from: h3, to: h2, begin: 600us, end: 1ms}]}
faults:
  - {in: run, at: 300us, for: 100us, pause-storm: {node: h1, gap: 20us}}
`)
	want := map[string]bool{"one": true, "other": true, "early": false, "late": false}
	for _, row := range r.Results {
		if len(row.Faults) != 1 || row.Faults[0].Came != want[row.Scheme] {
			t.Errorf("%s: %+v\n%s", row.Scheme, row.Faults, table)
		}
	}
	if len(r.Results) != len(want) {
		t.Error(table)
	}
}

// TestRowsAfterEachOther: of workloads that report no iterations each row has the faults of its own time, too.
func TestRowsAfterEachOther(t *testing.T) {
	for _, w := range []string{
		"fsdp: {schemes: [{allgather: ring, reduce-scatter: ring}], sizes: [4KiB, 4MiB], iterations: 1}",
		"many-to-many: {schemes: [cyclic, opensm], sizes: [4KiB], iterations: 20}",
	} {
		text := "name: after\ntopology: {m-port-n-tree: {m: 4, n: 2}}\nworkloads:\n  - " + w + "\nfaults:\n  - {in: run, at: %s, for: 1ns, pause: {node: h1}}\n"
		for at, want := range map[string]string{"0us": "true false", "90ms": "false false"} { // independent of each other
			r, table := simulated(t, fmt.Sprintf(text, at))
			var came []string
			for _, row := range r.Results {
				came = append(came, fmt.Sprint(row.Faults[0].Came))
			}
			if strings.Join(came, " ") != want {
				t.Errorf("%s, %s: %q\n%s", w, at, came, table)
			}
		}
	}
}

// TestNeverActed: a run reports that its congestion control had nothing to do.
func TestNeverActed(t *testing.T) {
	const text = "name: acted\ntopology: {star: {hosts: 4}}\nswitches: {ecn: true}\nnics: {congestion: %s}\nworkloads: [{flows: {message: 64KiB, flows: [%s]}}]\n"
	const one, other = "{name: one, from: h0, to: h3, end: 300us}", "{name: other, from: h1, to: h3, end: 300us}"
	for _, c := range []struct {
		flows, congestion string
		want              int
	}{{one, "dcqcn", 1}, {one, "none", 0}, {one + ", " + other, "dcqcn", 0}} {
		r, table := simulated(t, fmt.Sprintf(text, c.congestion, c.flows))
		if n := strings.Count(table, "Congestion control never acted: nics.congestion is dcqcn"); n != c.want || len(r.Remarks) != c.want {
			t.Errorf("%+v: %q\n%s", c, r.Remarks, table)
		}
	}
}

// TestFolderReplaced: a run writes into the folder that it made, and not where a link leads that has taken its place, or
// that was put into it.
func TestFolderReplaced(t *testing.T) {
	l, err := lab.Parse("x", []byte("name: x\ntopology: {star: {hosts: 2}}\ntimes: ranks\ntrace: messages\n"+
		"workloads: [{bcast: {schemes: [unicast], sizes: [64B, 1kB]}}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	base, elsewhere := t.TempDir(), t.TempDir()
	dir, moved := filepath.Join(base, "x-1"), filepath.Join(base, "moved")
	r, err := Simulate(t.Context(), l, Options{Base: base, Captures: []string{"h0:0"}, Progress: during(func() {
		if err := errors.Join(os.Rename(dir, moved), os.Symlink(elsewhere, dir)); err != nil {
			t.Error(err)
		}
	})})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.WriteFile("report.html", []byte("page")); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(elsewhere); len(left) > 0 {
		t.Errorf("%d files were written through the link, such as %s", len(left), left[0].Name())
	}
	for _, name := range []string{"counters.json", "summary.json", "meta.json", "events.jsonl", TraceFile, TimesFile, "jct-bcast.svg", "report.html", "h0_0.pcapng"} {
		if st, err := os.Stat(filepath.Join(moved, name)); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	// In a folder of the user's own, links that lead out of it are not followed.
	f, err := OpenFolder(base)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(base, "out")); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteFile("out/file", nil); err == nil {
		t.Error("a link out of the folder is followed")
	}
}

// TestNotBegun: a run whose files cannot be opened does not count as running.
func TestNotBegun(t *testing.T) {
	l, err := lab.Parse("x", []byte("name: x\ntopology: {star: {hosts: 2}}\ntimes: ranks\n"))
	if err != nil {
		t.Fatal(err)
	}
	l.Topology.Star.Hosts = -1 // the names of the hosts cannot be had
	base := t.TempDir()
	if r, err := Begin(base, l, "sim"); r != nil || err == nil {
		t.Fatal(r, err)
	}
	var meta Meta
	if err := ReadJSON(filepath.Join(base, "x-1", "meta.json"), &meta); err != nil || meta.Status != StatusError || meta.Error == "" || meta.Locked {
		t.Errorf("%v, %+v", err, meta)
	}
}
