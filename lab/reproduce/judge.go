// SPDX-License-Identifier: Apache-2.0

package reproduce

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Verdict is the state of a result.
type Verdict string

// The verdicts.
const (
	InBand  Verdict = "in band"
	Off     Verdict = "off, explained"
	Cannot  Verdict = "cannot be reproduced"
	Partly  Verdict = "in part"          // all measurements are in band, and something is still open
	Untried Verdict = "not tried"        // nothing is built yet
	Pending Verdict = "not run"          // only a full reproduction runs its labs
	Amiss   Verdict = "off, unexplained" // a line is out of its band, without an explanation
)

// Outcome is a result with its measurements.
type Outcome struct {
	*Result
	Verdict Verdict
	Lines   []LineOutcome
}

// LineOutcome is a line with its measurement.
type LineOutcome struct {
	*Line
	Got  float64 // NaN: there is none
	Lack string  // why, if the lab was run
	OK   bool    // of a control: the lines that name it do not hold there
}

// Labs are the measurements of labs, by their names.
type Labs map[string]*Measured

// errNotRun is the error of a lab that was not run.
var errNotRun = errors.New("the lab was not run")

func (all Labs) value(q Quantity) (float64, error) {
	m := all[q.Lab]
	if m == nil {
		return 0, errNotRun
	}
	if q.End != "" {
		return m.endOf(q)
	}
	if v, ok := m.Values[q.Value]; ok {
		return v, nil
	}
	return 0, errors.New(cmp.Or(m.Lacks[q.Value], "it was not asked for"))
}

// Failures returns one line for each expectation of a lab that it did not meet itself, right bytes among them.
func (all Labs) Failures() (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, f := range all[name].Failures {
			lines = append(lines, fmt.Sprintf("lab %s: %s", name, f))
		}
	}
	return lines
}

// Judge compares the results with the measurements.
func Judge(results []*Result, measured Labs) []Outcome {
	var all []Outcome
	for _, r := range results {
		o := Outcome{Result: r}
		for i := range r.Lines {
			o.Lines = append(o.Lines, judgeLine(&r.Lines[i], measured))
		}
		o.holdControls()
		o.Verdict = verdict(&o)
		all = append(all, o)
	}
	return all
}

func judgeLine(l *Line, measured Labs) LineOutcome {
	o := LineOutcome{Line: l, Got: math.NaN()}
	if l.Compute != "" {
		o.Got = computed()[l.Compute]()
	} else if v, err := l.value(measured.value); err == nil {
		o.Got = v
	} else if !errors.Is(err, errNotRun) {
		o.Lack = err.Error()
	}
	o.OK = l.In(o.Got) || l.Basis == Broken && !math.IsNaN(o.Got)
	return o
}

// holdControls has a line hold only if its control breaks it. A control that was not run decides nothing.
func (o *Outcome) holdControls() {
	for i := range o.Lines {
		l := &o.Lines[i]
		if l.Control == "" {
			continue
		}
		c := &o.Lines[slices.IndexFunc(o.Lines, func(x LineOutcome) bool { return x.Name == l.Control })]
		if !math.IsNaN(c.Got) && !l.Broken(c.Got) {
			l.OK = false
			if c.Basis == Broken {
				c.OK = false
			}
		}
	}
}

func verdict(o *Outcome) Verdict {
	if o.Cannot != "" {
		return Cannot
	}
	pending, off := false, false
	for i := range o.Lines {
		l := &o.Lines[i]
		switch {
		case l.OK, l.Beside != "":
		case math.IsNaN(l.Got) && l.Lack == "":
			pending = true
		default:
			off = true
		}
	}
	switch {
	case off && o.Off == "":
		return Amiss
	case off:
		return Off
	case len(o.Lines) == 0:
		return Untried
	case pending:
		return Pending
	case o.Open != "":
		return Partly
	}
	return InBand
}
