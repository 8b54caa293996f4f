// SPDX-License-Identifier: Apache-2.0

package search

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/lab"
)

// sketch is a lab file, or a part of one, that is being drawn: a value, a mapping or a list.
// What the file's checks refuse is found by its line, so each value is given one.
type sketch struct {
	key      string // in the mapping that it is a part of
	text     string // of a value
	kids     []*sketch
	kind     reflect.Kind // String of a value, Struct of a mapping, Slice of a list
	required bool
	redraw   func() *sketch
	line     int
}

// write appends the text, in flow style.
func (s *sketch) write(b *strings.Builder, line *int) {
	s.line = *line
	if s.key != "" {
		b.WriteString(s.key + ": ")
	}
	open, end := "{", "}"
	switch s.kind {
	case reflect.String:
		b.WriteString(s.text)
		return
	case reflect.Slice:
		open, end = "[", "]"
	}
	b.WriteString(open)
	for i, k := range s.kids {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n")
		*line++
		k.write(b, line)
	}
	b.WriteString("\n" + end)
	*line++
}

// file returns the sketch as the text of a lab file.
func (s *sketch) file() []byte {
	var b strings.Builder
	line := 1
	for _, k := range s.kids {
		k.write(&b, &line)
		b.WriteString("\n")
		line++
	}
	return []byte(b.String())
}

// at returns the outermost part that begins on a line, and its parent.
func (s *sketch) at(line int) (part, parent *sketch) {
	for _, k := range s.kids {
		if k.line == line {
			return k, s
		}
		if part, parent = k.at(line); part != nil {
			return part, parent
		}
	}
	return nil, nil
}

// parts returns all parts that may be removed, the largest first.
func (s *sketch) parts() (all []removal) {
	for i, k := range s.kids {
		if !k.required || s.kind == reflect.Slice {
			all = append(all, removal{s, i})
		}
	}
	for _, k := range s.kids {
		all = append(all, k.parts()...)
	}
	return all
}

// removal is a part that is to go.
type removal struct {
	parent *sketch
	i      int
}

func (r removal) do() (undo func()) {
	before := r.parent.kids
	r.parent.kids = slices.Delete(slices.Clone(before), r.i, r.i+1)
	return func() { r.parent.kids = before }
}

// union reports whether of a struct's fields one is chosen: there are several pointers to
// structs, each a kind of its own.
func union(t reflect.Type) bool {
	n := 0
	for i := range t.NumField() {
		if isKind(t.Field(i).Type) {
			n++
		}
	}
	return n >= 3
}

func isKind(t reflect.Type) bool {
	return t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}

// fieldChance is the probability that an optional value is given.
const fieldChance = 0.2

// chance is the probability that a value is given.
func (d *labDraw) chance(path string) float64 {
	for _, p := range []string{".links.", ".switches.", ".nics."} {
		if strings.HasPrefix(path, p) && (d.wide || d.unlike && p == ".links.") {
			return 0.5
		}
	}
	return fieldChance
}

// mapping draws the fields of a struct. path is the keys on the way to it.
func (d *labDraw) mapping(path string, t reflect.Type) *sketch {
	s := &sketch{kind: reflect.Struct}
	chosen := -1
	if union(t) {
		var kinds []int
		for i := range t.NumField() {
			if isKind(t.Field(i).Type) && !d.left(path+"."+t.Field(i).Tag.Get("yaml")) {
				kinds = append(kinds, i)
			}
		}
		chosen = kinds[d.r.IntN(len(kinds))]
	}
	for i := range t.NumField() {
		f := t.Field(i)
		p := path + "." + f.Tag.Get("yaml")
		before := d.r
		if p == markOnArrival {
			d.r = d.r.Derive(p)
		}
		required := f.Tag.Get("required") != "" || chosen == i || d.always(p)
		if !d.left(p) && (chosen < 0 || chosen == i || !isKind(f.Type)) && (required || d.r.Chance(d.chance(p))) {
			if k := d.field(p, f.Type, f.Tag.Get("enum")); k != nil {
				k.key, k.required = f.Tag.Get("yaml"), required
				s.kids = append(s.kids, k)
			}
		}
		if p == markOnArrival {
			d.r = before
		}
	}
	return s
}

// field draws a value, which can be drawn again.
func (d *labDraw) field(path string, t reflect.Type, enum string) *sketch {
	k := d.value(path, t, enum)
	if k != nil {
		k.redraw = func() *sketch { return d.field(path, t, enum) }
	}
	return k
}

func (d *labDraw) value(path string, t reflect.Type, enum string) *sketch {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if enum != "" {
		words := slices.DeleteFunc(strings.Split(enum, ","), func(w string) bool { return w == "" })
		return scalar(words[d.r.IntN(len(words))])
	}
	if s := d.special(path); s != nil {
		return s
	}
	if text, ok := d.textual(path, t); ok {
		return scalar(text)
	}
	switch t.Kind() {
	case reflect.Struct:
		return d.mapping(path, t)
	case reflect.Slice:
		s := &sketch{kind: reflect.Slice}
		for range 1 + d.r.IntN(d.most(path)) {
			if k := d.field(path+"[]", t.Elem(), ""); k != nil {
				s.kids = append(s.kids, k)
			}
		}
		return s
	}
	return scalar(d.basic(path, t.Kind()))
}

func scalar(text string) *sketch { return &sketch{text: text, kind: reflect.String} }

// repairs bounds the number of repairs of a drawn file before another one is drawn.
const repairs = 80

// mend removes, or draws again, values that the checks refuse, until they accept the lab.
func (s *sketch) mend() (*lab.Lab, error) {
	var err error
	for range repairs {
		var l *lab.Lab
		if l, err = lab.Parse("drawn", s.file()); err == nil {
			return l, nil
		}
		var e *lab.Error
		if !errors.As(err, &e) {
			return nil, err
		}
		part, parent := s.at(e.Line)
		switch {
		case part == nil:
			return nil, err
		case (part.required || parent.kind == reflect.Slice && len(parent.kids) == 1) && part.redraw != nil:
			again := part.redraw()
			again.key, again.required = part.key, part.required
			*part = *again
		default:
			parent.kids = slices.DeleteFunc(parent.kids, func(k *sketch) bool { return k == part })
		}
	}
	return nil, fmt.Errorf("after %d repairs: %w", repairs, err)
}
