// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"errors"
	"math"
	"strings"

	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// Schema names the format of sweep.json and of run --format json of a lab with a sweep. Fields are added, never changed.
const Schema = "mcastlab/sweep/v1"

// Result holds the results of a sweep.
type Result struct {
	Schema  string   `json:"schema"`
	Lab     string   `json:"lab"`
	Dir     string   `json:"dir"`
	Measure string   `json:"measure"`
	Repeats int      `json:"repeats"`
	Keys    []Key    `json:"keys"`
	Points  []Point  `json:"points"`
	Rows    []Row    `json:"rows"`
	Plots   []string `json:"plots"`

	Failures []string `json:"failures"` // of runs, and of lines of expect, with the points they are at
}

// Key is a key that the sweep varies.
type Key struct {
	Key    string   `json:"key"`
	Name   string   `json:"name"`
	Values []string `json:"values"`
}

// Point is a point of the sweep and its runs.
type Point struct {
	Values []string             `json:"values"` // by key
	File   string               `json:"file"`   // the point as a lab
	Runs   []PointRun           `json:"runs"`
	Expect []runner.Expectation `json:"expect"` // of means over the runs
}

// PointRun is a run of a point. Digest is empty if the run ended with an error.
type PointRun struct {
	Seed   uint64 `json:"seed"`
	Digest string `json:"digest"`
}

// Row is a row of the lab's results at a point: a summary of its runs. With fewer than two of them there is
// no interval.
type Row struct {
	Point     int       `json:"point"` // from 0
	Workload  string    `json:"workload"`
	Scheme    string    `json:"scheme"`
	Size      int       `json:"size_bytes"`
	Values    []float64 `json:"values"` // of runs that have one
	Mean      float64   `json:"mean"`
	Half      *float64  `json:"ci95"` // half of the interval: the mean of all seeds is within mean -+ ci95
	Deviation *float64  `json:"stddev"`
	Min       float64   `json:"min"`
	Max       float64   `json:"max"`

	spread spread
}

// gather puts runs together.
func gather(l *lab.Lab, points []lab.Point, all []job, shown []*measured, failed []error) *Result {
	s := l.Sweep
	r := &Result{Schema: Schema, Lab: l.Name, Measure: s.Measure, Repeats: s.Repeats, Keys: []Key{}, Rows: []Row{}, Plots: []string{}, Failures: []string{}}
	for i := range s.Over {
		k := Key{Key: s.Over[i].Key, Name: s.Over[i].Title()}
		for _, v := range s.Over[i].Values {
			k.Values = append(k.Values, v.String())
		}
		r.Keys = append(r.Keys, k)
	}
	for i := range points {
		name := points[i].String()
		p := Point{Values: append([]string{}, points[i].Values...), File: pointFile("", i)}
		var runs []*measured
		for k := range all {
			if all[k].point != i {
				continue
			}
			one := PointRun{Seed: all[k].lab.Seed}
			at := runName(name, all[k].repeat, s.Repeats) + ": "
			if name == "" && s.Repeats == 1 {
				at = ""
			}
			if m := shown[k]; m != nil {
				one.Digest = m.Digest
				runs = append(runs, m)
				for _, f := range m.Failures {
					r.Failures = append(r.Failures, at+f)
				}
			} else {
				r.Failures = append(r.Failures, at+failed[k].Error())
			}
			p.Runs = append(p.Runs, one)
		}
		r.rows(i, runs)
		p.Expect = runner.Evaluate(points[i].Lab.Expect, mean(runs))
		for k := range p.Expect {
			if why := p.Expect[k].Failure(); why != "" {
				r.Failures = append(r.Failures, prefixed(name, why))
			}
		}
		r.Points = append(r.Points, p)
	}
	return r
}

func prefixed(point, text string) string {
	if point == "" {
		return text
	}
	return point + ": " + text
}

// rows adds the rows of a point. One that no run has a value of is a failure.
func (r *Result) rows(point int, runs []*measured) {
	type id struct {
		workload, scheme string
		size             int
	}
	var order []id
	values, lacks := map[id][]float64{}, map[id]string{}
	for _, m := range runs {
		seen := map[id]bool{} // a quantity means the first row of its name
		for _, v := range m.Rows {
			x := id{v.Workload, v.Scheme, v.Size}
			if seen[x] {
				continue
			}
			seen[x] = true
			if _, known := values[x]; !known {
				order, values[x] = append(order, x), nil
			}
			if v.Value != nil {
				values[x] = append(values[x], *v.Value)
			} else {
				lacks[x] = v.Lack
			}
		}
	}
	for _, x := range order {
		if len(values[x]) == 0 {
			r.Failures = append(r.Failures, lacks[x])
			continue
		}
		s := spreadOf(values[x])
		row := Row{Point: point, Workload: x.workload, Scheme: x.scheme, Size: x.size, Values: values[x], Mean: s.Mean, Min: s.Min, Max: s.Max, spread: s}
		if !math.IsNaN(s.Half) {
			row.Half, row.Deviation = &s.Half, &s.Deviation
		}
		r.Rows = append(r.Rows, row)
	}
}

// mean looks a quantity up in the runs of a point: it is the mean of those that have it.
func mean(runs []*measured) lab.Lookup {
	return func(name string) (float64, error) {
		var values []float64
		lack := name + " was not measured: no run came to its end"
		for _, m := range runs {
			if v, ok := m.Values[name]; ok {
				values = append(values, v)
			} else {
				lack = m.Lacks[name]
			}
		}
		if len(values) == 0 {
			return 0, errors.New(lack)
		}
		return spreadOf(values).Mean, nil
	}
}

// label returns the measure with its unit, where it is a time.
func (r *Result) label() string {
	switch field, _, _ := strings.Cut(r.Measure, "."); field {
	case "jct", "source", "latency", "allgather", "reduce-scatter":
		return r.Measure + " (us)"
	}
	return r.Measure
}
