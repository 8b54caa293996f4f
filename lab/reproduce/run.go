// SPDX-License-Identifier: Apache-2.0

package reproduce

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/examples/papers"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/batch"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// Options select the labs to run and the folder of their results.
type Options struct {
	Dir  string // results go there; those of an earlier run are reused
	Full bool   // also the labs that take minutes
	Jobs int    // labs at a time
	Say  func(format string, args ...any)
}

// Measured holds the measurements of a lab.
type Measured struct {
	Lab    string             `json:"lab"`
	Key    string             `json:"key"` // of the program, the lab, and its expressions
	Digest string             `json:"digest"`
	Values map[string]float64 `json:"values"`          // by expression
	Lacks  map[string]string  `json:"lacks,omitempty"` // by expression: why it has no value
	// Intervals are by expression, of a lab that repeats itself with other seeds; its values are means.
	Intervals map[string]Interval `json:"intervals,omitempty"`

	Wall float64 `json:"wall_s,omitempty"` // how long it took

	Failures []string `json:"failures,omitempty"` // failed expectations of the lab itself
}

// Slow returns the labs that only a full reproduction runs, with the seconds that each took alone on one
// core.
func Slow() map[string]float64 {
	return map[string]float64{
		"cepheus-large-flows": 19, "cyclic-30-draws": 25, "cyclic-drawn-root": 100, "cyclic-group-size": 13, "cyclic-many-to-many": 13,
		"gleam-hpl-128":             178,
		"multicast-measured":        3,
		"cepheus-fairness-100-long": 14, "cepheus-fairness-40-long": 4, "cepheus-loss-512-20": 200,
		"cepheus-loss-512-seeds": 200, "cepheus-loss-512-seeds-irn": 112, "cepheus-loss-512-seeds-chain": 344,
		"cepheus-loss-512-middle": 17, "cepheus-loss-512-middle-chain": 25, "cepheus-irn-free": 3,
		"cepheus-loss-512-middle-1024": 80, "cepheus-loss-512-rto": 31, "cepheus-loss-512-rto-short": 29,
		"gleam-fig-14-64": 170, "gleam-fig-14-128": 365,
		"cepheus-loss-512-5": 20, "gleam-fig-15-512-free": 5, "gleam-fig-15-512-4": 25,
		"gleam-fig-15-512-s32-free": 5, "gleam-fig-15-512-s32-3": 30, "gleam-fig-15-512-3": 28, "gleam-fig-15-64-4": 3, "gleam-fig-15-64-3": 3,
		"multicast-phases": 40, "cepheus-loss-64": 7, "cepheus-loss-512": 24, "cepheus-loss-512-irn": 50, "gleam-loss-4": 14, "gleam-loss-3": 22,
		"cepheus-fan-out-25": 3, "cepheus-fig-12": 7, "cepheus-loss-512-8": 20, "cepheus-loss-512-7": 21, "cepheus-loss-512-6": 20,
		"cepheus-loss-64-8": 3,
		"cepheus-loss-64-7": 3, "cepheus-loss-64-6": 3, "cepheus-loss-64-5": 3, "cyclic-fig-11": 11, "gleam-fig-14": 35,
		"gleam-fig-14-free": 17, "gleam-fig-14-parts": 13, "gleam-fig-14-owner": 5,
		"gleam-fig-15-512-8": 12, "gleam-fig-15-512-7": 12,
		"gleam-fig-15-512-6": 12, "gleam-fig-15-512-5": 25, "gleam-fig-15-64-8": 3, "gleam-fig-15-64-7": 3, "gleam-fig-15-64-6": 3, "gleam-fig-15-64-5": 3,
		"multicast-overlap-188": 36, "multicast-overlap-1024": 900, "multicast-traffic-1024": 23,
	}
}

// Quick returns the labs that a quick reproduction of all results runs.
func Quick() ([]string, error) {
	all, err := Load()
	if err != nil {
		return nil, err
	}
	quick, err := jobs(all, false)
	var names []string
	for _, j := range quick {
		names = append(names, j.name)
	}
	return names, err
}

// defaultCost is the assumed duration of a lab without a measured one, in seconds.
const defaultCost = 2

// job is a lab with its expressions.
type job struct {
	name  string
	exprs []string
	takes float64
}

