// SPDX-License-Identifier: Apache-2.0

// Package report shows runs as pages: one file each, which needs no other and no script.
package report

import (
	"errors"
	"fmt"
	"html"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/plot"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/traces/explain"
)

// Run is a run as its folder has it.
type Run struct {
	Dir    string
	Meta   runner.Meta
	Report runner.Report

	fabric    *fabric  // nil: its files do not have it
	history   *history // nil: likewise
	trace     *explain.Trace
	explained *explain.Table
	missing   []string // parts of the run that are not shown, each with the reason
}

// traceMax bounds the trace that a page explains: it is read whole.
const traceMax = 64 << 20

// Read reads a run's folder. A run that is still running, or was killed, has no summary yet, as its page
// notes.
func Read(dir string) (*Run, error) { return read(dir, nil) }

// Ended reads the folder of a run that has ended in this process, except the nodes' counters, which take longest to read of a large lab
// and are at hand.
func Ended(r *runner.Report) (*Run, error) { return read(r.RunDir, r.Nodes) }

func read(dir string, nodes []counters.Node) (*Run, error) {
	r := &Run{Dir: dir}
	if err := runner.ReadJSON(filepath.Join(dir, "meta.json"), &r.Meta); err != nil {
		return nil, err
	}
	if r.Meta.Schema != runner.MetaSchema {
		return nil, fmt.Errorf("%s/meta.json has schema %q, and this program reads %q", dir, r.Meta.Schema, runner.MetaSchema)
	}
	if err := runner.ReadJSON(filepath.Join(dir, "summary.json"), &r.Report); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	r.readMore(nodes)
	return r, nil
}

// Missing returns the parts of the run that are not shown, each with the reason.
func (r *Run) Missing() []string { return r.missing }

// readMore reads the files that not every run has. The page names those that cannot be read.
func (r *Run) readMore(nodes []counters.Node) {
	lacks := func(what string, err error) bool {
		if err != nil {
			r.missing = append(r.missing, fmt.Sprintf("%s: %v", what, err))
		}
		return err != nil
	}
	var err error
	if r.fabric, err = readFabric(r.Dir, &r.Meta, r.Report.Acts, nodes); lacks("links and switches", err) {
		r.fabric = nil
		return
	}
	h := newHistory(r.Meta.LabUS)
	if lacks("what happened over time", r.fabric.readEvents(r.Dir, h)) {
		return
	}
	r.history = h
	name := filepath.Join(r.Dir, runner.TraceFile)
	switch st, err := os.Stat(name); {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err == nil && st.Size() > traceMax:
		err = fmt.Errorf("the trace has %d MiB, mcastlab trace --explain reads it", st.Size()>>20)
		fallthrough
	default:
		if lacks("the trace", err) {
			return
		}
	}
	if lacks("the trace", r.fabric.readArrivals(r.Dir, h)) {
		return
	}
	f, err := os.Open(name)
	if lacks("the trace", err) {
		return
	}
	defer f.Close() //nolint:errcheck // it was only read
	if r.trace, err = explain.Read(f); !lacks("the trace", err) {
		r.explained = r.trace.Table()
		r.missing = append(r.missing, r.explained.Gaps...)
	}
}

