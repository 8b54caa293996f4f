// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// ReadPoints is Read that also returns the points of the lab's sweep, in order; nil: it has none.
func (r Reader) ReadPoints(file string) (*Lab, []Point, error) {
	text, err := readFile(file)
	if err != nil {
		return nil, nil, err
	}
	return r.ParsePoints(file, text)
}

// sweeping reads the points of a sweep: the file as often as there are points, each time with other values in it.
type sweeping struct {
	r    Reader
	dir  string
	body ast.Node // of the file
	s    *Sweep
	at   map[string]pos
	all  []*Error
}

// points reads and checks all points.
func (s *sweeping) points() (points []Point, mistakes []*Error) {
	values := make([]ast.Node, 0, len(s.s.Over))
	s.duplicates()
	var next func(text []string)
	next = func(text []string) {
		if len(s.all) >= mistakesMax {
			return
		}
		if i := len(text); i < len(s.s.Over) {
			for k, v := range s.s.Over[i].Values {
				n, e := parseBody([]byte("value: " + v.String()))
				if e != nil { // it was a part of a file that could be parsed
					s.fail(&Error{Text: e.Text}, i, k)
					continue
				}
				entries, _ := entriesOf(n)
				values = append(values[:i], entries[0].Value)
				next(append(slices.Clone(text), v.String()))
			}
			return
		}
		p := Point{Values: text}
		for i := range s.s.Over {
			p.names = append(p.names, s.s.Over[i].Title())
		}
		s.read(&p, values)
		points = append(points, p)
	}
	next(nil)
	return points, s.all
}

// read reads the lab of a point.
func (s *sweeping) read(p *Point, values []ast.Node) {
	l := &Lab{}
	setDefaults(reflect.ValueOf(l).Elem())
	b := &binder{at: map[string]pos{}, spoilt: spoilt{}}
	b.bind("", s.body, reflect.ValueOf(l).Elem())
	l.Sweep = nil
	for i, n := range values {
		key, told := s.s.Over[i].Key, len(b.errs)
		v, err := valueAt(reflect.ValueOf(l).Elem(), key, true)
		if err != nil { // a value before it took the key away, such as another list of workloads
			b.failf(n, "%v", err)
		} else {
			v.SetZero()
			setDefaults(v)
			b.bind(key, n, v)
		}
		at := s.at[s.valuePath(i, slices.Index(s.s.Over[i].Values, Value(p.Values[i])))]
		for _, e := range b.errs[told:] {
			e.Line, e.Column = at.line, at.column
		}
		for path := range b.at { // any order
			if within(path, key) {
				b.at[path] = at
			}
		}
	}
	for _, e := range l.check(s.dir, b, s.r) {
		s.tell(e, p)
	}
	p.Lab = l
}

func (s *sweeping) valuePath(i, k int) string { return fmt.Sprintf("sweep.over[%d].values[%d]", i, k) }

// tell reports a mistake of a point, unless another point has the same.
func (s *sweeping) tell(e *Error, p *Point) {
	const of = ": "
	for _, o := range s.all {
		_, text, _ := strings.Cut(o.Text, of)
		if o.Line == e.Line && o.Column == e.Column && text == e.Text {
			return
		}
	}
	if len(s.all) < mistakesMax {
		s.all = append(s.all, &Error{Line: e.Line, Column: e.Column, Text: "sweep, at " + p.String() + of + e.Text})
	}
}

func (s *sweeping) fail(e *Error, i, k int) {
	at := s.at[s.valuePath(i, k)]
	e.Line, e.Column = at.line, at.column
	if len(s.all) < mistakesMax {
		s.all = append(s.all, e)
	}
}

// duplicates finds values of a key that are the same.
func (s *sweeping) duplicates() {
	for i := range s.s.Over {
		a := &s.s.Over[i]
		read := []any{}
		for k, text := range a.Values {
			l := &Lab{}
			b := &binder{at: map[string]pos{}, spoilt: spoilt{}}
			b.bind("", s.body, reflect.ValueOf(l).Elem())
			v, err := valueAt(reflect.ValueOf(l).Elem(), a.Key, true)
			n, e := parseBody([]byte("value: " + text.String()))
			if err != nil || e != nil {
				continue // reading the point reports it
			}
			v.SetZero()
			setDefaults(v)
			entries, _ := entriesOf(n)
			if b.bind(a.Key, entries[0].Value, v); len(b.errs) > 0 {
				continue
			}
			x := v.Interface()
			if j := slices.IndexFunc(read, func(o any) bool { return reflect.DeepEqual(o, x) }); j >= 0 {
				s.fail(&Error{Text: fmt.Sprintf("%s: %s has this value twice", s.valuePath(i, k), a.Key)}, i, k)
			}
			read = append(read, x)
		}
	}
}
