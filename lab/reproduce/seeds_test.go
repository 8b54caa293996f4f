// SPDX-License-Identifier: Apache-2.0

package reproduce

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/batch"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/lab/sweep"
)

const seedsLab = `name: seeds
seed: 7
sweep: {repeats: 3}
topology: {star: {hosts: 4}}
workloads:
  - bcast: {schemes: [cepheus], sizes: [1MiB], iterations: 1, memory: phantom}
faults:
  - {in: run, loss: {links: "*-*", rate: 0.01, frames: {kind: data}}}
`

// TestSeeds: a lab with repeats has the mean over its seeds, each of which is a run of its own, and the interval
// about it. An interrupted one is resumed, and names the values that it lacks.
func TestSeeds(t *testing.T) {
	const asked = "bcast.cepheus.1MiB.jct.avg"
	l, points, err := lab.Reader{}.ParsePoints("seeds.mcl.yml", []byte(seedsLab))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var one []float64
	for k := range 3 {
		alone := *points[0].Lab
		alone.Seed = sweep.Seed(alone.Seed, k)
		r, err := batch.Simulate(t.Context(), &alone, filepath.Join(dir, fmt.Sprint("alone", k)), runner.Options{Env: apps.Env{}})
		if err != nil {
			t.Fatal(err)
		}
		v, err := r.Quantity(asked)
		if err != nil {
			t.Fatal(err)
		}
		one = append(one, v)
	}
	if one[0] == one[1] {
		t.Fatalf("the seeds draw the same: %v", one)
	}
	mean := (one[0] + one[1] + one[2]) / 3
	fresh := func() *Measured {
		return &Measured{Lab: "seeds", Key: "k", Values: map[string]float64{}, Lacks: map[string]string{}}
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = fresh().overSeeds(ctx, l, points, []string{asked}, Options{Dir: dir, Jobs: 1, Say: func(string, ...any) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	m, said := fresh(), ""
	err = m.overSeeds(t.Context(), l, points, []string{asked, asked + " / 2", "bcast.cepheus.1MiB.source.avg"}, Options{Dir: dir, Jobs: 1, Say: func(f string, args ...any) { said += fmt.Sprintf(f, args...) }})
	if err != nil || !strings.Contains(said, "measured before") {
		t.Fatalf("it did not go on: %v: %s", err, said)
	}
	if got := m.Values[asked]; math.Abs(got-mean) > 1e-9*mean || m.Values[asked+" / 2"] != got/2 {
		t.Errorf("mean %v of %v", m.Values, one)
	}
	// Student's t has 95 % within 4.303 standard errors for two degrees of freedom.
	squares := 0.0
	for _, v := range one {
		squares += (v - mean) * (v - mean)
	}
	half := 4.303 * math.Sqrt(squares/2/3)
	if i := m.Intervals[asked]; math.Abs(i.Low-(mean-half)) > 1e-3*half || math.Abs(i.High-(mean+half)) > 1e-3*half {
		t.Errorf("interval %v, want %v -+ %v", i, mean, half)
	}
	all := Labs{"seeds": m}
	for _, c := range []struct {
		q    Quantity
		want float64
		lack string
	}{
		{Quantity{Lab: "seeds", Value: asked, End: lowEnd}, m.Intervals[asked].Low, ""},
		{Quantity{Lab: "seeds", Value: asked, End: highEnd}, m.Intervals[asked].High, ""},
		{Quantity{Lab: "seeds", Value: asked + " / 2", End: highEnd}, 0, "no confidence interval"},
		{Quantity{Lab: "seeds", Value: "bcast.cepheus.1MiB.source.avg"}, 0, "the sweep compares jct.avg"},
	} {
		if got, err := all.value(c.q); got != c.want || (err != nil) != (c.lack != "") || err != nil && !strings.Contains(err.Error(), c.lack) {
			t.Errorf("%+v: %v, %v", c.q, got, err)
		}
	}
	if left, _ := filepath.Glob(dir + "/seeds-*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := fresh().overSeeds(t.Context(), l, append(points, points[0]), nil, Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "the sweep has 2") {
		t.Errorf("two points: %v", err)
	}
}
