// SPDX-License-Identifier: Apache-2.0

package reproduce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/examples/papers"
	"github.com/mcastlab/mcastlab/lab"
)

// TestResults: every result of the papers is there, and every lab that a line names measures what it asks for.
func TestResults(t *testing.T) {
	all := load(t)
	var ids, want []string
	for _, r := range all {
		ids = append(ids, r.ID)
	}
	for _, x := range []struct {
		letter   string
		from, to int
	}{{"C", 1, 25}, {"G", 1, 12}, {"Y", 0, 6}, {"A", 1, 20}} {
		for i := x.from; i <= x.to; i++ {
			want = append(want, fmt.Sprintf("R-%s%d", x.letter, i))
		}
	}
	if !slices.Equal(ids, want) {
		t.Errorf("results %v, want %v", ids, want)
	}
	names := map[string]bool{}
	for _, r := range all {
		for i := range r.Figures {
			if name := r.Figures[i].Name; names[name] {
				t.Errorf("%s: a second figure is called %s", r.ID, name)
			} else {
				names[name] = true
			}
		}
		for i := range r.Lines {
			if l := &r.Lines[i]; l.Basis == Calibrated && !slices.ContainsFunc(r.Parameters, func(p Parameter) bool { return strings.Contains(p.Why, "CAL") }) && !saidElsewhere(all, l) {
				t.Errorf("%s: line %q is calibrated, and no parameter says which to what", r.ID, l.Name)
			}
		}
	}
	labs, err := jobs(all, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range labs {
		text, err := papers.Labs.ReadFile(j.name + ".mcl.yml")
		if err != nil {
			t.Errorf("there is no lab %s", j.name)
			continue
		}
		l, err := lab.Parse(j.name, append(text, []byte(expectOf(j.exprs))...))
		if err != nil {
			t.Errorf("lab %s with the lines of its results: %v", j.name, err)
			continue
		}
		if l.Name != j.name {
			t.Errorf("lab %s is called %s", j.name, l.Name)
		}
	}
}

// saidElsewhere reports whether the same value is calibrated in another result, whose parameters explain
// it.
func saidElsewhere(all []*Result, l *Line) bool {
	return slices.ContainsFunc(all, func(r *Result) bool {
		return slices.ContainsFunc(r.Lines, func(x Line) bool { return x.Value == l.Value && x.Lab == l.Lab }) &&
			slices.ContainsFunc(r.Parameters, func(p Parameter) bool { return strings.Contains(p.Why, "CAL") })
	})
}

// expectOf returns lines of expect, for the lab to check the quantities' names. Labs end with theirs.
func expectOf(exprs []string) string {
	var b strings.Builder
	for _, e := range exprs {
		fmt.Fprintf(&b, "  - %q\n", e+" > 0")
	}
	return b.String()
}

func load(t *testing.T) []*Result {
	t.Helper()
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestInterrupted: an interrupted reproduction keeps the labs that were done, and only those.
func TestInterrupted(t *testing.T) {
	all := load(t)
	i := slices.IndexFunc(all, func(r *Result) bool { return r.ID == "R-C22" }) // two labs
	dir := t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("interrupted")
	measured, err := Run(ctx, all[i:i+1], Options{Dir: dir, Say: func(string, ...any) { cancel(gone) }})
	if !errors.Is(err, gone) || len(measured) != 1 {
		t.Fatalf("%d labs, %v", len(measured), err)
	}
	left, err := filepath.Glob(dir + "/run-*")
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	var said []string
	measured, err = Run(t.Context(), all[i:i+1], Options{Dir: dir, Jobs: 2, Say: func(f string, args ...any) { said = append(said, fmt.Sprintf(f, args...)) }})
	if err != nil || len(measured) != 2 || !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, "measured before") }) {
		t.Errorf("%d labs, %v: %q", len(measured), err, said)
	}
}

