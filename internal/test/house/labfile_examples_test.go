// SPDX-License-Identifier: Apache-2.0

package house

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/mcastlab/mcastlab/lab"
)

// leastLab is the lab to which examples of keys are added.
const leastLab = "name: example, topology: {star: {hosts: 8}}, workloads: [{bcast: {schemes: [cepheus], sizes: [64B]}}]"

// completions are the parts that mappings need although no single key of them is required.
func completions() map[string]completion {
	return map[string]completion{
		"workloads.hpl": {"n: [256], grids: [2x2], bcast: [1ring]", []string{"dat"}},
		"faults.loss":   {"rate: 1%", []string{"rate", "nth", "every-nth", "gilbert-elliott"}},
	}
}

// completion is text of a mapping, and the keys any of which stands in for it.
type completion struct {
	text    string
	instead []string
}

// mapping reads the text of a mapping without its braces.
func mapping(t *testing.T, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := yaml.Unmarshal([]byte("{"+text+"}"), &m); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return m
}

// labWith returns a lab around a mapping at a path.
func labWith(t *testing.T, path string, m map[string]any, with string) []byte {
	t.Helper()
	whole := mapping(t, leastLab)
	for k, v := range mapping(t, with) {
		whole[k] = v
	}
	for {
		complete(t, path, m)
		if path == "" {
			break
		}
		i := strings.LastIndex(path, ".")
		key := path[i+1:]
		var v any = m
		if f := fieldAt(t, path); f.Type.Kind() == reflect.Slice {
			v = []any{m}
		}
		m, path = map[string]any{key: v}, path[:max(0, i)]
	}
	for k, v := range m {
		above, _ := whole[k].(map[string]any)
		part, _ := v.(map[string]any)
		if above == nil || part == nil || k == "topology" {
			whole[k] = v
			continue
		}
		for k, v := range part {
			above[k] = v
		}
	}
	text, err := json.Marshal(whole) // which is YAML
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// complete gives a mapping the keys that it must have, from their own examples.
func complete(t *testing.T, path string, m map[string]any) {
	t.Helper()
	if c, ok := completions()[path]; ok {
		given := false
		for _, k := range c.instead {
			given = given || m[k] != nil
		}
		for k, v := range mapping(t, c.text) {
			if _, there := m[k]; !there && !given {
				m[k] = v
			}
		}
	}
	e := reflect.TypeFor[lab.Lab]()
	if path != "" {
		e = element(fieldAt(t, path).Type)
	}
	for i := range e.NumField() {
		tag := e.Field(i).Tag
		key := tag.Get("yaml")
		if _, there := m[key]; tag.Get("required") == "" || there || path == "workloads.bcast.schemes" {
			continue
		}
		m[key] = mapping(t, keyDocs()[below(path, key)].example)[key]
	}
}

// fieldAt returns the field that a path means.
func fieldAt(t *testing.T, path string) (f reflect.StructField) {
	t.Helper()
	e := reflect.TypeFor[lab.Lab]()
	for _, key := range strings.Split(path, ".") {
		found := false
		for i := range e.NumField() {
			if e.Field(i).Tag.Get("yaml") == key {
				f, found = e.Field(i), true
			}
		}
		if !found {
			t.Fatalf("no key %s", path)
		}
		e = element(f.Type)
	}
	return f
}

// TestLabFileKeys: every key of a lab file has an example, and it is one: a lab with it is right, also
// by the schema for editors, and is another lab than without it. The page has the valid values of every
// key, and those next to them are refused.
func TestLabFileKeys(t *testing.T) {
	docs, seen, valid := keyDocs(), map[string]bool{}, labSchema(t)
	all := sections("", reflect.TypeFor[lab.Lab](), nil)
	for _, s := range all {
		for i := range s.t.NumField() {
			f := s.t.Field(i)
			path := below(s.path, f.Tag.Get("yaml"))
			d, ok := docs[path]
			seen[path] = true
			if !ok || d.example == "" {
				t.Errorf("%s has no example: add one to keyDocs", path)
				continue
			}
			if valuesOf(d, f, all) == "" {
				t.Errorf("the page does not say which values %s may have: add them to keyDocs", path)
			}
			t.Run(path, func(t *testing.T) {
				checkExample(t, s.path, f, d, valid)
				checkRange(t, s.path, f, d)
			})
		}
	}
	for path := range docs {
		if !seen[path] {
			t.Errorf("keyDocs has %s, which no lab file has", path)
		}
	}
}

// checkExample reads a key's example as part of a lab.
func checkExample(t *testing.T, in string, f reflect.StructField, d keyDoc, valid func([]byte) error) {
	key, own := f.Tag.Get("yaml"), d.in == ""
	if !own {
		in = d.in
	}
	m := mapping(t, d.example)
	if _, there := m[key]; own && !there {
		t.Fatalf("the example %q has no %s", d.example, key)
	}
	text := labWith(t, in, m, d.with)
	l, err := lab.Parse("examples/example.mcl.yml", text)
	if err != nil {
		t.Fatalf("%q: %v\n%s", d.example, err, text)
	}
	if err := valid(text); err != nil {
		t.Errorf("%q: the schema refuses it: %v\n%s", d.example, err, text)
	}
	if !own || f.Tag.Get("required") != "" || in == "" && (key == "name" || key == "topology") {
		return
	}
	m = mapping(t, d.example)
	delete(m, key)
	if without, err := lab.Parse("examples/example.mcl.yml", labWith(t, in, m, d.with)); err == nil && string(without.Resolved()) == string(l.Resolved()) {
		t.Errorf("%q says nothing that would not be so without it", d.example)
	}
}

// bounds finds the least and the largest value in the page's text.
var bounds = regexp.MustCompile(`^(?:a list of |0, or |eight of )?(?:numbers )?(?:from ([0-9][0-9A-Za-z.]*) on|([0-9][0-9A-Za-z.]*) to ([0-9][0-9A-Za-z.]*))`)

// checkRange makes sure that a number below or above those of the page is refused.
func checkRange(t *testing.T, in string, f reflect.StructField, d keyDoc) {
	text := d.values
	if text == "" {
		text = valuesOfType()[element(f.Type)]
	}
	found := bounds.FindStringSubmatch(text)
	if found == nil || d.in != "" {
		return
	}
	t.Logf("bounds %q", found[1:])
	for _, bad := range []any{beside(found[1]+found[2], -1), beside(found[3], +1)} {
		if bad == nil {
			continue
		}
		m := mapping(t, d.example)
		m[f.Tag.Get("yaml")] = bad
		if list, ok := mapping(t, d.example)[f.Tag.Get("yaml")].([]any); ok {
			list[0] = bad
			m[f.Tag.Get("yaml")] = list
		}
		if whole := labWith(t, in, m, d.with); accepted(whole) {
			t.Errorf("the page says %q, and %v is accepted\n%s", text, bad, whole)
		}
	}
}

func accepted(text []byte) bool {
	_, err := lab.Parse("examples/example.mcl.yml", text)
	return err == nil
}

// beside returns the next value below or above a bound, or nil if none can be written.
func beside(bound string, step float64) any {
	i := strings.LastIndexAny(bound, "0123456789") + 1
	v, err := strconv.ParseFloat(bound[:i], 64)
	if err != nil || bound == "" || v == 0 && i < len(bound) || v > math.MaxInt32 {
		return nil
	}
	switch unit := bound[i:]; {
	case unit != "":
		return fmt.Sprintf("%v%s", beyond(v, step), unit)
	case v != math.Trunc(v):
		return beyond(v, step)
	}
	return int(v + step)
}

func beyond(v, step float64) float64 { return v * (1 + step/100) }

// labSchema returns a function that validates lab files against the schema for editors.
func labSchema(t *testing.T) func([]byte) error {
	t.Helper()
	text, err := lab.Schema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("lab.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("lab.json")
	if err != nil {
		t.Fatal(err)
	}
	return func(text []byte) error {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
		if err != nil {
			return err
		}
		return s.Validate(v)
	}
}
