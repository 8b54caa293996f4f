// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Resolved returns the lab as a file in which every default is written out. Reading
// it gives the same lab.
func (l *Lab) Resolved() []byte {
	var b strings.Builder
	writeStruct(&b, reflect.ValueOf(*l), 0)
	return []byte(b.String())
}

// ParseFault reads one entry of faults, in the YAML of a lab file, and checks it against
// the lab.
func (l *Lab) ParseFault(entry string) (*Fault, error) {
	bare := *l
	bare.Workloads, bare.Faults, bare.Expect = nil, nil, nil
	item := "faults:\n  - " + strings.ReplaceAll(strings.TrimSpace(entry), "\n", "\n    ") + "\n"
	with, err := Parse("fault", append(bare.Compact(), item...))
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			return nil, errors.New(e.Text) // the place is in no file
		}
		return nil, err
	}
	if len(with.Faults) != 1 {
		return nil, fmt.Errorf("%d faults, and not one", len(with.Faults))
	}
	return &with.Faults[0], nil
}

// writeStruct writes a struct as a block mapping. What is not set is left out.
func writeStruct(b *strings.Builder, v reflect.Value, indent int) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		writeField(b, f.Tag.Get("yaml"), v.Field(i), indent)
	}
}

func writeField(b *strings.Builder, name string, v reflect.Value, indent int) {
	pad := strings.Repeat("  ", indent)
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	if s, ok := text(v); ok {
		if s != "" {
			fmt.Fprintf(b, "%s%s: %s\n", pad, name, s)
		}
		return
	}
	switch {
	case v.Kind() == reflect.Slice && v.Len() == 0:
		if !v.IsNil() { // it may have a default
			fmt.Fprintf(b, "%s%s: []\n", pad, name)
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		fmt.Fprintf(b, "%s%s:\n", pad, name)
		for i := range v.Len() {
			var item strings.Builder
			writeStruct(&item, v.Index(i), indent+2)
			fmt.Fprintf(b, "%s  - %s", pad, strings.TrimPrefix(item.String(), pad+"    "))
		}
	case v.Kind() == reflect.Slice:
		words := make([]string, v.Len())
		for i := range words {
			if words[i], _ = text(v.Index(i)); words[i] == "" {
				words[i] = `""`
			}
		}
		fmt.Fprintf(b, "%s%s: [%s]\n", pad, name, strings.Join(words, ", "))
	case v.Kind() == reflect.Struct:
		fmt.Fprintf(b, "%s%s:\n", pad, name)
		writeStruct(b, v, indent+1)
	}
}

// text returns a scalar as it stands in a file.
func text(v reflect.Value) (string, bool) {
	if h, ok := v.Interface().(Hosts); ok && len(h) == 0 {
		return "all", true
	}
	if v.CanAddr() {
		if _, ok := v.Addr().Interface().(textual); ok {
			return fmt.Sprint(v.Interface()), true
		}
	}
	if s, ok := v.Interface().(fmt.Stringer); ok {
		return s.String(), true
	}
	switch v.Kind() {
	case reflect.String:
		return quote(v.String()), true
	case reflect.Float64: // readers of YAML disagree on what 1e-05 is
		return strconv.FormatFloat(v.Float(), 'f', -1, 64), true
	case reflect.Bool, reflect.Int, reflect.Uint64:
		return fmt.Sprint(v.Interface()), true
	}
	return "", false
}

// quote puts text in quotes where YAML would read it as something else.
func quote(s string) string {
	plain := s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/") == "" &&
		(s[0] >= 'a' && s[0] <= 'z' || s[0] >= 'A' && s[0] <= 'Z')
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "null", "y", "n":
		plain = false
	}
	if plain || s == "" {
		return s
	}
	return fmt.Sprintf("%q", s)
}
