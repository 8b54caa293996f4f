// SPDX-License-Identifier: Apache-2.0

// Package sweep runs a lab at all points of its sweep, in the simulator, and writes the result of each point: a table
// with confidence intervals, the same as CSV and JSON, and plots.
package sweep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/batch"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// Options select the runs of a sweep and the place of its files.
type Options struct {
	Base   string // the sweep's folder is made there
	Resume string // or the folder of an interrupted run of the same sweep, in which it resumes
	Jobs   int    // runs at a time
	Say    func(format string, args ...any)
	Run    runner.Options // of each run; its Base is not used
}

// What the folder of a sweep has beside its results.
const (
	pointsFolder   = "points"   // the lab of each point, which can be run by itself
	measuredFolder = "measured" // the results of each run, for a sweep that is resumed
)

// measured holds the results of one run.
type measured struct {
	Key      string             `json:"key"` // of the program, the lab, and the questions
	Digest   string             `json:"digest"`
	Wall     float64            `json:"wall_s"`
	Rows     []value            `json:"rows"`
	Values   map[string]float64 `json:"values"`          // quantities that lines of expect name
	Lacks    map[string]string  `json:"lacks,omitempty"` // why they have no value
	Failures []string           `json:"failures,omitempty"`
}

// value is the compared result in a row of a run. Without a value, Lack is the reason.
type value struct {
	Workload string   `json:"workload"`
	Scheme   string   `json:"scheme"`
	Size     int      `json:"size_bytes"`
	Value    *float64 `json:"value"`
	Lack     string   `json:"lack,omitempty"`
}

// job is a run of a point.
type job struct {
	point, repeat int // from 0
	lab           lab.Lab
}

// Seed returns the seed of a repeat: the lab's own first, then seeds that are derived from it. All points have the
// same ones, so that differences between them are not chance.
func Seed(seed uint64, repeat int) uint64 {
	if repeat == 0 {
		return seed
	}
	root := prng.New(seed)
	r := root.Derive("repeat " + strconv.Itoa(repeat))
	return r.Uint64()
}

// Folder reports whether a folder is that of a sweep.
func Folder(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, pointsFolder))
	return err == nil && info.IsDir()
}

// Run runs all points of a lab's sweep. A failure at a point is in the result, beside the others; an error means
// that there is no result, for example because ctx ended: then the folder holds the measurements so far.
func Run(ctx context.Context, l *lab.Lab, points []lab.Point, o Options) (*Result, error) {
	dir, program, err := begin(l, points, o)
	if err != nil {
		return nil, err
	}
	all := make([]job, 0, len(points)*l.Sweep.Repeats)
	list := make([]batch.Job, 0, cap(all))
	for i := range points {
		for k := range l.Sweep.Repeats {
			j := job{point: i, repeat: k, lab: *points[i].Lab}
			j.lab.Seed = Seed(j.lab.Seed, k)
			all = append(all, j)
			list = append(list, batch.Job{Name: runName(points[i].String(), k, l.Sweep.Repeats), Takes: 1})
		}
	}
	names, err := asked(l.Expect)
	if err != nil {
		return nil, err
	}
	shown, failed := make([]*measured, len(all)), make([]error, len(all))
	err = batch.Run(ctx, list, o.Jobs, o.Say, func(ctx context.Context, i int) (batch.Done, error) {
		m, again, err := measure(ctx, &all[i], question{dir: dir, program: program, measure: l.Sweep.Measure, names: names, run: o.Run})
		shown[i], failed[i] = m, err
		if err != nil {
			return batch.Done{}, err
		}
		return batch.Done{Wall: m.Wall, Again: again}, nil
	})
	if ctx.Err() != nil {
		return nil, fmt.Errorf("the sweep stopped; --resume %s continues it: %w", dir, err)
	}
	r := gather(l, points, all, shown, failed)
	r.Dir = dir
	return r, r.write()
}

// runName names a run for messages.
func runName(point string, repeat, repeats int) string {
	switch run := fmt.Sprintf("run %d", repeat+1); {
	case repeats == 1:
		return point
	case point == "":
		return run
	default:
		return point + ", " + run
	}
}

