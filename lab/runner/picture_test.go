// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/flows"
	"github.com/mcastlab/mcastlab/lab"
)

// TestPlots: a run leaves a plot of every broadcast that has several sizes, and of nothing else.
func TestPlots(t *testing.T) {
	l, err := lab.Parse("f", []byte(`name: plots
topology: {star: {hosts: 4}}
workloads:
  - bcast: {schemes: [cepheus, chain], sizes: [0B, 64B, 64KiB]}
  - bcast: {schemes: [chain], sizes: [1B], label: one}
  - allgather: {schemes: [ring], sizes: [64B, 1KiB]}
  - bcast: {schemes: [binomial], sizes: [64B, 128B], label: two}
`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Simulate(t.Context(), l, Options{Base: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{filepath.Join(r.RunDir, "jct-bcast.svg"), filepath.Join(r.RunDir, "jct-two.svg")}; !slices.Equal(r.Plots, want) {
		t.Fatalf("plots are %q, want %q", r.Plots, want)
	}
	svg, err := os.ReadFile(r.Plots[0])
	if err != nil || !strings.Contains(string(svg), ">cepheus<") || !strings.Contains(string(svg), ">chain<") {
		t.Errorf("%v\n%s", err, svg)
	}
	points, err := os.ReadFile(strings.TrimSuffix(r.Plots[0], "svg") + "csv")
	if lines := strings.Split(string(points), "\n"); err != nil || len(lines) != 5 || lines[0] != "message size,cepheus,chain" || !strings.HasPrefix(lines[1], "0B,") {
		t.Errorf("%v\n%s", err, points)
	}
	if all, err := filepath.Glob(filepath.Join(r.RunDir, "jct-*")); err != nil || len(all) != 4 {
		t.Errorf("%q, %v", all, err)
	}
}

// TestRatesPoints: the points of rates are written as the intervals are.
func TestRatesPoints(t *testing.T) {
	p, ok := rates("w", []apps.Row{{Scheme: "a", Details: &flows.Course{IntervalUS: 0.1, Rates: make([]float64, 7)}}})
	if got := strings.Join(p.At, " "); !ok || got != "0.0001 0.0002 0.0003 0.0004 0.0005 0.0006 0.0007" {
		t.Errorf("%v, points %s", ok, got)
	}
}
