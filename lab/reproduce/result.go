// SPDX-License-Identifier: Apache-2.0

// Package reproduce compares every quantitative result of the papers with the tree's measurements: the
// paper's value and its place, the labs that show it, the quantities with their bands, and the figures. The
// results are data, in results/*.yml, one file per paper; their labs are those of examples/papers.
//
// A line's band is written before the run that is held to it. PRED (predicted) means that no parameter was
// tuned so that the line holds, CAL (calibrated) that one was, ARITH that it is computed without a run.
package reproduce

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/mcastlab/mcastlab/lab"
)

//go:embed results/*.yml
var files embed.FS

// Papers returns the papers. Their results are in results/FILE.yml.
func Papers() []Paper {
	return []Paper{
		{"cepheus", "Cepheus", "Cepheus: Accelerating Datacenter Applications with High-Performance RoCE-Capable Multicast, HPCA 2024"},
		{"gleam", "Gleam", "Gleam: An RDMA-accelerated Multicast Protocol for Datacenter Networks"},
		{"cyclic", "Cyclic multicast", "Zhou et al., a cyclic multicast scheme for fat-tree-based (m-port n-tree) InfiniBand networks"},
		{"multicast", "Multicast Allgather", "Khalilov et al., bandwidth-optimal Broadcast and Allgather by hardware multicast"},
	}
}

// Paper is one paper.
type Paper struct{ File, Name, Full string }

// Result is one result of a paper.
type Result struct {
	ID         string      `yaml:"id"`     // R-C5
	Title      string      `yaml:"title"`  // its subject, in a few words
	Source     string      `yaml:"source"` // section and figure
	Says       string      `yaml:"says"`   // the paper's statement
	Parameters []Parameter `yaml:"parameters"`
	Lines      []Line      `yaml:"lines"`
	Figures    []Figure    `yaml:"figures"`

	// Off explains why a line is out of its band, and names the line or lab that shows the cause. It is
	// there if and only if a line is out of band.
	Off string `yaml:"off"`
	// Cannot is the reason why the result cannot be reproduced. Such a result has no line.
	Cannot string `yaml:"cannot"`
	// Open names the parts that have not been built or run. Such a result may have lines.
	Open string `yaml:"open"`
	// Note is a remark for readers.
	Note string `yaml:"note"`

	Paper *Paper `yaml:"-"`
}

// Labs returns the names of the labs that the result's lines need, in the order of the lines.
func (r *Result) Labs() (names []string) {
	for i := range r.Lines {
		for _, q := range r.Lines[i].asked() {
			if !slices.Contains(names, q.Lab) {
				names = append(names, q.Lab)
			}
		}
	}
	return names
}

// Parameter is a parameter of an experiment beside the paper's.
type Parameter struct {
	Name  string `yaml:"name"`
	Paper string `yaml:"paper"` // "not stated" if the text has none
	Ours  string `yaml:"ours"`
	Why   string `yaml:"why"`
}

// What a line's figure rests on.
const (
	Predicted  = lab.Predicted
	Calibrated = lab.Calibrated
	Arithmetic = "ARITH"
	// Broken marks a run of a shape without its cause. Such a line has no band of its own: it shows that those which name
	// it as their control can fail.
	Broken = "CONTROL"
)

// Line is a quantity and its band.
type Line struct {
	Name  string `yaml:"name"`
	Lab   string `yaml:"lab"`   // of examples/papers, without its ending
	Value string `yaml:"value"` // an expression over the lab's measurements (lab.ParseExpression)
	// With names quantities of other labs, which Value has in braces; then it has no others.
	With    map[string]Quantity `yaml:"with"`
	Compute string              `yaml:"compute"` // in place of Lab and Value: a computation (computed)
	Paper   string              `yaml:"paper"`   // the paper's figure or the closed form that the band is about
	From    float64             `yaml:"from"`    // the band, its ends included
	To      float64             `yaml:"to"`
	Above   bool                `yaml:"above"` // the paper gives a bound or an order: only From counts
	Below   bool                `yaml:"below"` // only To counts
	Basis   string              `yaml:"basis"`
	Unit    string              `yaml:"unit"`
	// Beside is the reason why the line is printed and does not count: the paper's figure contradicts those that it
	// rests on, or the lab differs from the paper's in a point that the text does give. Lines that count are there
	// as well.
	Beside string `yaml:"beside"`
	// Control is, of a band with one end, the name of a line of the same result that has to be out of that band.
	Control string `yaml:"control"`
}

