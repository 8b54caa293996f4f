// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/mcastlab/mcastlab/apps/setting"
)

// plurals are keys that are accepted for one another: a mapping has one of two.
var plurals = map[string]string{"node": "nodes", "nodes": "node", "link": "links", "links": "link"}

// known returns the key of a mapping that a word means: node where the mapping has nodes.
func known(t reflect.Type, word string) string {
	if other := plurals[word]; other != "" && setting.FieldByKey(t, word) < 0 && setting.FieldByKey(t, other) >= 0 {
		return other
	}
	return word
}

// unknown records a key that its mapping does not have, with the remedy: the level at which it belongs, a key that is spelt
// almost like it, or all keys.
func (b *binder) unknown(e *ast.MappingValueNode, k string) {
	keys := keysOf(b.within[len(b.within)-1].t)
	hint := setting.Suggest(k, keys)
	if place := b.belongs(k, setting.Near(k, keys) != ""); place != "" {
		hint = ": " + place
	}
	b.failAt(join(b.path, k), e.Key, "unknown key %q%s", k, hint)
}

// belongs returns the place of a key that a mapping around the innermost one has or, unless the innermost one has a key that is
// spelt almost like it, a section of the lab file.
func (b *binder) belongs(k string, near bool) string {
	own := b.within[len(b.within)-1]
	for i := len(b.within) - 2; i >= 0; i-- {
		switch {
		case setting.FieldByKey(b.within[i].t, k) < 0:
			continue
		case i == 0:
			return fmt.Sprintf("%s is a section of the lab file and starts its line, outside %s", k, own.name)
		}
		return fmt.Sprintf("%s goes beside %s, not in it", k, b.within[i+1].name)
	}
	if near {
		return ""
	}
	root := b.within[0].t
	var sections []string
	for i := range root.NumField() {
		f := root.Field(i)
		t := f.Type
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() == reflect.Struct && setting.FieldByKey(t, k) >= 0 && f.Tag.Get("yaml") != own.name {
			sections = append(sections, f.Tag.Get("yaml"))
		}
	}
	if len(sections) == 0 {
		return ""
	}
	return fmt.Sprintf("%s is a key of %s", k, setting.List(sections))
}

// related reports whether a path is that of a value that could not be read, of a mapping or list around one, or within one.
func related(path string, unread []string) bool {
	return slices.ContainsFunc(unread, func(u string) bool { return under(path, u) || under(u, path) })
}

// under reports whether a path is that of a value or within it.
func under(path, of string) bool {
	rest, ok := strings.CutPrefix(path, of)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
