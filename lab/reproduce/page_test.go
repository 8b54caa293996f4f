// SPDX-License-Identifier: Apache-2.0

package reproduce

import (
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/internal/test/sweeps"
)

// committed is the folder of the page's figures, and of the labs' measurements from which it was made.
const committed = "../../docs/ledgers/reproduction"

// committedPage is the place of docs/ledgers/reproduction.md. The times are those of the run that made it.
var committedPage = Place{"reproduction/figures", "../../examples/papers", "This page is made by `mcastlab reproduce --full`, which took 20 minutes with two jobs on two cores " +
	"(2,302 s of processor time), and a test holds it to what `--quick` measures."}

// stored reads the labs' measurements from which the page was made.
func stored(t *testing.T) Labs {
	t.Helper()
	all := Labs{}
	names, err := filepath.Glob(committed + "/labs/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var m Measured
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[m.Lab] = &m
	}
	return all
}

var rewrite = flag.Bool("rewrite", false, "write docs/ledgers/reproduction.md and its figures")

// TestPage: docs/ledgers/reproduction.md and its figures are made from what was measured. No line is out of band without
// a reason, and no reason is there without such a line.
func TestPage(t *testing.T) {
	measured := stored(t)
	outcomes := Judge(load(t), measured)
	for i := range outcomes {
		o := &outcomes[i]
		if o.Verdict == Amiss {
			t.Errorf("%s is out of band, and says not why", o.ID)
		}
		if o.Off != "" && o.Verdict != Off && o.Verdict != Pending {
			t.Errorf("%s is %s, and says why it is off", o.ID, o.Verdict)
		}
		for k := range o.Lines {
			l := &o.Lines[k]
			if l.Lack != "" {
				t.Errorf("%s: %s: %s", o.ID, l.Name, l.Lack)
			}
			if l.OK && !l.TwoSided() && l.Compute == "" && l.Beside == "" && l.Control == "" {
				t.Errorf("%s: %s is a shape without a control that breaks it", o.ID, l.Name)
			}
			if l.Basis == Broken && !math.IsNaN(l.Got) && !l.OK {
				t.Errorf("%s: %s is %g, and the shape is there without its cause", o.ID, l.Name, l.Got)
			}
		}
	}
	hold(t, "../../docs/ledgers/reproduction.md", Markdown(outcomes, committedPage))
	for i := range outcomes {
		for k := range outcomes[i].Figures {
			f := &outcomes[i].Figures[k]
			p, _ := f.Gather(measured)
			hold(t, filepath.Join(committed, "figures", f.Name+".svg"), p.SVG())
			hold(t, filepath.Join(committed, "figures", f.Name+".csv"), p.CSV())
		}
	}
}

func hold(t *testing.T, name, want string) {
	t.Helper()
	if *rewrite {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(want), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != want {
		t.Errorf("%s is not what was measured (%v): mcastlab reproduce --full -o docs/ledgers/reproduction, then go test ./lab/reproduce -run Page -rewrite", name, err)
	}
}

// TestMeasured: labs have the page's results, to the last digit, and meet their own expectations. A day takes a third of those that take seconds.
func TestMeasured(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for some seconds")
	}
	dir, old := t.TempDir(), stored(t)
	if err := os.MkdirAll(filepath.Join(dir, "labs"), 0o755); err != nil {
		t.Fatal(err)
	}
	quick, err := jobs(load(t), false)
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range quick {
		if !sweeps.Takes(t, i) {
			continue
		}
		m, _, err := measure(t.Context(), j, Options{Dir: dir}, "test")
		if err != nil {
			t.Fatal(err)
		}
		want := old[j.name]
		if want == nil || want.Digest != m.Digest || !maps.Equal(want.Values, m.Values) || !maps.Equal(want.Lacks, m.Lacks) {
			t.Errorf("lab %s shows\n%v\nand the page has\n%v", j.name, m, want)
		}
		for _, f := range m.Failures {
			t.Errorf("lab %s: %s", j.name, f)
		}
		if again, before, err := measure(t.Context(), j, Options{Dir: dir}, "test"); err != nil || !before || !maps.Equal(again.Values, m.Values) {
			t.Errorf("lab %s: what was measured is not read again: %v, %v", j.name, before, err)
		}
	}
}

// TestPictures: each figure is well-formed, draws a mark per point inside its frame, and has its points as CSV.
func TestPictures(t *testing.T) {
	measured := stored(t)
	for _, r := range load(t) {
		for i := range r.Figures {
			f := &r.Figures[i]
			p, whole := f.Gather(measured)
			if !whole && !pending(f, measured) {
				t.Errorf("%s: figure %s lacks points", r.ID, f.Name)
			}
			dec := xml.NewDecoder(strings.NewReader(p.SVG()))
			for {
				if _, err := dec.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("figure %s: %v", f.Name, err)
				}
			}
			if strings.Contains(p.SVG(), "NaN") || strings.Contains(p.SVG(), "Inf") {
				t.Errorf("figure %s has a point that is nowhere", f.Name)
			}
			rows, err := csv.NewReader(strings.NewReader(p.CSV())).ReadAll()
			if err != nil || len(rows) != 1+len(f.At) || len(rows[0]) != 1+len(f.Series) {
				t.Errorf("figure %s: %d rows, %v", f.Name, len(rows), err)
			}
		}
	}
}

// pending reports whether a figure's lab was not run.
func pending(f *Figure, measured Labs) bool {
	for k := range f.Series {
		for i := range f.At {
			l := f.line(&f.Series[k], i)
			if l != nil && slices.ContainsFunc(l.asked(), func(q Quantity) bool { return measured[q.Lab] == nil }) {
				return true
			}
		}
	}
	return false
}
