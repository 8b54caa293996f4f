package runner

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/program"
	"github.com/mcastlab/mcastlab/lab"
)

// WriteTable writes the results as a table with the columns of the OSU benchmarks, what
// workloads print themselves, the expectations, and a sentence that says what the table
// shows.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	sized := slices.DeleteFunc(slices.Clone(r.Results), func(x apps.Row) bool { return x.Solve != nil || x.IO != nil })
	if len(sized) > 0 {
		writeRows(&b, sized)
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
	b.WriteString(beside(sized))
	compared := slices.DeleteFunc(sized, func(x apps.Row) bool { return x.Payload == program.Payload })
	if s := sentences(compared); s != "" {
		b.WriteString(s + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
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

// writeRows aligns all columns to the right, with an empty line between schemes. A
// column for the workload is there if there is more than one.
func writeRows(b *strings.Builder, rows []apps.Row) {
	head := []string{"# Scheme", "Size", "Avg(us)", "Min(us)", "Max(us)", "P50(us)", "P99(us)", "Source(us)", "Iterations", "Verified", "Latency(us)", "Gb/s",
		"Allgather(us)", "Reduce-scatter(us)"}
	workloads, p99, spread, overlap := false, false, false, false
	for _, r := range rows {
		workloads = workloads || r.Workload != rows[0].Workload
		p99 = p99 || r.JCT.P99 != nil
		spread = spread || r.Spread != nil
		overlap = overlap || r.Overlap != nil
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
	for _, part := range []struct { // from the right
		shown    bool
		from, to int
	}{{overlap, 12, 14}, {spread, 10, 12}, {p99, 6, 7}} {
		if part.shown {
			continue
		}
		head = slices.Delete(head, part.from, part.to)
		for i := range cells {
			cells[i] = slices.Delete(cells[i], part.from, part.to)
		}
	}
	width := make([]int, len(head))
	for _, line := range append([][]string{head}, cells...) {
		for i, c := range line {
			width[i] = max(width[i], len(c)+2)
		}
	}
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

func rowCells(r apps.Row) []string {
	us := func(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
	p99 := "-"
	if r.JCT.P99 != nil {
		p99 = us(*r.JCT.P99)
	}
	verified := "no: phantom"
	if r.Payload == program.Payload {
		verified = "-"
	}
	if r.Verified != nil {
		verified = "WRONG"
		if *r.Verified {
			verified = "yes (" + r.Payload + ")"
		}
	}
	latency, goodput := "-", "-"
	if r.Spread != nil {
		latency, goodput = us(r.Spread.Latency.Avg), us(r.Spread.Goodput.Avg)
	}
	gathered, reduced := "-", "-"
	if r.Overlap != nil {
		gathered, reduced = us(r.Overlap.Gathered.Avg), us(r.Overlap.Reduced.Avg)
	}
	return []string{
		r.Scheme, lab.Size(r.SizeBytes).String(), us(r.JCT.Avg), us(r.JCT.Min), us(r.JCT.Max), us(r.JCT.P50), p99,
		us(r.Source.Avg), strconv.Itoa(r.Iterations), verified, latency, goodput, gathered, reduced,
	}
}

// WriteCSV writes the results with a line of column names; what is null is empty.
func (r *Report) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	head := []string{"workload", "scheme", "size_bytes", "ranks", "iterations", "payload"}
	for _, of := range []string{"jct", "source"} {
		for _, s := range []string{"avg", "min", "max", "p50", "p99"} {
			head = append(head, of+"_"+s+"_us")
		}
	}
	// A csv.Writer keeps its first error for Error.
	_ = c.Write(append(head, "verified", "fidelity", "sources", "members", "latency_avg_us", "goodput_avg_gbps", "allgather_avg_us", "reduce_scatter_avg_us"))
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
		if s := x.Spread; s != nil {
			line = append(line, strconv.Itoa(s.Sources), strconv.Itoa(s.Members), optional(&s.Latency.Avg), optional(&s.Goodput.Avg))
		} else {
			line = append(line, "", "", "", "")
		}
		if o := x.Overlap; o != nil {
			line = append(line, optional(&o.Gathered.Avg), optional(&o.Reduced.Avg))
		} else {
			line = append(line, "", "")
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
