// SPDX-License-Identifier: Apache-2.0

package reproduce

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/lab/sweep"
)

// The ends of a quantity's confidence interval.
const (
	lowEnd  = "low"
	highEnd = "high"
)

// Interval is a confidence interval of a mean over seeds.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// end returns the end of an interval that is called low or high.
func (i Interval) end(name string) float64 {
	if name == lowEnd {
		return i.Low
	}
	return i.High
}

// overSeeds runs a lab that repeats itself with other seeds, and fills in its measurements: means, and the
// confidence interval of a quantity that is an expression by itself. It resumes an interrupted run.
func (m *Measured) overSeeds(ctx context.Context, l *lab.Lab, points []lab.Point, exprs []string, o Options) error {
	if len(points) != 1 {
		return fmt.Errorf("a result takes repeats of one point, and the sweep has %d", len(points))
	}
	base := filepath.Join(o.Dir, "seeds-"+m.Lab+"-"+m.Key)
	so := sweep.Options{Base: base, Jobs: o.Jobs, Say: o.Say, Run: runner.Options{Env: apps.Env{}}}
	if left := filepath.Join(base, l.Name+"-1"); sweep.Folder(left) {
		so.Resume = left
	}
	r, err := sweep.Run(ctx, l, points, so)
	if err != nil {
		return err
	}
	m.Intervals, m.Failures = map[string]Interval{}, r.Failures
	digests := make([]string, len(r.Points[0].Runs))
	for i, run := range r.Points[0].Runs {
		digests[i] = run.Digest
	}
	m.Digest = strings.Join(digests, " ")
	rows := map[string]*sweep.Row{}
	for i := range r.Rows {
		row := &r.Rows[i]
		rows[fmt.Sprintf("%s.%s.%v.%s", row.Workload, row.Scheme, lab.Size(row.Size), r.Measure)] = row
	}
	err = m.evaluate(exprs, func(name string) (float64, error) {
		if row := rows[name]; row != nil && len(row.Values) == r.Repeats {
			return row.Mean, nil
		}
		return 0, fmt.Errorf("%s: the sweep compares %s, and not every run of it has that", name, r.Measure)
	})
	if err != nil {
		return err
	}
	for _, text := range exprs {
		if row := rows[text]; row != nil && row.Half != nil {
			m.Intervals[text] = Interval{row.Mean - *row.Half, row.Mean + *row.Half}
		}
	}
	return os.RemoveAll(base)
}

// endOf returns the end of a quantity's interval.
func (m *Measured) endOf(q Quantity) (float64, error) {
	i, ok := m.Intervals[q.Value]
	if !ok {
		return 0, errors.New("it has no confidence interval: its lab has a sweep with repeats, and the quantity stands alone")
	}
	return i.end(q.End), nil
}
