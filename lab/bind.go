// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/mcastlab/mcastlab/apps/setting"
)

// textual is a value that reads itself from a scalar.
type textual interface{ Set(string) error }

// shorthand is a struct that may be written as a scalar.
type shorthand interface{ Short(scalar string) error }

// binder fills Go values from the nodes of a YAML file. Unlike a general decoder it keeps the position
// of each value: each mistake is one line with position and remedy.
type binder struct {
	at     map[string]pos // by path: where the value stands
	errs   []*Error
	spoilt spoilt
	unread []string // paths of values and keys that could not be read
	path   string   // of the value that is being read
	within []level  // mappings around the value, from the outermost to its own
}

// level is a mapping around a value.
type level struct {
	name string // its last key
	t    reflect.Type
}

type pos struct{ line, column int }

// start returns where a value begins; a mapping begins with its first key.
func start(n ast.Node) *token.Token {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return m.Values[0].Key.GetToken()
	}
	if m, ok := n.(*ast.MappingValueNode); ok {
		return m.Key.GetToken()
	}
	return n.GetToken()
}

func (b *binder) failf(n ast.Node, format string, args ...any) {
	b.failAt(b.path, n, format, args...)
}

// failAt records that the value at a path, which may be a key that its mapping does not have, could not be read.
func (b *binder) failAt(path string, n ast.Node, format string, args ...any) {
	t := start(n)
	b.errs = append(b.errs, &Error{Line: t.Position.Line, Column: t.Position.Column, Text: fmt.Sprintf(format, args...)})
	b.spoilt[part(b.path)] = true
	b.unread = append(b.unread, path)
}

// full reports whether the number of mistakes has reached mistakesMax, so that the checks stop.
func (b *binder) full() bool { return len(b.errs) >= mistakesMax }

// bind fills v from n. path names the value in messages of later checks.
func (b *binder) bind(path string, n ast.Node, v reflect.Value) {
	if b.full() {
		return
	}
	above := b.path
	b.path = path
	b.bindAt(path, n, v)
	b.path = above
}

func (b *binder) bindAt(path string, n ast.Node, v reflect.Value) {
	if t := start(n); t != nil {
		b.at[path] = pos{t.Position.Line, t.Position.Column}
	}
	switch n.(type) {
	case *ast.AliasNode, *ast.AnchorNode, *ast.MergeKeyNode:
		b.failf(n, "anchors and aliases are not supported: write the value out")
		return
	case *ast.TagNode:
		b.failf(n, "tags are not supported: write the value without one")
		return
	}
	if v.Kind() == reflect.Pointer {
		if _, null := n.(*ast.NullNode); null && v.Type().Elem().Kind() != reflect.Struct {
			b.failf(n, "%s has no value", last(path))
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		setDefaults(v.Elem())
		b.bindAt(path, n, v.Elem())
		return
	}
	if p, ok := v.Addr().Interface().(textual); ok {
		b.bindScalar(n, path, p.Set)
		return
	}
	if x, ok := v.Addr().Interface().(*Value); ok {
		b.bindValue(path, n, x)
		return
	}
	if h, ok := v.Addr().Interface().(*Hosts); ok {
		b.bindHosts(path, n, h)
		return
	}
	if names, ok := v.Addr().Interface().(*Names); ok {
		if s, single := scalar(n); single {
			*names = Names{s}
			return
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		b.bindStruct(path, n, v)
	case reflect.Slice:
		b.bindSlice(path, n, v)
	default:
		b.bindScalar(n, path, func(s string) error { return setBasic(v, s) })
	}
}

func (b *binder) bindStruct(path string, n ast.Node, v reflect.Value) {
	if h, ok := v.Addr().Interface().(shorthand); ok {
		if s, isScalar := scalar(n); isScalar {
			if err := h.Short(s); err != nil {
				b.failf(n, "%s: %v", last(path), err)
			}
			return
		}
	}
	entries, ok := entriesOf(n)
	if !ok {
		b.failf(n, "%s must be a mapping with %s", last(path), setting.List(keysOf(v.Type())))
		return
	}
	if s, single := v.Addr().Interface().(*Scheme); single && len(entries) == 1 && key(entries[0]) != "name" {
		b.bindNamed(path, entries[0], s)
		return
	}
	b.within = append(b.within, level{lastKey(path), v.Type()})
	defer func() { b.within = b.within[:len(b.within)-1] }()
	seen, unknown := map[string]bool{}, false
	for _, e := range entries {
		k := known(v.Type(), key(e))
		i := setting.FieldByKey(v.Type(), k)
		switch {
		case b.full():
			return
		case i < 0:
			unknown = true
			b.unknown(e, k)
		case seen[k]:
			b.failf(e.Key, "key %q appears twice", k)
		default:
			b.bind(join(path, k), e.Value, v.Field(i))
		}
		seen[k] = true
	}
	for i := range v.NumField() { // a key that is missing may be there under a wrong name
		if f := v.Type().Field(i); f.Tag.Get("required") != "" && !unknown && !seen[f.Tag.Get("yaml")] {
			b.failf(n, "%s needs %q: %s", last(path), f.Tag.Get("yaml"), f.Tag.Get("doc"))
		}
	}
}

// bindNamed reads {chain: {slices: 4}} as a scheme with parameters.
func (b *binder) bindNamed(path string, e *ast.MappingValueNode, s *Scheme) {
	name := key(e)
	if program, isScalar := scalar(e.Value); isScalar && name == "program" {
		s.Name = setting.OwnPrefix + program // which YAML may take program:NAME for
		return
	} else if isScalar {
		b.failf(e.Value, "%s: write the parameters of a scheme as a mapping: {%s: {slices: 4}}", last(path), name)
		return
	}
	entries, _ := entriesOf(e.Value)
	v := reflect.ValueOf(s).Elem()
	s.Name = name
	for _, p := range entries {
		k := key(p)
		i := setting.FieldByKey(v.Type(), k)
		if i < 0 || k == "name" {
			b.failf(p.Key, "unknown parameter %q%s", k, setting.Suggest(k, append([]string{"label"}, setting.ParameterNames(name)...)))
			continue
		}
		b.bind(join(path, k), p.Value, v.Field(i))
	}
}

func (b *binder) bindSlice(path string, n ast.Node, v reflect.Value) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		b.failf(n, "%s must be a list: [..]", last(path))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values)))
	for i, e := range seq.Values {
		if v.Index(i).Kind() == reflect.Struct {
			setDefaults(v.Index(i))
		}
		b.bind(fmt.Sprintf("%s[%d]", path, i), e, v.Index(i))
	}
}