// begin makes the folder of a sweep, or checks the one in which it resumes.
func begin(l *lab.Lab, points []lab.Point, o Options) (dir, program string, err error) {
	if program, err = batch.Fingerprint(); err != nil {
		return "", "", err
	}
	dir = o.Resume
	if dir != "" {
		if err := same(dir, points); err != nil {
			return "", "", err
		}
		left, err := filepath.Glob(filepath.Join(dir, "run-*")) // of runs that were killed
		for _, name := range left {
			err = errors.Join(err, os.RemoveAll(name))
		}
		if err != nil {
			return "", "", fmt.Errorf("remove what killed runs have left: %w", err)
		}
	} else {
		if dir, err = runner.NewFolder(o.Base, l.Name); err != nil {
			return "", "", err
		}
	}
	for _, name := range []string{pointsFolder, measuredFolder} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return "", "", fmt.Errorf("make the folder of the sweep: %w", err)
		}
	}
	for i := range points {
		if err := runner.WriteFile(pointFile(dir, i), points[i].Lab.Compact()); err != nil {
			return "", "", err
		}
	}
	return dir, program, nil
}

// same refuses a folder that has points of another sweep.
func same(dir string, points []lab.Point) error {
	known := map[string][]byte{}
	for i := range points {
		known[filepath.Base(pointFile(dir, i))] = points[i].Lab.Compact()
	}
	found, err := os.ReadDir(filepath.Join(dir, pointsFolder))
	if err != nil {
		return fmt.Errorf("read the points of the sweep: %w", err)
	}
	for _, f := range found {
		text, err := os.ReadFile(filepath.Join(dir, pointsFolder, f.Name()))
		if err != nil {
			return fmt.Errorf("read the points of the sweep: %w", err)
		}
		if want, ok := known[f.Name()]; strings.HasSuffix(f.Name(), ".yml") && (!ok || !bytes.Equal(text, want)) {
			return fmt.Errorf("%s is the folder of another sweep than the lab and the command line have now: leave --resume out", dir)
		}
	}
	return nil
}

func pointFile(dir string, i int) string {
	return filepath.Join(dir, pointsFolder, fmt.Sprintf("%03d.mcl.yml", i+1))
}

// asked returns the quantities that lines of expect name.
func asked(lines []string) (names []string, err error) {
	for _, text := range lines {
		e, err := lab.ParseExpect(text)
		if err != nil {
			return nil, err
		}
		_, _, _ = e.Eval(func(name string) (float64, error) { // it is not about the value
			names = append(names, name)
			return 1, nil
		})
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// question lists the quantities that each run must have.
type question struct {
	dir, program, measure string
	names                 []string
	run                   runner.Options
}

// measure runs a point once, or reads its earlier results: again.
func measure(ctx context.Context, j *job, q question) (m *measured, again bool, err error) {
	name := fmt.Sprintf("%03d-%d", j.point+1, j.repeat+1)
	file := filepath.Join(q.dir, measuredFolder, name+".json")
	m = &measured{Key: batch.Key(q.program, j.lab.Compact(), append([]string{q.measure}, q.names...)), Values: map[string]float64{}, Lacks: map[string]string{}}
	if old := batch.Recall(file, func(x *measured) bool { return x.Key == m.Key }); old != nil {
		return old, true, nil
	}
	begin := time.Now()
	report, err := batch.Simulate(ctx, &j.lab, filepath.Join(q.dir, "run-"+name), q.run)
	if err != nil {
		return nil, false, err
	}
	m.Digest, m.Wall, m.Failures = report.Digest, time.Since(begin).Seconds(), report.Failures()
	m.Failures = slices.DeleteFunc(m.Failures, func(line string) bool { // lines of expect are about all runs of a point
		return slices.ContainsFunc(report.Expect, func(e runner.Expectation) bool { return e.Failure() == line })
	})
	for i := range report.Results {
		row := &report.Results[i]
		v := value{Workload: row.Workload, Scheme: row.Scheme, Size: row.SizeBytes}
		got, err := finite(report.Quantity(fmt.Sprintf("%s.%s.%v.%s", row.Workload, row.Scheme, lab.Size(row.SizeBytes), q.measure)))
		if err != nil {
			v.Lack = err.Error()
		} else {
			v.Value = &got
		}
		m.Rows = append(m.Rows, v)
	}
	for _, name := range q.names {
		if v, err := finite(report.Quantity(name)); err != nil {
			m.Lacks[name] = err.Error()
		} else {
			m.Values[name] = v
		}
	}
	return m, false, runner.WriteJSON(file, m)
}

// finite refuses values that no JSON has.
func finite(v float64, err error) (float64, error) {
	if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
		err = errors.New("it divides by 0")
	}
	return v, err
}
