// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/registry"
	"github.com/mcastlab/mcastlab/internal/test/golden"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/rank/collective"
)

const labFileHead = `# The lab file

This page is made from the types of package ` + "`lab`" + ` (` + "`go test ./internal/test/house -run LabFilePage -rewrite`" + `).

A lab file is YAML and ends in ` + "`.mcl.yml`" + `. It is strict: an unknown key is an error with line, column and the key that was probably meant.
All that is wrong is told at once, up to 20 mistakes, and ` + "`validate`, `run` and `deploy`" + ` check whether a run measures what ` + "`expect`" + ` names.
Values carry units: rates ` + "`100Gbps`, times `600ns`, sizes `64KiB` (`KiB` is 1024 bytes, `kB` 1000). `mcastlab validate --resolved`" + ` prints a lab
with every default written out. A time is at most a day (` + "`86400s`" + `), one that each packet,
message or hop takes at most a second, and a run in simulation ends with an error after 100 days of lab time. A lab has at most 65,536 hosts.

An example shows the key in its mapping; a test reads each of them as part of a lab. "With" says what else the lab then needs.

## In an editor

` + "`mcastlab schema`" + ` prints the JSON schema of lab files. An editor that has it completes keys and values, shows what they mean and marks what is
wrong. Write it to a file beside the labs:

    mcastlab schema > lab.schema.json

Then either the first line of a lab file names it, relative to the lab, for every editor with the YAML language server:

` + "```yaml\n# yaml-language-server: $schema=lab.schema.json\n```" + `

or the settings of VS Code (with the YAML extension of Red Hat) name it for all lab files of a folder, in ` + "`.vscode/settings.json`" + `:

` + "```json\n{\n  \"yaml.schemas\": {\n    \"./lab.schema.json\": \"*.mcl.yml\"\n  }\n}\n```" + `
`

const labFileShorthands = "\n## Shorthands\n\n`true` and `false` set `enabled` of `pfc`, `ecn`, `watchdog` and `cnp-filter`. A scheme may be its name alone, or its name with parameters: `{chain: {slices: 4}}`, `{k-nomial: {radix: 4}}`, `{rdmc: {block: 1MiB}}`, `{multicast: {parallel: 2}}`.\n" +
	"A custom link may be its ends alone: `a:0-b:3`. `ranks: all` means every host.\n"

// TestLabFilePage makes docs/lab-file.md of the types of package lab.
func TestLabFilePage(t *testing.T) {
	var b strings.Builder
	b.WriteString(labFileHead)
	all := sections("", reflect.TypeFor[lab.Lab](), nil)
	for _, s := range all {
		s.write(&b, all)
	}
	b.WriteString(labFileShorthands)
	b.WriteString("\n## Schemes\n\n| workload | scheme | parameters, with defaults |\n|---|---|---|\n")
	for _, e := range registry.All() {
		if k, ok := e.Kind.(apps.Collective); ok {
			all := k.Algorithms()
			for _, name := range all.Names {
				fmt.Fprintf(&b, "| %s | `%s` | %s |\n", e.Name, name, parameters(all.Parameters(name)))
			}
		}
	}
	golden.Compare(t, "docs/lab-file.md", b.String())
}

func parameters(all []collective.Parameter) string {
	var words []string
	for _, p := range all {
		def := fmt.Sprint(p.Default)
		switch {
		case p.Name == "block" || p.Name == "chunk":
			def = lab.Size(p.Default).String()
		case p.Default == 0:
			def = "ranks"
		}
		words = append(words, fmt.Sprintf("`%s: %s`", p.Name, def))
	}
	return strings.Join(words, ", ")
}

// section is a part of the page: the keys of one type.
type section struct {
	path string // of the first key that has the type
	more []string
	t    reflect.Type
}

// sections lists a mapping and those in it. A type that several keys have is one section.
func sections(path string, t reflect.Type, all []*section) []*section {
	all = append(all, &section{path: path, t: t})
	for i := range t.NumField() {
		f := t.Field(i)
		e := element(f.Type)
		if e.Kind() != reflect.Struct {
			continue
		}
		if s := sectionOf(all, e); s == nil {
			all = sections(below(path, f.Tag.Get("yaml")), e, all)
		} else if strings.HasPrefix(s.path, path+".") && strings.Count(s.path, ".") == strings.Count(path, ".")+1 {
			s.more = append(s.more, f.Tag.Get("yaml"))
		}
	}
	return all
}