// bindHosts reads all, one name or a list of names.
func (b *binder) bindHosts(path string, n ast.Node, h *Hosts) {
	if s, ok := scalar(n); ok {
		if s != "all" {
			*h = Hosts{s}
		}
		return
	}
	before := len(b.errs)
	b.bindSlice(path, n, reflect.ValueOf(h).Elem())
	if len(*h) == 0 && len(b.errs) == before {
		b.failf(n, "%s is empty: name at least two hosts, or write all", last(path))
	}
}

func (b *binder) bindScalar(n ast.Node, path string, set func(string) error) {
	s, ok := scalar(n)
	if !ok {
		b.failf(n, "%s must be a single value", last(path))
		return
	}
	if err := set(s); err != nil {
		b.failf(n, "%s: %v", last(path), err)
	}
}

// setBasic reads a plain Go value.
func setBasic(v reflect.Value, s string) error {
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Bool:
		x, err := strconv.ParseBool(s)
		if err != nil || s != "true" && s != "false" {
			return fmt.Errorf("%q is not true or false", s)
		}
		v.SetBool(x)
	case reflect.Int:
		x, err := strconv.ParseInt(s, 10, 32)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", s)
		}
		v.SetInt(x)
	case reflect.Uint64:
		x, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a whole number from 0 on", s)
		}
		v.SetUint(x)
	case reflect.Float64:
		x, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("%q is not a number", s)
		}
		v.SetFloat(x)
	default:
		panic("lab: no rule to read a " + v.Type().String())
	}
	return nil
}

// scalar returns the text of a scalar node.
func scalar(n ast.Node) (string, bool) {
	switch x := n.(type) {
	case *ast.StringNode:
		return x.Value, true
	case *ast.LiteralNode:
		return x.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// entriesOf returns the entries of a mapping; a value that is left out is an empty one.
func entriesOf(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}, true
	case *ast.NullNode:
		return nil, true
	}
	return nil, false
}

func key(e *ast.MappingValueNode) string {
	if t := e.Key.GetToken(); t != nil && t.Type != token.MergeKeyType {
		return t.Value
	}
	return "<<"
}

// lastKey returns the key at which a value stands: loss of faults[0].loss.
func lastKey(path string) string {
	k := path[strings.LastIndexByte(path, '.')+1:]
	k, _, _ = strings.Cut(k, "[")
	return k
}

func keysOf(t reflect.Type) (keys []string) {
	for i := range t.NumField() {
		keys = append(keys, t.Field(i).Tag.Get("yaml"))
	}
	return keys
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// last returns the name that messages use for the value at a path.
func last(path string) string {
	if path == "" {
		return "a lab file"
	}
	return path
}

// setDefaults fills a struct from its default tags.
func setDefaults(v reflect.Value) {
	if v.Kind() != reflect.Struct {
		return
	}
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() == reflect.Struct {
			setDefaults(f)
			continue
		}
		text, ok := v.Type().Field(i).Tag.Lookup("default")
		if !ok {
			continue
		}
		var err error
		switch x := f.Addr().Interface().(type) {
		case textual:
			err = x.Set(text)
		case *Hosts: // empty is all
		case *Names:
			*x = Names{text}
		case *[]int:
			n, e := strconv.Atoi(text)
			*x, err = []int{n}, e
		default:
			err = setBasic(f, text)
		}
		if err != nil {
			panic(fmt.Sprintf("lab: default of %s: %v", v.Type().Field(i).Name, err))
		}
	}
}
