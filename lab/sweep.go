// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/mcastlab/mcastlab/apps/setting"
)

// Sweep has a lab run at all combinations of values of some of its keys.
type Sweep struct {
	Over    []Axis `yaml:"over" json:"over,omitzero" doc:"keys of the lab and their values; the points of the sweep are all combinations, and the last key changes fastest"`
	Repeats int    `yaml:"repeats" json:"repeats,omitzero" doc:"runs of each point: the first has the lab's seed, the others seeds derived from it; from 2 on there are confidence intervals" default:"1"`
	Measure string `yaml:"measure" json:"measure,omitzero" doc:"quantity to compare: the last parts of a name in expect, such as jct.p50" default:"jct.avg"`
	Limit   int    `yaml:"limit" json:"limit,omitzero" doc:"refuse a sweep with more runs (points times repeats)" default:"1000"`
}

// Axis is a key that a sweep varies.
type Axis struct {
	Key    string  `yaml:"key" json:"key,omitzero" doc:"path of the key in the lab file, items of lists counted from 0, as messages write it: faults[0].loss.rate" required:"true"`
	Name   string  `yaml:"name" json:"name,omitzero" doc:"name in tables and plots; default: the path"`
	Values []Value `yaml:"values" json:"values,omitzero" doc:"values of the key as in a lab file, each once; write a list or a mapping in brackets" required:"true"`
}

// Title returns the name of the key in tables and plots.
func (a *Axis) Title() string {
	if a.Name != "" {
		return a.Name
	}
	return a.Key
}

// Value is a value of any key, as it stands in a lab file.
type Value string

// String returns the value.
func (v Value) String() string { return string(v) }

// Bounds of a sweep.
const (
	sweepRunsMax    = 100_000
	sweepRepeatsMax = 1000
)

// Point is one combination of the values of a sweep.
type Point struct {
	Values []string // by key of Sweep.Over
	Lab    *Lab     // which has no sweep
	names  []string
}

// String names the point: loss=1%, k=4.
func (p *Point) String() string {
	words := make([]string, len(p.Values))
	for i, v := range p.Values {
		words[i] = p.names[i] + "=" + v
	}
	return strings.Join(words, ", ")
}

// bindValue reads any value, to be read as that of its key later.
func (b *binder) bindValue(path string, n ast.Node, v *Value) {
	s := n.String()
	_, null := n.(*ast.NullNode)
	switch {
	case null:
		b.failf(n, "%s has no value", last(path))
	case strings.Contains(s, "\n"):
		b.failf(n, "%s: write a list or a mapping in brackets, on one line", last(path))
	default:
		*v = Value(s)
	}
}

// checkSweep verifies a sweep, except its points, each of which is checked as a lab of its own.
func (c *checking) checkSweep() {
	s := c.l.Sweep
	if s == nil {
		return
	}
	switch {
	case s.Repeats < 1 || s.Repeats > sweepRepeatsMax:
		c.failf("sweep.repeats", "sweep.repeats of %d is not 1 to %d", s.Repeats, sweepRepeatsMax)
		return
	case s.Limit < 1 || s.Limit > sweepRunsMax:
		c.failf("sweep.limit", "sweep.limit of %d is not 1 to %d", s.Limit, sweepRunsMax)
		return
	case len(s.Over) == 0 && s.Repeats == 1:
		c.failf("sweep", "sweep varies nothing: give it keys with values (over), or repeats of 2 or more")
		return
	}
	runs := s.Repeats
	for i := range s.Over {
		c.checkAxis(i)
		runs = min(runs*max(1, len(s.Over[i].Values)), s.Limit+1)
	}
	if runs > s.Limit {
		c.failf("sweep", "sweep has more than %d runs: take values or repeats out, or raise sweep.limit", s.Limit)
	}
	c.checkMeasure()
}