// jobs returns the labs that chosen results need, the longest first. Each has the expressions of all results, so that
// it need not be run again for another one.
func jobs(chosen []*Result, full bool) ([]job, error) {
	results, err := Load()
	if err != nil {
		return nil, err
	}
	needed := quantities(chosen)
	var all []job
	for name, exprs := range quantities(results) {
		takes, slow := Slow()[name]
		if needed[name] == nil || slow && !full {
			continue
		}
		slices.Sort(exprs)
		all = append(all, job{name, slices.Compact(exprs), max(takes, defaultCost)})
	}
	slices.SortFunc(all, func(a, b job) int { return cmp.Or(cmp.Compare(b.takes, a.takes), cmp.Compare(a.name, b.name)) })
	return all, nil
}

// quantities returns the expressions that results have for each lab.
func quantities(results []*Result) map[string][]string {
	asked := map[string][]string{}
	for _, r := range results {
		for i := range r.Lines {
			for _, q := range r.Lines[i].asked() {
				asked[q.Lab] = append(asked[q.Lab], q.Value)
			}
		}
		for i := range r.Figures {
			f := &r.Figures[i]
			for k := range f.Series {
				for n := range f.At {
					l := f.line(&f.Series[k], n)
					if l == nil {
						continue
					}
					for _, q := range l.asked() {
						asked[q.Lab] = append(asked[q.Lab], q.Value)
					}
				}
			}
		}
	}
	return asked
}

// Run runs the labs that results need and returns their measurements, by lab. Earlier measurements of the
// same program are reused. If ctx ends, it returns the measurements so far, and the reason.
func Run(ctx context.Context, results []*Result, o Options) (Labs, error) {
	if err := os.MkdirAll(filepath.Join(o.Dir, "labs"), 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the results: %w", err)
	}
	all, err := jobs(results, o.Full)
	if err != nil {
		return nil, err
	}
	program, err := batch.Fingerprint()
	if err != nil {
		return nil, err
	}
	list := make([]batch.Job, len(all))
	for i, j := range all {
		list[i] = batch.Job{Name: j.name, Takes: j.takes}
	}
	var mu sync.Mutex
	measured := Labs{}
	err = batch.Run(ctx, list, o.Jobs, o.Say, func(ctx context.Context, i int) (batch.Done, error) {
		m, again, err := measure(ctx, all[i], o, program)
		if err != nil {
			return batch.Done{}, err
		}
		mu.Lock()
		defer mu.Unlock()
		measured[all[i].name] = m
		return batch.Done{Wall: m.Wall, Again: again}, nil
	})
	return measured, err
}

// measure runs a lab, or reads its earlier measurements: again.
func measure(ctx context.Context, j job, o Options, program string) (m *Measured, again bool, err error) {
	text, err := papers.Labs.ReadFile(j.name + ".mcl.yml")
	if err != nil {
		return nil, false, fmt.Errorf("there is no lab %s in examples/papers", j.name)
	}
	l, points, err := lab.Reader{}.ParsePoints(j.name+".mcl.yml", text)
	if err != nil {
		return nil, false, err
	}
	file := filepath.Join(o.Dir, "labs", j.name+".json")
	m = &Measured{Lab: j.name, Key: batch.Key(program, text, j.exprs), Values: map[string]float64{}, Lacks: map[string]string{}}
	if old := batch.Recall(file, func(x *Measured) bool { return x.Key == m.Key }); old != nil {
		return old, true, nil
	}
	begin := time.Now()
	if l.Sweep != nil {
		err = m.overSeeds(ctx, l, points, j.exprs, o)
	} else {
		err = m.once(ctx, l, j.exprs, filepath.Join(o.Dir, "run-"+j.name))
	}
	if err != nil {
		return nil, false, fmt.Errorf("lab %s: %w", j.name, err)
	}
	m.Wall = time.Since(begin).Seconds()
	return m, false, runner.WriteJSON(file, m)
}

// once runs a lab that has one seed, and fills in its measurements.
func (m *Measured) once(ctx context.Context, l *lab.Lab, exprs []string, dir string) error {
	report, err := batch.Simulate(ctx, l, dir, runner.Options{Env: apps.Env{}})
	if err != nil {
		return err
	}
	m.Digest, m.Failures = report.Digest, report.Failures()
	return m.evaluate(exprs, report.Quantity)
}

// evaluate computes expressions from the quantities in them.
func (m *Measured) evaluate(exprs []string, of func(name string) (float64, error)) error {
	for _, text := range exprs {
		e, err := lab.ParseExpression(text)
		if err != nil {
			return err
		}
		if v, err := e.Eval(of); err != nil {
			m.Lacks[text] = err.Error()
		} else if math.IsNaN(v) || math.IsInf(v, 0) {
			m.Lacks[text] = "it divides by 0"
		} else {
			m.Values[text] = v
		}
	}
	return nil
}
