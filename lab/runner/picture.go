// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/flows"
	"github.com/mcastlab/mcastlab/internal/plot"
	"github.com/mcastlab/mcastlab/lab"
)

// Axes returns the schemes and the sizes of rows, the schemes in their order and the sizes from small to large.
func Axes(rows []apps.Row) (schemes []string, sizes []int) {
	for i := range rows {
		if !slices.Contains(schemes, rows[i].Scheme) {
			schemes = append(schemes, rows[i].Scheme)
		}
		if !slices.Contains(sizes, rows[i].SizeBytes) {
			sizes = append(sizes, rows[i].SizeBytes)
		}
	}
	slices.Sort(sizes)
	return schemes, sizes
}

// Median returns the median JCT of a scheme at a size in microseconds, or NaN.
func Median(rows []apps.Row, scheme string, size int) float64 {
	for i := range rows {
		if rows[i].Scheme == scheme && rows[i].SizeBytes == size {
			return rows[i].JCT.P50
		}
	}
	return math.NaN()
}

// Picture draws the median JCT of a workload's rows by scheme: over sizes if there are several, else as bars. Of flows it
// draws the throughput over time.
func Picture(workload string, rows []apps.Row) plot.Picture {
	if p, ok := rates(workload, rows); ok {
		return p
	}
	schemes, sizes := Axes(rows)
	p := plot.Picture{Title: workload + ": time until the last receiver has the message", Y: "JCT in us"}
	if slices.ContainsFunc(rows, func(r apps.Row) bool { return r.Iterations > 1 }) {
		p.Title, p.Y = workload+": median time until the last receiver has the message", "median JCT in us"
	}
	if len(sizes) == 1 {
		p.Title, p.X, p.Bars, p.At = fmt.Sprintf("%s, %v", p.Title, lab.Size(sizes[0])), "scheme", true, schemes
		s := plot.Series{Name: strings.TrimSuffix(p.Y, " in us")}
		for _, scheme := range schemes {
			s.Ys = append(s.Ys, Median(rows, scheme, sizes[0]))
		}
		p.Series = []plot.Series{s}
		return p
	}
	p.X, p.LogY, p.LogX = "message size", true, sizes[0] > 0
	for _, size := range sizes {
		p.At, p.Xs = append(p.At, lab.Size(size).String()), append(p.Xs, float64(size))
	}
	if !p.LogX {
		p.Xs, p.LogX = plot.Positions(p.Xs)
	}
	for _, scheme := range schemes {
		s := plot.Series{Name: scheme}
		for _, size := range sizes {
			s.Ys = append(s.Ys, Median(rows, scheme, size))
		}
		p.Series = append(p.Series, s)
	}
	return p
}

// rates draws the throughput of flows over time: a point stands at the end of its interval. ok is false if the rows are
// not of flows.
func rates(workload string, rows []apps.Row) (p plot.Picture, ok bool) {
	p = plot.Picture{Title: workload + ": throughput of each flow", X: "time in ms", Y: "Gb/s"}
	for i := range rows {
		c := apps.DetailsOf[flows.Course](rows[i])
		if c == nil {
			return p, false
		}
		for k := len(p.Xs); k < len(c.Rates); k++ {
			ms := float64(k+1) * c.IntervalUS / 1000
			p.At, p.Xs = append(p.At, strconv.FormatFloat(ms, 'g', 12, 64)), append(p.Xs, ms) // 0.0006, not 0.0006000000000000001
		}
		p.Series = append(p.Series, plot.Series{Name: rows[i].Scheme, Ys: slices.Clone(c.Rates)})
	}
	for i := range p.Series {
		for len(p.Series[i].Ys) < len(p.Xs) { // the flow had ended
			p.Series[i].Ys = append(p.Series[i].Ys, 0)
		}
	}
	return p, len(p.Xs) > 0
}

// plots draws the JCT of every broadcast with several sizes and the throughput of flows into the run's folder, as a
// picture and its points, and notes the pictures in the report.
func (r *Record) plots(l *lab.Lab) error {
	for i := range l.Workloads {
		w := &l.Workloads[i]
		rows := slices.DeleteFunc(slices.Clone(r.Report.Results), func(x apps.Row) bool { return x.Workload != w.Label() })
		prefix := ""
		switch _, sizes := Axes(rows); w.Chosen().Name {
		case "bcast":
			if len(sizes) > 1 {
				prefix = "jct-"
			}
		case flows.Name:
			if len(rows) > 0 {
				prefix = "rates-"
			}
		}
		if prefix == "" {
			continue
		}
		p, name := Picture(w.Label(), rows), prefix+w.Label()
		if err := errors.Join(r.Folder.WriteFile(name+".csv", []byte(p.CSV())), r.Folder.WriteFile(name+".svg", []byte(p.SVG()))); err != nil {
			return err
		}
		r.Report.Plots = append(r.Report.Plots, filepath.Join(r.Report.RunDir, name+".svg"))
	}
	return nil
}

// WritePlot writes a picture, name.svg, and its points, name.csv.
func WritePlot(name string, p *plot.Picture) error {
	if err := WriteFile(name+".csv", []byte(p.CSV())); err != nil {
		return err
	}
	return WriteFile(name+".svg", []byte(p.SVG()))
}