// workloads returns the labels of a run's workloads, in the order of their first rows.
func (r *Run) workloads() (all []string) {
	for i := range r.Report.Results {
		if name := r.Report.Results[i].Workload; !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// rows returns the rows of a workload.
func (r *Run) rows(workload string) (all []apps.Row) {
	for i := range r.Report.Results {
		if r.Report.Results[i].Workload == workload {
			all = append(all, r.Report.Results[i])
		}
	}
	return all
}

const sheet = `:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:0 auto;padding:1rem;color:#1f2937;background:#fff}
h1,h2{line-height:1.25}h2{margin-top:2.5rem}
table{border-collapse:collapse;margin:.8rem 0;font-size:.9rem}td,th{border:1px solid #d1d5db;padding:.25rem .5rem;text-align:left;vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums}.wide{overflow-x:auto}svg{max-width:100%;height:auto;display:block;margin:.8rem 0}
.wide svg{min-width:30rem;max-width:44rem}
.wide svg.topo{min-width:44rem;max-width:none;width:100%}.topo text{font:12px system-ui,sans-serif;fill:#1f2937}.topo text.sm{font-size:10px}
.f0{fill:#e5e7eb}.f1{fill:#fde68a}.f2{fill:#fbbf24}.f3{fill:#f97316}.f4{fill:#dc2626}.f5{fill:#991b1b}.f6{fill:#4c0519}
.topo path[class^=s]{fill:none;stroke-width:2.5}
.s0{stroke:#e5e7eb}.s1{stroke:#fde68a}.s2{stroke:#fbbf24}.s3{stroke:#f97316}.s4{stroke:#dc2626}.s5{stroke:#991b1b}.s6{stroke:#4c0519}
.box{fill:#f3f4f6;stroke:#6b7280}.b1,.b2,.b3,.b4,.b5,.b6{stroke-width:3}
.b1{stroke:#fde68a}.b2{stroke:#fbbf24}.b3{stroke:#f97316}.b4{stroke:#dc2626}.b5{stroke:#991b1b}.b6{stroke:#4c0519}
.band{fill:#dc2626;fill-opacity:.12}.on{fill:#dc2626}
.yes{color:#166534}.no{color:#b91c1c}code{font-size:.85rem;overflow-wrap:anywhere}
@media(prefers-color-scheme:dark){body{color:#e5e7eb;background:#111827}td,th{border-color:#4b5563}.yes{color:#86efac}.no{color:#fca5a5}
.topo text{fill:#e5e7eb}.f0{fill:#374151}.f1{fill:#7c2d12}.f2{fill:#c2410c}.f3{fill:#f97316}.f4{fill:#fbbf24}.f5{fill:#fde68a}.f6{fill:#fffbeb}
.s0{stroke:#374151}.s1{stroke:#7c2d12}.s2{stroke:#c2410c}.s3{stroke:#f97316}.s4{stroke:#fbbf24}.s5{stroke:#fde68a}.s6{stroke:#fffbeb}
.box{fill:#1f2937;stroke:#9ca3af}.b1{stroke:#7c2d12}.b2{stroke:#c2410c}.b3{stroke:#f97316}.b4{stroke:#fbbf24}.b5{stroke:#fde68a}.b6{stroke:#fffbeb}
.band{fill-opacity:.25}.on{fill:#f87171}}`

// page collects the HTML of a report. All text of runs goes through its methods, which escape it.
type page struct{ strings.Builder }

func (b *page) text(tag, s string) { fmt.Fprintf(b, "<%s>%s</%s>\n", tag, html.EscapeString(s), tag) }

// picture writes a picture, which may be wider than the window.
func (b *page) picture(svg string) { b.WriteString("<div class=\"wide\">" + svg + "</div>\n") }

// table writes a table. Cells that are numbers stand at the right.
func (b *page) table(head []string, rows [][]string) {
	b.WriteString("<div class=\"wide\"><table><tr>")
	for _, h := range head {
		fmt.Fprintf(b, "<th>%s</th>", html.EscapeString(h))
	}
	b.WriteString("</tr>\n")
	for _, row := range rows {
		b.WriteString("<tr>")
		for _, c := range row {
			class := ""
			switch {
			case c == "yes" || c == "no":
				class = fmt.Sprintf(" class=%q", c)
			case c != "" && strings.Trim(c, "0123456789.") == "":
				class = ` class="n"`
			}
			fmt.Fprintf(b, "<td%s>%s</td>", class, html.EscapeString(c))
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</table></div>\n")
}

// HTML returns the page of one run, or of several that are compared with the first.
func HTML(runs []*Run) string {
	b := &page{}
	var names []string
	for _, r := range runs {
		names = append(names, filepath.Base(r.Dir))
	}
	title := "mcastlab: " + strings.Join(names, ", ")
	b.WriteString("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n" +
		"<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n" +
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n")
	b.text("title", title)
	fmt.Fprintf(b, "<style>%s</style></head><body>\n", sheet)
	b.text("h1", strings.Join(names, ", "))
	for i, r := range runs {
		for _, line := range r.Report.Answer() {
			if len(runs) > 1 {
				line = names[i] + ": " + line
			}
			b.text("p", line)
		}
	}
	b.summary(runs)
	if len(runs) > 1 {
		b.difference(runs)
	}
	for _, r := range runs {
		b.run(r, len(runs) > 1)
	}
	b.WriteString("</body></html>\n")
	return b.String()
}

// summary writes the head data of each run.
func (b *page) summary(runs []*Run) {
	head := []string{""}
	rows := [][]string{{"lab"}, {"runtime"}, {"seed"}, {"ended"}, {"lab time (us)"}, {"packet-hops"}, {"frames lost to faults"}, {"digest"}, {"version"}}
	for _, r := range runs {
		m := &r.Meta
		head = append(head, r.Dir)
		ended := string(runner.StatusOf(r.Dir, m))
		if m.Error != "" {
			ended += ": " + m.Error
		}
		for i, v := range []string{
			m.Lab, m.Runtime, fmt.Sprint(m.Seed), ended, number(m.LabUS), fmt.Sprint(m.PacketHops), fmt.Sprint(m.FramesLost), r.Report.Digest, m.Version,
		} {
			rows[i] = append(rows[i], v)
		}
	}
	b.table(head, rows)
}

// run writes a run's results.
func (b *page) run(r *Run, named bool) {
	prefix := ""
	if named {
		prefix = filepath.Base(r.Dir) + ": "
	}
	if len(r.Report.Results) == 0 {
		b.text("p", prefix+"no row was measured.")
	}
	for _, w := range r.workloads() {
		rows := r.rows(w)
		b.text("h2", prefix+w)
		p := runner.Picture(w, rows)
		b.picture(p.SVG())
		b.times(rows)
	}
	for _, text := range r.Report.Texts {
		b.text("pre", text)
	}
	if len(r.Report.Expect) > 0 {
		b.text("h2", prefix+"what the lab expects")
		var lines [][]string
		for _, e := range r.Report.Expect {
			got, held := "not measured", "no"
			if e.Why != "" {
				got = e.Why
			} else if e.Got != nil {
				got = number(*e.Got)
			}
			if e.OK {
				held = "yes"
			}
			lines = append(lines, []string{e.Text, e.Basis, got, held})
		}
		b.table([]string{"line", "basis", "left side", "holds"}, lines)
	}
	b.ranks(r, prefix)
	b.explained(r, prefix)
	b.time(r, prefix)
	b.faults(r, prefix)
	b.pausers(r, prefix)
	b.network(r, prefix)
	b.groups(r, prefix)
	b.counters(r, prefix)
	for _, text := range r.missing {
		b.text("p", "Not shown: "+text)
	}
}

// times writes the rows of a workload, with the ratio to the fastest scheme of each size.
func (b *page) times(rows []apps.Row) {
	_, sizes := runner.Axes(rows)
	var lines [][]string
	for _, size := range sizes {
		best := math.Inf(1)
		for i := range rows {
			if rows[i].SizeBytes == size && rows[i].JCT.P50 > 0 {
				best = min(best, rows[i].JCT.P50)
			}
		}
		for i := range rows {
			if row := &rows[i]; row.SizeBytes == size {
				lines = append(lines, []string{
					row.Scheme, sizeOf(row), number(row.JCT.Avg), number(row.JCT.Min), number(row.JCT.Max), number(row.JCT.P50), p99(row.JCT),
					number(row.JCT.P50 / best), fmt.Sprint(row.Iterations), verified(row),
				})
			}
		}
	}
	b.table([]string{"scheme", "size", "avg (us)", "min", "max", "p50", "p99", "p50 / best", "iterations", "verified"}, lines)
}

// sizeOf returns the size of a row's messages. Programs of the server have none that is known.
func sizeOf(row *apps.Row) string {
	if apps.DetailsOf[apps.Exits](*row) != nil {
		return "-"
	}
	return lab.Size(row.SizeBytes).String()
}

func p99(s apps.Summary) string {
	if s.P99 == nil {
		return ""
	}
	return number(*s.P99)
}

func verified(row *apps.Row) string {
	if e := apps.DetailsOf[apps.Exits](*row); e != nil {
		return e.Outcome()
	}
	switch {
	case row.Verified == nil:
		return "phantom"
	case *row.Verified:
		return "yes"
	case len(row.Unconfirmed) > 0:
		return "not known: " + apps.LacksText(row.Unconfirmed)
	}
	return "no"
}

// faults writes the faults of a run.
func (b *page) faults(r *Run, prefix string) {
	var lines [][]string
	for _, f := range r.Report.Faults {
		lines = append(lines, []string{f.ID, f.Kind, f.What, fmt.Sprint(f.Seen), fmt.Sprint(f.Hit)})
	}
	for i := range r.Report.Acts {
		lines = append(lines, []string{"", "by hand", fmt.Sprintf("at %v: %s", r.Report.Acts[i].At, r.Report.Acts[i].Text), "", ""})
	}
	if len(lines) > 0 {
		b.text("h2", prefix+"faults")
		b.table([]string{"id", "kind", "what", "seen", "hit"}, lines)
	}
}

// counters writes the totals that are not 0.
func (b *page) counters(r *Run, prefix string) {
	var kinds []string
	for kind := range r.Report.Counters {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	var lines [][]string
	for _, kind := range kinds {
		t := r.Report.Counters[kind]
		for _, part := range []struct {
			prefix string
			counts map[string]uint64
		}{{"", t.Counts}, {"drops: ", t.Drops}} {
			var names []string
			for name, n := range part.counts {
				if n > 0 {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			for _, name := range names {
				lines = append(lines, []string{kind, part.prefix + name, fmt.Sprint(part.counts[name])})
			}
		}
	}
	if len(lines) > 0 {
		b.text("h2", prefix+"counters")
		b.table([]string{"nodes", "counter", "total"}, lines)
	}
}

// difference writes the rows that the first run shares with each other one.
func (b *page) difference(runs []*Run) {
	b.text("h2", "side by side")
	head := []string{"workload", "scheme", "size"}
	for _, r := range runs {
		head = append(head, filepath.Base(r.Dir)+", p50 (us)")
	}
	for _, r := range runs[1:] {
		head = append(head, filepath.Base(r.Dir)+" / "+filepath.Base(runs[0].Dir))
	}
	var lines [][]string
	p := plot.Picture{
		Title: "The second run's median JCT over the first's", X: "scheme and size", Y: "ratio", Bars: true, Series: []plot.Series{{Name: head[3+len(runs)]}},
	}
	for _, w := range runs[0].workloads() {
		schemes, sizes := runner.Axes(runs[0].rows(w))
		for _, size := range sizes {
			for _, scheme := range schemes {
				line, ratios := []string{w, scheme, lab.Size(size).String()}, []string(nil)
				first := runner.Median(runs[0].rows(w), scheme, size)
				for i, r := range runs {
					v := runner.Median(r.rows(w), scheme, size)
					line = append(line, number(v))
					if i > 0 {
						ratios = append(ratios, number(v/first))
					}
				}
				lines = append(lines, append(line, ratios...))
				if v := runner.Median(runs[1].rows(w), scheme, size); v > 0 && first > 0 {
					p.At = append(p.At, fmt.Sprintf("%s %v", scheme, lab.Size(size)))
					p.Series[0].Ys = append(p.Series[0].Ys, v/first)
				}
			}
		}
	}
	if len(p.At) > 0 && len(p.At) <= 24 {
		b.picture(p.SVG())
	}
	b.table(head, lines)
}

// number returns a figure as text; nothing for one that is not there.
func number(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return ""
	case v == math.Trunc(v) && math.Abs(v) < 1e15:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) < 100:
		return fmt.Sprintf("%.4g", v)
	}
	return fmt.Sprintf("%.2f", v)
}