// checkAxis verifies one key of a sweep.
func (c *checking) checkAxis(i int) {
	a, at := &c.l.Sweep.Over[i], fmt.Sprintf("sweep.over[%d]", i)
	if root := section(part(a.Key)); slices.Contains(unswept(), root) {
		c.failf(at+".key", "%s.key: a sweep cannot vary %s, on which no result of a simulation depends", at, root)
		return
	}
	if !c.spoilt.has(section(part(a.Key))) {
		if _, err := valueAt(reflect.ValueOf(c.l).Elem(), a.Key, false); err != nil {
			c.failf(at+".key", "%s.key: %v", at, err)
			return
		}
	}
	if a.Name != "" && !setting.LabelOK(a.Name) {
		c.failf(at+".name", "%s.name: %q cannot be a name: use a letter, then up to 39 letters, digits, _ and -", at, a.Name)
	}
	if slices.Contains(SweepColumns(), a.Title()) {
		c.failf(at+".name", "%s.name: %s is a column of the results: use another name", at, a.Title())
	}
	if len(a.Values) == 0 {
		c.failf(at+".values", "%s.values is empty: give %s at least one value", at, a.Key)
	}
	for k := range c.l.Sweep.Over[:i] {
		other := &c.l.Sweep.Over[k]
		if within(a.Key, other.Key) || within(other.Key, a.Key) {
			c.failf(at+".key", "%s.key: %s and %s are the same key, or one is in the other: give all values in one place", at, other.Key, a.Key)
		} else if a.Title() == other.Title() {
			c.failf(at+".name", "%s.name: two keys are called %q: give one of them another name", at, a.Title())
		}
	}
}

// unswept are the sections that a sweep does not vary.
func unswept() []string {
	return []string{"name", "controllers", "runtime", "trace", "times", "expect", "sweep"}
}

// SweepColumns are the columns that the results of a sweep have beside those of its keys.
func SweepColumns() []string {
	return []string{"workload", "scheme", "size_bytes", "measure", "runs", "mean", "ci95_low", "ci95_high", "stddev", "min", "max"}
}

// within reports whether a path is the other one, or of a part of it.
func within(path, other string) bool {
	rest, ok := strings.CutPrefix(path, other)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// checkMeasure verifies that a workload measures the compared quantity.
func (c *checking) checkMeasure() {
	const at = "sweep.measure"
	if c.spoilt.has("workloads", "topology", "hosts", "controllers") || len(c.l.Workloads) == 0 {
		return
	}
	field, stat, _ := strings.Cut(c.l.Sweep.Measure, ".")
	why := ""
	for i := range c.l.Workloads {
		m := measuredBy(&c.l.Workloads[i])
		scheme, size := "any", "1B"
		if len(m.schemes) > 0 {
			scheme = m.schemes[0]
		}
		if len(m.sizes) > 0 {
			size = m.sizes[0].String()
		}
		lack := m.lack(scheme, size, field, stat)
		if lack == "" {
			return
		}
		if why == "" {
			why = fmt.Sprintf("workload %s has %s", c.l.Workloads[i].Label(), lack)
		}
	}
	c.failf(at, "%s: nothing measures %q: %s", at, c.l.Sweep.Measure, why)
}

// valueAt returns the value at a path of a lab. With fill, sections that the lab leaves out on the way there get their
// defaults; without, the lab is not changed.
func valueAt(v reflect.Value, path string, fill bool) (reflect.Value, error) {
	at := ""
	for _, word := range strings.Split(path, ".") {
		key, index, indexed := strings.Cut(word, "[")
		v = present(v, fill)
		if v.Kind() != reflect.Struct {
			return v, fmt.Errorf("%s: %s has no keys of its own", path, last(at))
		}
		i := setting.FieldByKey(v.Type(), key)
		if i < 0 {
			return v, fmt.Errorf("%s: %s has no key %q%s", path, last(at), key, setting.Suggest(key, keysOf(v.Type())))
		}
		v, at = v.Field(i), join(at, key)
		for indexed {
			v = present(v, fill)
			var number string
			number, index, indexed = strings.Cut(index, "[")
			n, err := strconv.Atoi(strings.TrimSuffix(number, "]"))
			switch {
			case err != nil || !strings.HasSuffix(number, "]"):
				return v, fmt.Errorf("%s: [%s is no place in a list: write [0]", path, number)
			case v.Kind() != reflect.Slice:
				return v, fmt.Errorf("%s: %s is not a list", path, at)
			case n < 0 || n >= v.Len():
				return v, fmt.Errorf("%s: %s has %d items, counted from 0", path, at, v.Len())
			}
			v, at = v.Index(n), fmt.Sprintf("%s[%d]", at, n)
		}
		if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct && at != path {
			return v, fmt.Errorf("%s: %s is a list: write %s[0] for the first", path, at, at)
		}
	}
	return v, nil
}

// present returns the target of a pointer; for a nil pointer, the default value of its type.
func present(v reflect.Value, fill bool) reflect.Value {
	if v.Kind() != reflect.Pointer {
		return v
	}
	if !v.IsNil() {
		return v.Elem()
	}
	made := reflect.New(v.Type().Elem())
	setDefaults(made.Elem())
	if fill {
		v.Set(made)
	}
	return made.Elem()
}