func sectionOf(all []*section, t reflect.Type) *section {
	for _, s := range all {
		if s.t == t {
			return s
		}
	}
	return nil
}

// element returns the type of the elements of a list or of a pointer's target.
func element(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
		t = t.Elem()
	}
	return t
}

// below returns the path of a key.
func below(path, key string) string { return strings.TrimPrefix(path+"."+key, ".") }

// title returns the section's heading.
func (s *section) title() string {
	if s.path == "" {
		return "The file"
	}
	words := []string{"`" + s.path + "`"}
	for _, m := range s.more {
		words = append(words, "`"+m+"`")
	}
	return strings.Join(words, ", ")
}

// anchor returns the fragment by which a page links to the section.
func (s *section) anchor() string {
	return strings.NewReplacer("`", "", ".", "", ",", "", " ", "-").Replace(strings.ToLower(s.title()))
}

// write writes the section's table.
func (s *section) write(b *strings.Builder, all []*section) {
	fmt.Fprintf(b, "\n## %s\n\n| key | meaning | values | default | example |\n|---|---|---|---|---|\n", s.title())
	docs := keyDocs()
	for i := range s.t.NumField() {
		f := s.t.Field(i)
		def := f.Tag.Get("default")
		if f.Tag.Get("required") != "" {
			def = "required"
		} else if def != "" {
			def = "`" + def + "`"
		}
		d := docs[below(s.path, f.Tag.Get("yaml"))]
		example := "`" + d.example + "`"
		if d.with != "" {
			example += " with `" + d.with + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", f.Tag.Get("yaml"), cell(f.Tag.Get("doc")), cell(valuesOf(d, f, all)), def, cell(example))
	}
}

// cell returns text as it stands in a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

// valuesOf returns the valid values of a key.
func valuesOf(d keyDoc, f reflect.StructField, all []*section) string {
	if d.values != "" {
		return d.values
	}
	if enum := f.Tag.Get("enum"); enum != "" {
		words := strings.Split(strings.TrimSuffix(enum, ","), ",")
		return "`" + strings.Join(words, "`, `") + "`"
	}
	e := element(f.Type)
	if e.Kind() == reflect.Struct {
		text := "a [mapping](#" + sectionOf(all, e).anchor() + ")"
		if f.Type.Kind() == reflect.Slice {
			text = "a list of [mappings](#" + sectionOf(all, e).anchor() + ")"
		}
		if _, ok := reflect.New(e).Interface().(interface{ Short(string) error }); ok {
			text = "`true`, `false`, or " + text
		}
		return text
	}
	return valuesOfType()[e]
}

// valuesOfType returns the valid values of types.
func valuesOfType() map[reflect.Type]string {
	return map[reflect.Type]string{
		reflect.TypeFor[bool]():            "`true`, `false`",
		reflect.TypeFor[lab.Rate]():        "1Mbps to 100Tbps",
		reflect.TypeFor[lab.Size]():        "0B to 1024TiB",
		reflect.TypeFor[lab.Duration]():    "0 to 86400s",
		reflect.TypeFor[lab.Timeout]():     "0 to 8796.093022208s, or `infinite`",
		reflect.TypeFor[lab.Retries]():     "0 to 6, or `infinite`",
		reflect.TypeFor[lab.Iterations]():  "1 to 16777215, or `auto`",
		reflect.TypeFor[lab.Count]():       "1 to 1048575, or `ranks`",
		reflect.TypeFor[lab.Dilation]():    "1 to 10000000, or `auto`",
		reflect.TypeFor[lab.Probability](): "0 to 1, or 0% to 100%",
		reflect.TypeFor[lab.Share]():       "1 to the number of hosts, 1% to 100%, or `all`",
		reflect.TypeFor[lab.Number]():      "0 to 18446744073709551615, or 0x and hexadecimal",
		reflect.TypeFor[lab.Class]():       "0 to 63",
		reflect.TypeFor[lab.PSNs]():        "0 to 16777215, or a range of them",
	}
}
