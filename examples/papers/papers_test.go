// SPDX-License-Identifier: Apache-2.0

package papers_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/internal/test/sweeps"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/reproduce"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// TestPaperLabs: every lab of the papers runs, and its expectations, each marked as predicted or
// calibrated, hold.
func TestPaperLabs(t *testing.T) {
	files, err := filepath.Glob("*.mcl.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d labs, %v", len(files), err)
	}
	quick, err := reproduce.Quick()
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for i, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".mcl.yml")
		there[name] = true
		t.Run(name, func(t *testing.T) {
			l, err := lab.Read(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range l.Expect {
				if e, err := lab.ParseExpect(text); err != nil || e.Basis == "" {
					t.Errorf("%q says neither CAL nor PRED (%v)", text, err)
				}
			}
			switch {
			case len(l.Expect) == 0:
				t.Fatal("it expects nothing")
			case testing.Short():
				t.Skip("runs for some seconds")
			case reproduce.Slow()[name] > 0 && os.Getenv("MCASTLAB_SOAK") == "":
				t.Skipf("took %g s: MCASTLAB_SOAK=1 runs it", reproduce.Slow()[name])
			case slices.Contains(quick, name) && os.Getenv("MCASTLAB_SOAK") == "":
				t.Skip("TestMeasured of lab/reproduce runs it")
			case os.Getenv("MCASTLAB_SOAK") == "" && !sweeps.Takes(t, i):
				t.Skip("another day runs it: make papers runs all")
			}
			paperLab(t, l)
		})
	}
	for name := range reproduce.Slow() {
		if !there[name] {
			t.Errorf("%s is called slow, and there is no such lab", name)
		}
	}
}

func paperLab(t *testing.T, l *lab.Lab) {
	start := time.Now()
	r, err := runner.Simulate(t.Context(), l, runner.Options{Base: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range r.Failures() {
		t.Error(line)
	}
	for _, e := range r.Expect {
		if e.Got != nil {
			t.Logf("%12.5f in %s", *e.Got, e.Text)
		}
	}
	t.Logf("%s: %d lines of expect, %.1f s", l.Name, len(r.Expect), time.Since(start).Seconds())
}
