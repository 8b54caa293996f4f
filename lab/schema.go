// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/invopop/jsonschema"
)

// SchemaID names the JSON schema of lab files.
const SchemaID = "https://github.com/mcastlab/mcastlab/lab/v1"

// Schema returns the JSON schema of lab files, made from the types, for editors.
func Schema() ([]byte, error) {
	r := jsonschema.Reflector{
		FieldNameTag: "yaml", RequiredFromJSONSchemaTags: true, Mapper: mapScalar, Anonymous: true, Namer: definition,
	}
	s := r.Reflect(&Lab{})
	s.ID = SchemaID
	s.Title = "mcastlab lab file"
	for _, t := range structs(reflect.TypeFor[Lab](), nil) {
		describe(s.Definitions[definition(t)], t)
	}
	for name, short := range map[string]*jsonschema.Schema{ // each is its own definition
		"PFC":        {Type: "boolean"},
		"ECN":        {Type: "boolean"},
		"Watchdog":   {Type: "boolean"},
		"CNPFilter":  {Type: "boolean"},
		"Scheme":     {Type: "string"},
		"CustomLink": {Type: "string"},
	} {
		full := s.Definitions[name]
		s.Definitions[name] = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{short, full}}
	}
	// A scheme with parameters: {chain: {slices: 4}}, or a program of the user's own.
	one, own := uint64(1), jsonschema.NewProperties()
	own.Set("program", &jsonschema.Schema{Type: "string"})
	s.Definitions["Scheme"].AnyOf = append(s.Definitions["Scheme"].AnyOf, &jsonschema.Schema{
		Type: "object", MinProperties: &one, MaxProperties: &one,
		Properties: own, AdditionalProperties: &jsonschema.Schema{Type: "object"},
	})
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("make schema: %w", err)
	}
	return append(out, '\n'), nil
}

// definition returns the schema's name of a type: settings of workloads have the name of their kind.
func definition(t reflect.Type) string {
	kinds := reflect.TypeFor[Workload]()
	for i := range kinds.NumField() {
		if kinds.Field(i).Type.Elem() == t {
			return kinds.Field(i).Name
		}
	}
	return strings.TrimSuffix(t.Name(), "Settings")
}

// structs lists the struct types a type is made of.
func structs(t reflect.Type, seen []reflect.Type) []reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return seen
	}
	for _, s := range seen {
		if s == t {
			return seen
		}
	}
	seen = append(seen, t)
	for i := range t.NumField() {
		seen = structs(t.Field(i).Type, seen)
	}
	return seen
}

// describe takes documentation, defaults, choices and required keys from the tags.
func describe(s *jsonschema.Schema, t reflect.Type) {
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		p, ok := s.Properties.Get(tag.Get("yaml"))
		if !ok {
			continue
		}
		if p.Ref != "" { // a reference stands alone in older drafts: keep both
			p = &jsonschema.Schema{AllOf: []*jsonschema.Schema{{Ref: p.Ref}}}
			s.Properties.Set(tag.Get("yaml"), p)
		}
		p.Description = tag.Get("doc")
		if t.Field(i).Type == reflect.TypeFor[[]string]() { // a word may look like a number: args: [3]
			p.Items = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string"}, {Type: "number"}, {Type: "boolean"}}}
		}
		if d := tag.Get("default"); d != "" {
			p.Default = d
		}
		if e := tag.Get("enum"); e != "" {
			for _, w := range strings.Split(e, ",") {
				switch p.Type {
				case "string":
					p.Enum = append(p.Enum, w)
				case "integer":
					p.Enum = append(p.Enum, json.Number(w))
				}
			}
		}
		if tag.Get("required") != "" {
			s.Required = append(s.Required, tag.Get("yaml"))
		}
	}
}

// mapScalar gives values with units their patterns.
func mapScalar(t reflect.Type) *jsonschema.Schema {
	pattern := func(p string) *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Pattern: p} }
	numberOr := func(word string) *jsonschema.Schema {
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "integer"}, {Type: "string", Enum: []any{word}}}}
	}
	switch t {
	case reflect.TypeFor[Rate]():
		return pattern(`^[0-9.]+ ?(T|G|M|k)?bps$`)
	case reflect.TypeFor[Size]():
		return pattern(`^[0-9.]+ ?(TiB|GiB|MiB|KiB|TB|GB|MB|kB|KB|B)$`)
	case reflect.TypeFor[Duration]():
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{pattern(`^[0-9.]+ ?(s|ms|us|ns|ps)$`), {Type: "integer", Enum: []any{0}}}}
	case reflect.TypeFor[Timeout]():
		return pattern(`^([0-9.]+ ?(s|ms|us|ns|ps)|infinite)$`)
	case reflect.TypeFor[Retries]():
		return numberOr(infinite)
	case reflect.TypeFor[Iterations]():
		return numberOr("auto")
	case reflect.TypeFor[Dilation]():
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "number", Minimum: "1"}, {Type: "string", Enum: []any{"auto"}}}}
	case reflect.TypeFor[Count]():
		return numberOr("ranks")
	case reflect.TypeFor[Probability]():
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "number"}, pattern(`^[0-9.]+( ?%|e-[0-9]+)$`)}}
	case reflect.TypeFor[Share]():
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "integer", Minimum: "1"}, pattern(`^([0-9]+%|all)$`)}}
	case reflect.TypeFor[Number]():
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "integer", Minimum: "0"}, pattern(`^0x[0-9a-fA-F]+$`)}}
	case reflect.TypeFor[Class]():
		return &jsonschema.Schema{Type: "integer", Minimum: "0", Maximum: "63"}
	case reflect.TypeFor[PSNs]():
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "integer", Minimum: "0"}, pattern(`^[0-9]+(\.\.[0-9]+)?$`)}}
	case reflect.TypeFor[Value]():
		return &jsonschema.Schema{}
	case reflect.TypeFor[Hosts](), reflect.TypeFor[Names]():
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
			{Type: "string"}, {Type: "array", Items: &jsonschema.Schema{Type: "string"}},
		}}
	}
	return nil
}
