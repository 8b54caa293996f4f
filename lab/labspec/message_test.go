// SPDX-License-Identifier: Apache-2.0

package labspec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/golden"
	"github.com/mcastlab/mcastlab/lab"
)

// examples returns the lab files of a folder and below it.
func examples(t testing.TB, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".mcl.yml") {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%d lab files in %s, %v", len(files), dir, err)
	}
	return files
}

func encode(t testing.TB, l *lab.Lab) []byte {
	t.Helper()
	b, err := Encode(l)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// settings returns a lab's parameters for runtimes: those of switches and NICs, those of ranks, and faults, each in its own
// message.
func settings(t *testing.T, l *lab.Lab) (all []any) {
	t.Helper()
	g, err := Graph(l)
	if err != nil {
		t.Fatal(err)
	}
	timeline, err := Timeline(l, g)
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, Fabric(l, g), RankParams(l), Keeps(l, g), string(l.Resolved()))
	for i := range timeline {
		b, err := faults.Encode(&timeline[i], g)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(b))
	}
	return all
}

// TestMessage: every lab of the examples comes out of its message as it went in, and gives machines,
// ranks and faults the same settings. Its message has the same bytes again.
func TestMessage(t *testing.T) {
	for _, file := range append(examples(t, filepath.Join("..", "..", "examples")), examples(t, "testdata")...) {
		l, err := lab.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		b := encode(t, l)
		got, err := Decode(b)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !reflect.DeepEqual(got, l) {
			t.Errorf("%s came back as\n%s\nand was\n%s", file, got.Resolved(), l.Resolved())
		}
		if !reflect.DeepEqual(settings(t, got), settings(t, l)) {
			t.Errorf("%s has other settings when it comes back", file)
		}
		if again := encode(t, got); !bytes.Equal(again, b) {
			t.Errorf("%s:\n%s\ncomes back as\n%s", file, b, again)
		}
	}
}

// TestMessageCut: a message that was cut off anywhere is an error.
func TestMessageCut(t *testing.T) {
	for _, file := range examples(t, "testdata") {
		l, err := lab.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		b := encode(t, l)
		for n := range b {
			if _, err := Decode(b[:n:n]); err == nil {
				t.Fatalf("%s is taken for a lab", b[:n])
			}
		}
	}
}

// TestMessageGolden: the bytes of messages do not change under the schema's name, since logs hold them.
// If a new key changes them, its default is not the zero value: the message of a lab from before the
// key would mean another lab, and needs another schema.
func TestMessageGolden(t *testing.T) {
	var all []byte
	for _, file := range examples(t, "testdata") {
		l, err := lab.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(append(all, encode(t, l)...), '\n')
	}
	golden.Compare(t, "testdata/labs.golden", string(all))
}

// fill gives every field of a value another value than zero, and returns the number of fields.
func fill(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		return fill(v.Index(0))
	case reflect.Array:
		for i := range v.Len() {
			n += fill(v.Index(i))
		}
		return n
	case reflect.Struct:
		for i := range v.NumField() {
			n += fill(v.Field(i))
		}
		return n
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Int, reflect.Int64:
		v.SetInt(-1)
	default:
		v.SetUint(1)
	}
	return 1
}

// TestMessageCarriesAll: each field of a lab is in its message, under the name and in the form of
// testdata/fields.golden, and comes back. A new key adds a field to that file and changes no other.
func TestMessageCarriesAll(t *testing.T) {
	var m, back message
	if n := fill(reflect.ValueOf(&m).Elem()); n < 300 {
		t.Errorf("a lab has %d values", n)
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, m) {
		t.Errorf("came back as\n%+v\nand was\n%+v", back.Lab, m.Lab)
	}
	var lines bytes.Buffer
	if err := json.Indent(&lines, b, "", " "); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/fields.golden", lines.String()+"\n")
}

// TestMessageNames: each field of a lab and of its parts has a name for messages in a tag of its own,
// and is left out when it is zero, so that a new key leaves the messages of other labs as they are.
func TestMessageNames(t *testing.T) {
	tag := regexp.MustCompile(`^[a-z][a-zA-Z0-9]*,omitzero$`)
	seen := map[reflect.Type]bool{}
	var look func(reflect.Type)
	look = func(x reflect.Type) {
		switch x.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array:
			look(x.Elem())
		case reflect.Struct:
			if seen[x] {
				return
			}
			seen[x] = true
			names := map[string]bool{}
			for i := range x.NumField() {
				f := x.Field(i)
				if name := f.Tag.Get("json"); !tag.MatchString(name) || names[strings.ToLower(name)] || !f.IsExported() {
					t.Errorf(`%v.%s: give it a name for messages in a tag, json:"name,omitzero", that no other field has`, x, f.Name)
				} else {
					names[strings.ToLower(name)] = true
				}
				look(f.Type)
			}
		}
	}
	look(reflect.TypeFor[lab.Lab]())
	if len(seen) < 40 {
		t.Errorf("only %d structs", len(seen))
	}
}

