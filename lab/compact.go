// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"reflect"
	"strings"
)

// Compact returns the lab as a short file that reads as the same lab. Optional keys with the
// default of their tags are left out. Keys that checking has filled in, such as a scheme's
// label, have no such default and are written.
func (l *Lab) Compact() []byte {
	var b strings.Builder
	v, def := reflect.ValueOf(l).Elem(), defaultsOf(reflect.TypeFor[Lab]())
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Tag.Get("yaml")
		switch {
		case reflect.DeepEqual(f.Interface(), def.Field(i).Interface()):
		case f.Kind() == reflect.Slice && f.Len() > 0 && f.Type().Elem().Kind() == reflect.Struct:
			fmt.Fprintf(&b, "%s:\n", name)
			for k := range f.Len() {
				fmt.Fprintf(&b, "  - %s\n", flow(f.Index(k)))
			}
		default:
			fmt.Fprintf(&b, "%s: %s\n", name, flow(f))
		}
	}
	return []byte(b.String())
}

// Text returns the fault as an entry of a lab file on one line, which ParseFault reads.
func (f *Fault) Text() string { return flow(reflect.ValueOf(f).Elem()) }

// defaultsOf returns a struct in which every field has its default.
func defaultsOf(t reflect.Type) reflect.Value {
	v := reflect.New(t).Elem()
	setDefaults(v)
	return v
}

// flow writes a value on one line, without keys that have their default.
func flow(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if s, ok := text(v); ok {
		return s
	}
	var words []string
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			words = append(words, flow(v.Index(i)))
		}
		return "[" + strings.Join(words, ", ") + "]"
	case reflect.Struct:
		def := defaultsOf(v.Type())
		for i := range v.NumField() {
			f, tag := v.Field(i), v.Type().Field(i).Tag
			if tag.Get("required") == "" && reflect.DeepEqual(f.Interface(), def.Field(i).Interface()) || f.Kind() == reflect.Pointer && f.IsNil() {
				continue
			}
			words = append(words, tag.Get("yaml")+": "+flow(f))
		}
		return "{" + strings.Join(words, ", ") + "}"
	}
	panic("lab: no rule to write a " + v.Type().String())
}
