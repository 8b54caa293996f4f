// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/registry"
	"github.com/mcastlab/mcastlab/lab"
)

// WriteTable writes the results as a table with the columns of the OSU benchmarks, the workloads' own
// output, the expectations, and a sentence that summarises the table.
func (r *Report) WriteTable(w io.Writer) error { return r.WriteTableFor(w, 0) }

// WriteTableFor is WriteTable for a terminal of so many columns, 0 for any: a table that is wider lacks the columns that are asked
// for least, and says which.
func (r *Report) WriteTableFor(w io.Writer, columns int) error {
	var b strings.Builder
	sized := r.tabled()
	if len(sized) > 0 {
		writeRows(&b, sized, columns)
		b.WriteByte('\n')
	}
	for _, t := range r.Texts {
		b.WriteString(t + "\n")
	}
	for _, e := range r.Expect {
		mark := "FAIL"
		if e.OK {
			mark = "PASS"
		}
		fmt.Fprintf(&b, "[%s] %s\n", mark, e.Text)
	}
	if slices.ContainsFunc(r.Expect, func(e Expectation) bool { return e.Basis != "" }) {
		b.WriteString("PRED was predicted. CAL holds because a parameter of the lab was chosen so: it reproduces nothing.\n")
	}
	if len(r.Expect) > 0 {
		b.WriteByte('\n')
	}
	r.Fidelity.write(&b)
	if n := unclaimed(sized); n != "" {
		fmt.Fprintf(&b, "Times with %s are not claimed (external).\n", n)
	}
	for _, s := range r.Remarks {
		b.WriteString(s + "\n")
	}
	b.WriteString(beside(sized))
	for _, line := range r.Answer() {
		b.WriteString(line + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// tabled returns the rows of the table: workloads with output of their own have none.
func (r *Report) tabled() []apps.Row {
	return slices.DeleteFunc(slices.Clone(r.Results), func(x apps.Row) bool { _, own := x.Details.(apps.Untabled); return own })
}

// Answer returns the result of the run in lines: how the schemes compare, and what the slowest iterations met.
func (r *Report) Answer() (lines []string) {
	compared := slices.DeleteFunc(r.tabled(), func(x apps.Row) bool { return x.Payload == apps.PayloadOwn })
	if s := sentences(compared); s != "" {
		lines = strings.Split(s, "\n")
	}
	for i := range r.Outliers {
		lines = append(lines, r.Outliers[i].String())
	}
	if len(compared) > 1 && r.byHand() {
		lines = append(lines, "Faults were added or removed by hand: rows may have met different faults.")
	}
	return lines
}

// unclaimed names the external hosts among the ranks.
func unclaimed(rows []apps.Row) string {
	var names []string
	for _, r := range rows {
		for _, n := range r.External {
			if !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	return strings.Join(names, ", ")
}

// writeRows aligns all columns to the right, with an empty line between schemes. It leaves out the workload if there is one, and
// the statistics if each row has one iteration.
func writeRows(b *strings.Builder, rows []apps.Row, columns int) {
	head := []string{"# Scheme", "Size", "Avg(us)", "Min(us)", "Max(us)", "P50(us)", "P99(us)", "Source(us)", "Iter", "Verified"}
	workloads, p99, several := false, false, false
	for _, r := range rows {
		several = several || r.Iterations > 1
		workloads = workloads || r.Workload != rows[0].Workload || apps.DetailsOf[apps.Exits](r) != nil && r.Workload != r.Scheme // a label
		p99 = p99 || r.JCT.P99 != nil
	}
	cells := [][]string{}
	for _, r := range rows {
		cells = append(cells, rowCells(r))
	}
	if workloads {
		head[0] = "# Workload.Scheme"
		for i, r := range rows {
			cells[i][0] = r.Workload + "." + r.Scheme
		}
	}
	remove := func(from, to int) {
		head = slices.Delete(head, from, to)
		for i := range cells {
			cells[i] = slices.Delete(cells[i], from, to)
		}
	}
	if !several {
		remove(8, 9) // Iter
	}
	if !p99 {
		remove(6, 7)
	}
	if !several { // Min, Max and P50 are Avg
		remove(3, 6)
		head[2] = "Time(us)"
	}
	for _, of := range registry.Columned() {
		if !slices.ContainsFunc(rows, func(r apps.Row) bool { return columnsOf(r, of) != nil }) {
			continue
		}
		own, _ := of.Columns()
		for _, c := range own {
			head = append(head, c.Head)
		}
		for i, r := range rows {
			if d := columnsOf(r, of); d != nil {
				own, _ = d.Columns()
			} else {
				own = slices.Repeat([]apps.Column{{Cell: "-"}}, len(own))
			}
			for _, c := range own {
				cells[i] = append(cells[i], c.Cell)
			}
		}
	}
	if slices.ContainsFunc(rows, func(r apps.Row) bool { return len(r.Faults) > 0 }) {
		head = append(head, "Faults")
		for i := range rows {
			cells[i] = append(cells[i], faultCell(&rows[i]))
		}
	}
	head, cells, left := fit(head, cells, columns)
	align(b, head, cells)
	if len(left) > 0 {
		fmt.Fprintf(b, "(%d columns have no room for %s: see summary.json)\n", columns, strings.Join(left, ", "))
	}
}

// fit removes the columns that are asked for least from a table that is wider than a terminal, and returns their names. A terminal of 0
// columns has room for all.
func fit(head []string, cells [][]string, columns int) (fitting []string, rows [][]string, left []string) {
	for _, name := range []string{"Source(us)", "Iter", "Min(us)", "P99(us)", "Avg(us)"} {
		k := slices.Index(head, name)
		if k < 0 || columns == 0 || sumOf(widths(head, cells)) <= columns {
			continue
		}
		head = slices.Delete(head, k, k+1)
		for i := range cells {
			cells[i] = slices.Delete(cells[i], k, k+1)
		}
		left = append(left, name)
	}
	return head, cells, left
}

// widths returns the widths of aligned columns.
func widths(head []string, cells [][]string) []int {
	width := make([]int, len(head))
	for _, line := range append([][]string{head}, cells...) {
		for i, c := range line {
			width[i] = max(width[i], len(c)+2)
		}
	}
	return width
}

func sumOf(all []int) (n int) {
	for _, v := range all {
		n += v
	}
	return n
}

// align writes lines of cells, with an empty line where the first cell changes.
func align(b *strings.Builder, head []string, cells [][]string) {
	width := widths(head, cells)
	for i, line := range append([][]string{head}, cells...) {
		if i > 1 && cells[i-1][0] != cells[i-2][0] {
			b.WriteByte('\n')
		}
		for k, c := range line {
			fmt.Fprintf(b, "%*s", width[k], c)
		}
		b.WriteByte('\n')
	}
}

// columnsOf returns the row's details if they have the columns of, else nil.
func columnsOf(r apps.Row, of apps.Columned) apps.Columned {
	if d, ok := r.Details.(apps.Columned); ok && d.Key() == of.Key() {
		return d
	}
	return nil
}

func rowCells(r apps.Row) []string {
	us := func(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
	p99 := "-"
	if r.JCT.P99 != nil {
		p99 = us(*r.JCT.P99)
	}
	verified := "no: phantom"
	if r.Payload == apps.PayloadOwn {
		verified = "-"
	}
	if r.Verified != nil {
		verified = "WRONG"
		if *r.Verified {
			verified = "yes (" + r.Payload + ")"
		} else if len(r.Unconfirmed) > 0 {
			verified = "NOT KNOWN"
		}
	}
	size := lab.Size(r.SizeBytes).String()
	if e := apps.DetailsOf[apps.Exits](r); e != nil { // a program of the user has neither a size nor bytes that can be checked
		size, verified = "-", e.Outcome()
	}
	return []string{
		r.Scheme, size, us(r.JCT.Avg), us(r.JCT.Min), us(r.JCT.Max), us(r.JCT.P50), p99,
		us(r.Source.Avg), strconv.Itoa(r.Iterations), verified,
	}
}

// WriteCSV writes the results with a line of column names; a null value is empty.
func (r *Report) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	head := []string{"workload", "scheme", "size_bytes", "ranks", "iterations", "payload"}
	for _, of := range []string{"jct", "source"} {
		for _, s := range []string{"avg", "min", "max", "p50", "p99"} {
			head = append(head, of+"_"+s+"_us")
		}
	}
	head = append(head, "verified", "fidelity")
	for _, of := range registry.Columned() {
		_, own := of.Columns()
		for _, k := range own {
			head = append(head, k.Head)
		}
	}
	// A csv.Writer keeps its first error for Error.
	_ = c.Write(head)
	for _, x := range r.Results {
		line := []string{x.Workload, x.Scheme, strconv.Itoa(x.SizeBytes), strconv.Itoa(x.Ranks), strconv.Itoa(x.Iterations), x.Payload}
		for _, s := range []apps.Summary{x.JCT, x.Source} {
			for _, v := range []*float64{&s.Avg, &s.Min, &s.Max, &s.P50, s.P99} {
				line = append(line, optional(v))
			}
		}
		verified := ""
		if x.Verified != nil {
			verified = strconv.FormatBool(*x.Verified)
		}
		line = append(line, verified, r.Fidelity.of(x))
		for _, of := range registry.Columned() {
			_, own := of.Columns()
			if d := columnsOf(x, of); d != nil {
				_, own = d.Columns()
			} else {
				own = make([]apps.Column, len(own))
			}
			for _, k := range own {
				line = append(line, k.Cell)
			}
		}
		_ = c.Write(line)
	}
	c.Flush()
	return c.Error()
}

func optional(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'f', 6, 64)
}