// Quantity is an expression over a lab's measurements. Of a lab whose sweep repeats it with other seeds it is the
// mean.
type Quantity struct {
	Lab   string `yaml:"lab"`
	Value string `yaml:"value"`
	End   string `yaml:"end"` // low or high: that end of the mean's confidence interval
}

// asked returns the quantities that the line needs.
func (l *Line) asked() []Quantity {
	if l.Value == "" {
		return nil
	}
	if l.With == nil {
		return []Quantity{{Lab: l.Lab, Value: l.Value}}
	}
	var all []Quantity
	for _, name := range slices.Sorted(maps.Keys(l.With)) {
		all = append(all, l.With[name])
	}
	return all
}

// value returns the line's value, given those of its quantities.
func (l *Line) value(of func(Quantity) (float64, error)) (float64, error) {
	if l.With == nil {
		return of(Quantity{Lab: l.Lab, Value: l.Value})
	}
	text := l.Value
	for name, q := range l.With { // in any order: no value has braces
		v, err := of(q)
		if err != nil {
			return 0, err
		}
		text = strings.ReplaceAll(text, "{"+name+"}", strconv.FormatFloat(v, 'f', -1, 64))
	}
	e, err := lab.ParseExpression(text)
	if err != nil {
		return 0, err
	}
	return e.Eval(func(name string) (float64, error) { return 0, fmt.Errorf("%s is of no lab", name) })
}

// In reports whether a value is in the line's band.
func (l *Line) In(v float64) bool {
	return !math.IsNaN(v) && (l.Below || v >= l.From) && (l.Above || v <= l.To)
}

// Broken reports whether a control's value is out of the line's band, whose end does not belong to it here: a shape that is level is
// none. A thousandth is rounding.
func (l *Line) Broken(v float64) bool {
	const rounding = 1e-3
	return l.Above && v <= l.From*(1+rounding) || l.Below && v >= l.To*(1-rounding)
}

// Band returns the band as text.
func (l *Line) Band() string {
	switch {
	case l.Basis == Broken:
		return "none"
	case l.Above:
		return "at least " + number(l.From)
	case l.Below:
		return "at most " + number(l.To)
	case l.From == l.To:
		return number(l.From)
	}
	return number(l.From) + " to " + number(l.To)
}

// TwoSided reports whether the band has two ends.
func (l *Line) TwoSided() bool { return !l.Above && !l.Below }

// Figure is a picture with a paper's axes.
type Figure struct {
	Name  string   `yaml:"name"` // of its files
	Title string   `yaml:"title"`
	X     string   `yaml:"x"` // labels of the axes
	Y     string   `yaml:"y"`
	LogX  bool     `yaml:"log-x"`
	LogY  bool     `yaml:"log-y"`
	Lab   string   `yaml:"lab"`
	At    []string `yaml:"at"` // points of the x axis: sizes or numbers, which replace $ in values and in labs
	// Shown are the points as they are written at the axis, if At has names that only labs use.
	Shown []string `yaml:"shown"`
	// Says are statements of the paper's text that are no points.
	Says []string `yaml:"says"`
	// Numbers stands for as many points: 1, 2, 3 and so on.
	Numbers int      `yaml:"numbers"`
	Bars    bool     `yaml:"bars"`
	Series  []Series `yaml:"series"`
	Marks   []Mark   `yaml:"marks"`
}