// TestKept: measurements are kept for the same program, lab and questions only, and the rest of a killed run is
// deleted. Failed expectations of a lab are reported.
func TestKept(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, "run-cepheus-inline", "left")
	if err := errors.Join(os.MkdirAll(left, 0o755), os.MkdirAll(filepath.Join(dir, "labs"), 0o755)); err != nil {
		t.Fatal(err)
	}
	j := job{name: "cepheus-inline", exprs: []string{"bcast.cepheus.64B.jct.avg"}}
	more := job{name: j.name, exprs: append([]string{"bcast.cepheus.64MiB.jct.avg"}, j.exprs...)}
	for i, c := range []struct {
		j       job
		program string
		again   bool
	}{{j, "a", false}, {j, "a", true}, {j, "b", false}, {more, "b", false}, {more, "b", true}} {
		m, again, err := measure(t.Context(), c.j, Options{Dir: dir}, c.program)
		if err != nil || again != c.again || len(m.Values) != len(c.j.exprs) {
			t.Errorf("case %d: %v, %v, %v", i, m, again, err)
		}
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a killed run has left: %v", err)
	}
	failed := Labs{"b": {Failures: []string{"wrong bytes"}}, "a": {}}
	if got := failed.Failures(); !slices.Equal(got, []string{"lab b: wrong bytes"}) {
		t.Errorf("failures %q", got)
	}
}

// TestBand: a band holds its ends, and nothing without a value is in it.
func TestBand(t *testing.T) {
	both, above, below := Line{From: 1, To: 2}, Line{From: 1, Above: true}, Line{To: 2, Below: true}
	for _, c := range []struct {
		line *Line
		v    float64
		want bool
	}{
		{&both, 1, true}, {&both, 2, true}, {&both, 0.999, false}, {&both, 2.001, false}, {&both, math.NaN(), false},
		{&above, 1e9, true}, {&above, 0.999, false}, {&above, math.NaN(), false}, {&below, -1, true}, {&below, 2.001, false}, {&below, math.NaN(), false},
	} {
		if got := c.line.In(c.v); got != c.want {
			t.Errorf("%g in %s: %v", c.v, c.line.Band(), got)
		}
	}
}

// TestVerdicts: the verdict of each state of lines and texts.
func TestVerdicts(t *testing.T) {
	line := func(v string) Line { return Line{Name: v, Lab: "l", Value: v, From: 1, To: 2, Basis: Predicted} }
	beside := line("out")
	beside.Beside = "the paper contradicts itself"
	measured := Labs{"l": {Values: map[string]float64{"in": 1.5, "out": 3}, Lacks: map[string]string{"lacks": "why"}}}
	for _, c := range []struct {
		r    Result
		want Verdict
	}{
		{Result{Lines: []Line{line("in")}}, InBand},
		{Result{Lines: []Line{line("in")}, Open: "x"}, Partly},
		{Result{Lines: []Line{line("in"), line("out")}}, Amiss},
		{Result{Lines: []Line{line("in"), line("out")}, Off: "x"}, Off},
		{Result{Lines: []Line{line("lacks")}}, Amiss},
		{Result{Lines: []Line{line("not run")}}, Amiss},
		{Result{Lines: []Line{{Lab: "other", Value: "in"}}}, Pending},
		{Result{Open: "x"}, Untried},
		{Result{Cannot: "x"}, Cannot},
		{Result{Lines: []Line{line("in"), beside}}, InBand},
		{Result{Lines: []Line{line("out"), beside}}, Amiss},
	} {
		if c.r.Lines != nil && c.r.Lines[0].Value == "not run" {
			measured["l"].Lacks["not run"] = "the lab does not measure it"
		}
		if got := Judge([]*Result{&c.r}, measured)[0].Verdict; got != c.want {
			t.Errorf("%+v: %s, want %s", c.r, got, c.want)
		}
	}
}

