// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/lab"
)

// DiffSchema names the format of diff --format json.
const DiffSchema = "mcastlab/diff/v1"

// Limits within which two runs count as equal.
const (
	ratioTolerance = 0.10    // of the ratio between schemes
	ratioFrom      = 1 << 20 // bytes: below, ratios are shown and not judged
)

// Diff is two runs of a lab side by side.
type Diff struct {
	Schema string     `json:"schema"`
	A      string     `json:"a"`
	B      string     `json:"b"`
	Rows   []DiffRow  `json:"rows"`
	Counts []DiffItem `json:"counts"` // counters that differ
	Parts  []string   `json:"parts"`  // where the runs differ, in words; empty: nowhere
}

// DiffRow is one scheme at one size in both runs.
type DiffRow struct {
	Workload  string  `json:"workload"`
	Scheme    string  `json:"scheme"`
	SizeBytes int     `json:"size_bytes"`
	A         float64 `json:"a_p50_us"`
	B         float64 `json:"b_p50_us"`
	RatioA    float64 `json:"a_ratio"` // to the first scheme of that size
	RatioB    float64 `json:"b_ratio"`
	OK        bool    `json:"ok"`
}

// DiffItem is a counter, summed over all nodes, that differs.
type DiffItem struct {
	Name string `json:"name"`
	A    uint64 `json:"a"`
	B    uint64 `json:"b"`
}

// Compare aligns two run folders: the rows, the bytes, the order of the schemes at each size, the
// ratios between them, and the counters of the nodes.
func Compare(dirA, dirB string) (*Diff, error) {
	var a, b Report
	if err := ReadJSON(filepath.Join(dirA, "summary.json"), &a); err != nil {
		return nil, err
	}
	if err := ReadJSON(filepath.Join(dirB, "summary.json"), &b); err != nil {
		return nil, err
	}
	d := &Diff{Schema: DiffSchema, A: dirA, B: dirB, Rows: []DiffRow{}, Counts: []DiffItem{}, Parts: []string{}}
	if a.Lab != b.Lab {
		d.part("the labs are %s and %s", a.Lab, b.Lab)
	}
	d.rows(a.Results, b.Results)
	d.order()
	var ca, cb counters.File
	errA, errB := ReadJSON(filepath.Join(dirA, "counters.json"), &ca), ReadJSON(filepath.Join(dirB, "counters.json"), &cb)
	if err := errors.Join(errA, errB); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if errA == nil && errB == nil {
		d.counts(ca.Nodes, cb.Nodes)
	}
	return d, nil
}

func (d *Diff) part(format string, args ...any) {
	d.Parts = append(d.Parts, fmt.Sprintf(format, args...))
}

func sameRow(a, b apps.Row) bool {
	return a.Workload == b.Workload && a.Scheme == b.Scheme && a.SizeBytes == b.SizeBytes
}

func (d *Diff) rows(a, b []apps.Row) {
	name := func(r apps.Row) string {
		return fmt.Sprintf("%s %s at %v", r.Workload, r.Scheme, lab.Size(r.SizeBytes))
	}
	base := func(rows []apps.Row, r apps.Row) float64 {
		i := slices.IndexFunc(rows, func(x apps.Row) bool { return x.Workload == r.Workload && x.SizeBytes == r.SizeBytes })
		return rows[i].JCT.P50
	}
	for _, r := range a {
		i := slices.IndexFunc(b, func(x apps.Row) bool { return sameRow(r, x) })
		if i < 0 {
			d.part("%s is in the first run only", name(r))
			continue
		}
		s := b[i]
		x := DiffRow{
			Workload: r.Workload, Scheme: r.Scheme, SizeBytes: r.SizeBytes, A: r.JCT.P50, B: s.JCT.P50,
			RatioA: r.JCT.P50 / base(a, r), RatioB: s.JCT.P50 / base(b, s), OK: true,
		}
		if off := x.RatioA/x.RatioB - 1; math.Abs(off) > ratioTolerance && r.SizeBytes >= ratioFrom {
			x.OK = false
			d.part("%s takes %.2f times as long as the first scheme in one run and %.2f times in the other", name(r), x.RatioA, x.RatioB)
		}
		if r.Iterations != s.Iterations || r.Ranks != s.Ranks {
			d.part("%s: %d iterations to %d ranks, and %d to %d", name(r), r.Iterations, r.Ranks, s.Iterations, s.Ranks)
		}
		if r.Verified != nil && s.Verified != nil && *r.Verified != *s.Verified {
			d.part("%s: the bytes are right in one run and not in the other", name(r))
		}
		d.Rows = append(d.Rows, x)
	}
	for _, r := range b {
		if !slices.ContainsFunc(a, func(x apps.Row) bool { return sameRow(r, x) }) {
			d.part("%s is in the second run only", name(r))
		}
	}
}

// order compares which scheme comes first, second and so on at each size. Schemes within
// the tolerance of each other have no order.
func (d *Diff) order() {
	for i, x := range d.Rows {
		for _, y := range d.Rows[i+1:] {
			if x.Workload != y.Workload || x.SizeBytes != y.SizeBytes {
				continue
			}
			if a, b := x.A/y.A, x.B/y.B; a < 1-ratioTolerance && b > 1+ratioTolerance || b < 1-ratioTolerance && a > 1+ratioTolerance {
				d.part("%s at %v: %s and %s change places", x.Workload, lab.Size(x.SizeBytes), x.Scheme, y.Scheme)
			}
		}
	}
}

// counts compares the counters, summed over all nodes.
func (d *Diff) counts(a, b []counters.Node) {
	sum := func(all []counters.Node) map[string]uint64 {
		m := map[string]uint64{}
		for _, n := range all {
			for k, v := range n.Counts { // a sum
				m[n.Kind+"."+k] += v
			}
			for k, v := range n.Drops { // a sum
				m[n.Kind+".drop."+k] += v
			}
		}
		return m
	}
	x, y := sum(a), sum(b)
	var names []string
	for k := range x { // sorted below
		names = append(names, k)
	}
	for k := range y { // sorted below
		if _, ok := x[k]; !ok {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	for _, k := range names {
		if x[k] != y[k] {
			d.Counts = append(d.Counts, DiffItem{k, x[k], y[k]})
		}
	}
}

// WriteTable writes the comparison for people.
func (d *Diff) WriteTable(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SCHEME\tSIZE\tA P50(us)\tB P50(us)\tB/A\tA RATIO\tB RATIO\t")
	for _, x := range d.Rows {
		mark := ""
		if !x.OK {
			mark = "<"
		}
		fmt.Fprintf(w, "%s\t%v\t%.2f\t%.2f\t%.3f\t%.3f\t%.3f\t%s\n", x.Scheme, lab.Size(x.SizeBytes), x.A, x.B, x.B/x.A, x.RatioA, x.RatioB, mark)
	}
	if len(d.Counts) > 0 {
		fmt.Fprintln(w, "\nCOUNT\tA\tB")
		for _, c := range d.Counts {
			fmt.Fprintf(w, "%s\t%d\t%d\n", c.Name, c.A, c.B)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	said := "The runs tell the same story."
	if len(d.Parts) > 0 {
		said = "The runs differ: " + strings.Join(d.Parts, "; ") + "."
	}
	_, err := fmt.Fprintf(out, "\n%s\n", said)
	return err
}