// Series is a line of a figure. At each point it has the quantities of a Line.
type Series struct {
	Name    string              `yaml:"name"`
	Lab     string              `yaml:"lab"`  // if it is not the figure's
	Labs    []string            `yaml:"labs"` // by point, in place of Lab; "": there is no such point
	Value   string              `yaml:"value"`
	Values  []string            `yaml:"values"`  // by point, in place of Value; "": there is no such point
	With    map[string]Quantity `yaml:"with"`    // as in a Line; a quantity without a lab is of the point's
	Compute string              `yaml:"compute"` // in place of a lab and a value
}

// Mark is a point that the paper's text gives.
type Mark struct {
	Name string  `yaml:"name"`
	At   string  `yaml:"at"`
	Y    float64 `yaml:"y"`
}

// Load reads the results of all papers, in the order of Papers and of their files.
func Load() ([]*Result, error) {
	var all []*Result
	papers := Papers()
	for i := range papers {
		name := "results/" + papers[i].File + ".yml"
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		var own []*Result
		if err := yaml.UnmarshalWithOptions(text, &own, yaml.Strict()); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, r := range own {
			r.Paper = &papers[i]
			if err := r.check(); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", name, r.ID, err)
			}
			if slices.ContainsFunc(all, func(x *Result) bool { return x.ID == r.ID }) {
				return nil, fmt.Errorf("%s: %s appears twice", name, r.ID)
			}
			all = append(all, r)
		}
	}
	return all, nil
}

// check reads the expressions of a result and finds missing fields.
func (r *Result) check() error {
	switch {
	case r.ID == "" || r.Title == "" || r.Source == "" || r.Says == "":
		return fmt.Errorf("it needs an id, a title, a source and what the paper says")
	case len(r.Lines) == 0 && r.Cannot == "" && r.Open == "":
		return fmt.Errorf("it has no lines, and says neither cannot nor open")
	case len(r.Lines) > 0 && r.Cannot != "":
		return fmt.Errorf("it has lines, and says that it cannot be reproduced")
	}
	for i := range r.Lines {
		l := &r.Lines[i]
		if err := l.check(); err != nil {
			return fmt.Errorf("line %q: %w", l.Name, err)
		}
		if l.Beside != "" && !slices.ContainsFunc(r.Lines, func(x Line) bool { return x.Beside == "" && x.TwoSided() }) {
			return fmt.Errorf("line %q is beside the result, and no line with two ends counts in its place", l.Name)
		}
		if l.Control != "" && (l.TwoSided() || r.line(l.Control) == nil) {
			return fmt.Errorf("line %q has the control %q, which only a band with one end has, and which is a line of the result", l.Name, l.Control)
		}
		if l.Basis == Broken && !slices.ContainsFunc(r.Lines, func(x Line) bool { return x.Control == l.Name }) {
			return fmt.Errorf("line %q is the control of no line", l.Name)
		}
	}
	for i := range r.Figures {
		f := &r.Figures[i]
		for n := 1; n <= f.Numbers; n++ {
			f.At = append(f.At, strconv.Itoa(n))
		}
		for k := range f.Series {
			if f.Series[k].Lab == "" {
				f.Series[k].Lab = f.Lab
			}
			if err := f.checkSeries(&f.Series[k]); err != nil {
				return fmt.Errorf("figure %s: series %s: %w", f.Name, f.Series[k].Name, err)
			}
		}
		if f.Shown != nil && len(f.Shown) != len(f.At) {
			return fmt.Errorf("figure %s writes %d points, and has %d", f.Name, len(f.Shown), len(f.At))
		}
		if f.Name == "" || f.X == "" || f.Y == "" || len(f.Series) == 0 || len(f.At) == 0 {
			return fmt.Errorf("figure %q needs a name, its axes, series and points", f.Name)
		}
	}
	return nil
}

