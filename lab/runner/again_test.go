// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/lab"
)

// TestAgain: a run with --check is compared with the fast-forwarded run, of which no file is left.
func TestAgain(t *testing.T) {
	l, err := lab.Parse("lab.mcl.yml", []byte("name: again\ntopology: {fat-tree: {k: 4}}\nnics: {icrc: flag, mtu: 4096}\nworkloads: [{bcast: {schemes: [cepheus], sizes: [4MiB], iterations: 2, memory: phantom}}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	leftOut := func(o Options) uint64 {
		t.Helper()
		o.Base = t.TempDir()
		rep, err := Simulate(t.Context(), l, o)
		if err != nil {
			t.Fatal(err)
		}
		var m Meta
		if err := ReadJSON(filepath.Join(rep.RunDir, "meta.json"), &m); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(rep.RunDir, "again")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the folder of the second run: %v", err)
		}
		return m.HopsLeftOut
	}
	plain, checked, whole := leftOut(Options{}), leftOut(Options{Check: true}), leftOut(Options{Check: true, NoSkip: true})
	if plain == 0 || checked != plain || whole != 0 {
		t.Errorf("hops left out: %d, %d in the second run with --check, %d with --no-skip", plain, checked, whole)
	}
}

// TestSameRun: each part of a report that is another one is named.
func TestSameRun(t *testing.T) {
	whole := func() *Report {
		return &Report{
			Digest: "1", Results: []apps.Row{{Scheme: "cepheus", Ranks: 4}}, Counters: map[string]counters.Totals{"switches": {}},
			Faults: []FaultRow{{}}, Texts: []string{"a"},
		}
	}
	if err := sameRun(whole(), whole()); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Report){
		"digest":   func(r *Report) { r.Digest = "2" },
		"results":  func(r *Report) { r.Results[0].Ranks++ },
		"counters": func(r *Report) { delete(r.Counters, "switches") },
		"faults":   func(r *Report) { r.Faults = nil },
		"texts":    func(r *Report) { r.Texts[0] = "b" },
	} {
		less := whole()
		spoil(less)
		if err := sameRun(whole(), less); !errors.Is(err, ErrLeftOut) {
			t.Errorf("another %s: %v", name, err)
		}
	}
}