// TestMessageRefused: invalid messages are refused, each with one line that names the reason.
func TestMessageRefused(t *testing.T) {
	l, _ := read(t, star+"workloads: [{bcast: {schemes: [cepheus], sizes: [1KiB]}}]\n")
	good := string(encode(t, l))
	with := func(old, new string) string {
		t.Helper()
		if strings.Count(good, old) != 1 {
			t.Fatalf("%s is not once in %s", old, good)
		}
		return strings.Replace(good, old, new, 1)
	}
	for in, want := range map[string]string{ // each by itself
		"":                                       `it is no message of schema "mcastlab/lab/v1": unexpected end`,
		string(l.Resolved()):                     `it is no message of schema "mcastlab/lab/v1": invalid character`, // of versions that sent a file
		`{"schema":"mcastlab/lab/v2","color":1}`: `"mcastlab/lab/v2", and this version reads "mcastlab/lab/v1"`,
		`{"name":"x"}`:                           `the schema is "", and this version reads`,
		`{"schema":"mcastlab/lab/v1"}`:           `links.rate cannot be 0bps`,
		`[]`:                                     `it is no message of schema`,
		with(`"seed":1`, `"seed":1,"color":1`):   `unknown field "color"`,
		with(`"hosts":4`, `"hosts":4,"color":1`): `unknown field "color"`,
		with(`"seed":1`, `"seed":-1`):            `cannot unmarshal`,
		with(`"seed":1`, `"seed":"1"`):           `cannot unmarshal`,
		good + "{}":                              `invalid character`,
		good + " ":                               fmt.Sprintf(`byte %d is not what this version writes`, len(good)),
		" " + good:                               `byte 0 is not`,
		with(`"seed":1`, `"seed":1,"seed":1`):    `is not what this version writes`,
		with(`"seed":1`, `"SEED":1`):             `is not what this version writes`,
		with(`,"trace":"none"`, ``):              `trace is missing`,
		with(`"seed":1`, `"seed":1.0`):           `cannot unmarshal`,
		with(`,"label":"cepheus"`, ``):           `is not what this version writes`, // the check fills it in
		with(`"name":"x"`, `"name":"X"`):         `"X" cannot be the name of a lab`,
		with(`"hosts":4`, `"hosts":400`):         `topology`,
		with(`"hosts":4`, `"hosts":4294967300`):  `topology.star.hosts cannot be 4294967300`,
		with(`"rate":100000000000`, `"rate":7`):  `links.rate cannot be 7bps`,
		with(`"delay":600000`, `"delay":-1`):     `links.delay cannot be -1ps`,
		with(`"sizes":[1024]`, `"sizes":[-4]`):   `workloads[0].bcast.sizes[0] cannot be -4B`,
		with(`"timeout":10`, `"timeout":40`):     `nics.timeout cannot be`,
		with(`"retries":7`, `"retries":8`):       `nics.retries of 8`,
		with(`"mtu":4096`, `"mtu":9000`):         `nics.mtu cannot be "9000"`,
		with(`"mtu":4096,`, ``):                  `nics.mtu cannot be "0"`,
		with(`{"star":{"hosts":4}}`, `{}`):       `topology has 0 shapes`,
		with(`[{"bcast":`, `[{},{"bcast":`):      `a workload needs one kind`,
	} {
		_, err := Decode([]byte(in))
		if err == nil || !strings.HasPrefix(err.Error(), "read lab: ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}

// TestMessageFiles: the message of a lab has the contents of a file that the lab named, and a message
// that names a file is refused, whether the file exists or not.
func TestMessageFiles(t *testing.T) {
	l, err := lab.Read(filepath.Join("..", "..", "examples", "hpl.mcl.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range l.Workloads {
		if h := l.Workloads[i].HPL; h != nil {
			h.Dat, h.N, h.NB, h.Grids, h.Bcast = "HPL.dat", nil, nil, nil, nil
		}
	}
	t.Chdir(filepath.Join("..", "..", "examples"))
	if _, err := Encode(l); err == nil || !strings.Contains(err.Error(), "the lab names file HPL.dat, which only a lab file can") {
		t.Errorf("a lab that names a file: %v", err)
	}
}

// TestEncodeRefused: a value that no message can carry is an error of the writer.
func TestEncodeRefused(t *testing.T) {
	l, _ := read(t, star+"workloads: [{program: {name: p, args: [a]}}]\n")
	l.Workloads[0].Program.Args[0] = "caf\xe9"
	if _, err := Encode(l); err == nil || !strings.Contains(err.Error(), "write lab x: byte ") {
		t.Errorf("text that is not UTF-8: %v", err)
	}
	l.Workloads[0].Program.Args[0] = strings.Repeat("a", messageMax)
	if _, err := Encode(l); err == nil || !strings.Contains(err.Error(), "are more than a message of a lab may have (2097152)") {
		t.Errorf("a long lab: %v", err)
	}
}

// FuzzDecode: whatever comes is refused with one line, or is a lab whose message it is. A lab file
// that is valid has a message, and comes out of it as it went in.
func FuzzDecode(f *testing.F) {
	for _, file := range append(examples(f, filepath.Join("..", "..", "examples")), examples(f, "testdata")...) {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		if l, err := lab.Read(file); err == nil {
			f.Add(encode(f, l))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, err := lab.Parse("fuzz", b); err == nil {
			message, err := Encode(l)
			if err != nil {
				if utf8.Valid(l.Resolved()) {
					t.Fatalf("%s: %v", l.Resolved(), err)
				}
				return
			}
			if got, err := Decode(message); err != nil || !reflect.DeepEqual(got, l) {
				t.Fatalf("%s: %v", message, err)
			}
		}
		l, err := Decode(b)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q", err)
			}
			return
		}
		if again := encode(t, l); !bytes.Equal(again, b) {
			t.Fatalf("%s comes back as %s", b, again)
		}
		if g, err := Graph(l); err != nil || Fabric(l, g).Graph != g {
			t.Fatalf("%s has no graph: %v", b, err)
		}
	})
}