// line returns the line of that name, nil if there is none.
func (r *Result) line(name string) *Line {
	if i := slices.IndexFunc(r.Lines, func(l Line) bool { return l.Name == name }); i >= 0 {
		return &r.Lines[i]
	}
	return nil
}

func (l *Line) check() error {
	switch {
	case l.Basis != Predicted && l.Basis != Calibrated && l.Basis != Arithmetic && l.Basis != Broken:
		return fmt.Errorf("its basis is %q: use PRED, CAL, ARITH or CONTROL", l.Basis)
	case l.Basis == Broken && (l.Above || l.Below || l.From != 0 || l.To != 0 || l.Beside != ""):
		return fmt.Errorf("a control has no band")
	case (l.Compute != "") != (l.Basis == Arithmetic) || (l.Compute != "") == (l.Value != ""):
		return fmt.Errorf("ARITH has compute, and the others have a lab and a value")
	case l.Compute != "" && computed()[l.Compute] == nil:
		return fmt.Errorf("there is no computation %q", l.Compute)
	case l.Above && l.Below:
		return fmt.Errorf("a band has an end at least")
	case l.TwoSided() && l.From > l.To:
		return fmt.Errorf("its band ends at %g before it begins at %g", l.To, l.From)
	case l.With != nil && l.Lab != "":
		return fmt.Errorf("it has a lab, and quantities of labs")
	}
	for _, q := range l.asked() {
		if _, err := lab.ParseExpression(q.Value); err != nil {
			return err
		}
		if q.End != "" && q.End != lowEnd && q.End != highEnd {
			return fmt.Errorf("%q is no bound of an interval: use low or high", q.End)
		}
	}
	if l.With != nil {
		_, err := l.value(func(Quantity) (float64, error) { return 1, nil })
		return err
	}
	return nil
}

// checkSeries checks the expressions of a series at each point.
func (f *Figure) checkSeries(s *Series) error {
	for _, n := range []int{len(s.Labs), len(s.Values)} {
		if n > 0 && n != len(f.At) {
			return fmt.Errorf("it has something for %d points of %d", n, len(f.At))
		}
	}
	for i := range f.At {
		l := f.line(s, i)
		if l == nil {
			continue
		}
		if l.Compute != "" {
			if computed()[l.Compute] == nil {
				return fmt.Errorf("there is no computation %q", l.Compute)
			}
			continue
		}
		for _, q := range l.asked() {
			if q.Lab == "" {
				return fmt.Errorf("%s is of no lab", q.Value)
			}
			if _, err := lab.ParseExpression(q.Value); err != nil {
				return err
			}
		}
		if len(l.asked()) == 0 {
			return fmt.Errorf("it has no value")
		}
		if _, err := l.value(func(Quantity) (float64, error) { return 1, nil }); l.With != nil && err != nil {
			return err
		}
	}
	return nil
}

// line returns a series' point i as a line without a band; nil: it has no such point.
func (f *Figure) line(s *Series, i int) *Line {
	at := func(text string) string { return strings.ReplaceAll(text, "$", f.At[i]) }
	where, value := s.Lab, s.Value
	if s.Labs != nil {
		where = s.Labs[i]
	}
	if s.Values != nil {
		value = s.Values[i]
	}
	if s.Compute != "" {
		return &Line{Compute: at(s.Compute)}
	}
	if where == "" && s.Labs != nil || value == "" && s.Values != nil {
		return nil
	}
	l := &Line{Lab: at(where), Value: at(value)}
	if s.With == nil {
		return l
	}
	l.With = map[string]Quantity{}
	for name, q := range s.With {
		l.With[name] = Quantity{cmp.Or(at(q.Lab), l.Lab), at(q.Value), q.End}
	}
	return l
}

// number returns a figure as text, with no more digits than a reader takes in.
func number(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e9 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.4g", v)
}
