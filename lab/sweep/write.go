// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"encoding/csv"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// write writes the result into the sweep's folder: plots, the table and the CSV, and sweep.json last, so that a folder
// with it is complete.
func (r *Result) write() error {
	for _, p := range r.pictures() {
		name := filepath.Join(r.Dir, p.name)
		if err := runner.WritePlot(name, &p.Picture); err != nil {
			return err
		}
		r.Plots = append(r.Plots, name+".svg")
	}
	for name, text := range map[string]func(io.Writer) error{"sweep.txt": r.WriteTable, "sweep.csv": r.WriteCSV} {
		var b strings.Builder
		if err := text(&b); err != nil {
			return err
		}
		if err := runner.WriteFile(filepath.Join(r.Dir, name), []byte(b.String())); err != nil {
			return err
		}
	}
	return runner.WriteJSON(filepath.Join(r.Dir, "sweep.json"), r)
}

// WriteCSV writes a line for each row at each point. A column that has no value is empty.
func (r *Result) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	var head []string
	for i := range r.Keys {
		head = append(head, r.Keys[i].Name)
	}
	// A csv.Writer keeps its first error for Error.
	_ = c.Write(append(head, lab.SweepColumns()...))
	for i := range r.Rows {
		x := &r.Rows[i]
		line := append([]string{}, r.Points[x.Point].Values...)
		line = append(line, x.Workload, x.Scheme, strconv.Itoa(x.Size), r.Measure, strconv.Itoa(len(x.Values)), decimal(x.Mean))
		if x.Half == nil {
			line = append(line, "", "", "")
		} else {
			line = append(line, decimal(x.Mean-*x.Half), decimal(x.Mean+*x.Half), decimal(*x.Deviation))
		}
		_ = c.Write(append(line, decimal(x.Min), decimal(x.Max)))
	}
	c.Flush()
	return c.Error()
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', 6, 64) }

// WriteTable writes the rows as a table, and the outcome of each line of expect.
func (r *Result) WriteTable(w io.Writer) error {
	var b strings.Builder
	r.writeRows(&b)
	for _, line := range r.expectations() {
		b.WriteString(line + "\n")
	}
	runs := len(r.Points) * r.Repeats
	fmt.Fprintf(&b, "%d points, %d runs.", len(r.Points), runs)
	if r.Repeats > 1 {
		b.WriteString(" An interval holds the mean over all seeds with a confidence of 95 % (Student's t).")
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// writeRows aligns all columns to the right. A column for the workload is there if there is more than one, and one for
// intervals if points are repeated.
func (r *Result) writeRows(b *strings.Builder) {
	workloads := false
	for i := range r.Rows {
		workloads = workloads || r.Rows[i].Workload != r.Rows[0].Workload
	}
	var head []string
	for i := range r.Keys {
		head = append(head, r.Keys[i].Name)
	}
	scheme := "Scheme"
	if workloads {
		scheme = "Workload.Scheme"
	}
	head = append(head, scheme, "Size", r.label())
	if r.Repeats > 1 {
		head = append(head, "+- 95 %", "Runs")
	}
	lines := [][]string{head}
	for i := range r.Rows {
		x := &r.Rows[i]
		line := append([]string{}, r.Points[x.Point].Values...)
		if workloads {
			line = append(line, x.Workload+"."+x.Scheme)
		} else {
			line = append(line, x.Scheme)
		}
		line = append(line, lab.Size(x.Size).String(), strconv.FormatFloat(x.Mean, 'f', 2, 64))
		if r.Repeats > 1 {
			half := "-"
			if x.Half != nil {
				half = strconv.FormatFloat(*x.Half, 'f', 2, 64)
			}
			line = append(line, half, strconv.Itoa(len(x.Values)))
		}
		lines = append(lines, line)
	}
	width := make([]int, len(head))
	for _, line := range lines {
		for k, c := range line {
			width[k] = max(width[k], len(c))
		}
	}
	for _, line := range lines {
		for k, c := range line {
			if k > 0 {
				b.WriteString("  ")
			}
			fmt.Fprintf(b, "%*s", width[k], c)
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
}

// expectations returns a line for each line of expect: the number of points at which it holds, and the
// points at which it does not.
func (r *Result) expectations() (lines []string) {
	if len(r.Points) == 0 {
		return nil
	}
	for k := range r.Points[0].Expect {
		var not []string
		for i := range r.Points {
			if !r.Points[i].Expect[k].OK {
				not = append(not, r.name(i))
			}
		}
		text := r.Points[0].Expect[k].Text
		switch {
		case len(not) == 0 && len(r.Points) == 1:
			lines = append(lines, "[PASS] "+text)
		case len(not) == 0:
			lines = append(lines, fmt.Sprintf("[PASS] %s (at all %d points)", text, len(r.Points)))
		case len(r.Points) == 1:
			lines = append(lines, "[FAIL] "+text)
		default:
			lines = append(lines, fmt.Sprintf("[FAIL] %s (at %d of %d points: %s)", text, len(not), len(r.Points), strings.Join(not, "; ")))
		}
	}
	return lines
}

// name names a point, as lab.Point does.
func (r *Result) name(i int) string {
	words := make([]string, len(r.Keys))
	for k := range r.Keys {
		words[k] = r.Keys[k].Name + "=" + r.Points[i].Values[k]
	}
	return strings.Join(words, ", ")
}