// TestBeside: a line beside its result needs one with two ends that counts, is marked on the page, and is counted apart.
func TestBeside(t *testing.T) {
	r := Result{ID: "R-X1", Title: "t", Source: "s", Says: "x", Paper: &Paper{Name: "P"}, Lines: []Line{
		{Name: "paper's", Compute: "cores-for-4x1.6T", From: 1, To: 2, Basis: Arithmetic, Beside: "it contradicts itself"},
	}}
	if err := r.check(); err == nil || !strings.Contains(err.Error(), "no line with two ends counts in its place") {
		t.Errorf("alone: %v", err)
	}
	r.Lines = append(r.Lines, Line{Name: "closed form", Compute: "cores-for-4x1.6T", From: 64, To: 64, Basis: Arithmetic})
	if err := r.check(); err != nil {
		t.Error(err)
	}
	all := Judge([]*Result{&r}, nil)
	c := Tally(all)
	page := Markdown(all, Place{Figures: "f"})
	if all[0].Verdict != InBand || c.Beside != 1 || !strings.Contains(page, "| 64 | beside | ARITH |") || !strings.Contains(page, `Why "paper's" does not count: it contradicts itself`) {
		t.Errorf("%s, %d beside:\n%s", all[0].Verdict, c.Beside, page)
	}
}

// TestControls: a shape holds only if it is gone, to a thousandth, where its cause is. Who has a control, and who is one, is checked.
func TestControls(t *testing.T) {
	const a, b = "bcast.a.64B.jct.p50", "bcast.b.64B.jct.p50"
	shape := Line{Name: "shape", Lab: "l", Value: a, From: 1, Above: true, Basis: Predicted, Control: "control"}
	control := Line{Name: "control", Lab: "l", Value: b, Basis: Broken}
	r := Result{ID: "R-X1", Title: "t", Source: "s", Says: "x", Paper: &Paper{Name: "P"}, Lines: []Line{shape, control}}
	for _, c := range []struct {
		control float64
		below   bool
		want    Verdict
		mark    string
	}{
		{0.5, false, InBand, "breaks it"}, {1, false, InBand, "breaks it"}, {1.0009, false, InBand, "breaks it"}, {1.002, false, Amiss, "does not break it"},
		{3, true, InBand, "breaks it"}, {2, true, InBand, "breaks it"}, {1.9, true, Amiss, "does not break it"}, {math.NaN(), false, Pending, "-"},
	} {
		r.Lines[0].Above, r.Lines[0].Below, r.Lines[0].To = !c.below, c.below, 2
		m := Labs{"l": {Values: map[string]float64{a: 1.5}}}
		if math.IsNaN(c.control) {
			r.Lines[1].Lab = "other"
		} else {
			m["l"].Values[b] = c.control
		}
		o := Judge([]*Result{&r}, m)[0]
		if o.Verdict != c.want || o.Lines[1].mark() != c.mark {
			t.Errorf("a control of %g: %s, %s", c.control, o.Verdict, o.Lines[1].mark())
		}
	}
	for want, lines := range map[string][]Line{
		"is the control of no line":          {control},
		"which only a band with one end has": {{Name: "two", Lab: "l", Value: a, From: 1, To: 2, Basis: Predicted, Control: "control"}, control},
		"which is a line of the result":      {shape},
		"a control has no band":              {shape, {Name: "control", Lab: "l", Value: a, To: 2, Basis: Broken}},
	} {
		r.Lines = lines
		if err := r.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestHostile: texts of results are text in both pages.
func TestHostile(t *testing.T) {
	r := Result{ID: "R-X1", Title: "<script>alert(1)</script>", Source: "a|b", Says: "<b>", Open: "\"'&", Paper: &Paper{Name: "P"}}
	page := HTML(Judge([]*Result{&r}, nil), nil)
	if strings.Contains(page, "<script") || strings.Contains(page, "<b>") {
		t.Error("the page has markup that came with a result")
	}
}
