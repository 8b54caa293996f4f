// SPDX-License-Identifier: Apache-2.0

package house

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/rank"
)

// A keyRun is a lab in which a key changes a run, for a key whose example in keyDocs changes none.
type keyRun struct {
	lab   string // what is added to leastLab, as a mapping without braces
	at    string // path of the key there, as in workloads[0].bcast.root; empty: the key's, with [0] after lists
	value string
	other string // value in the run that it is compared with; empty: the mapping without the key
	ends  bool   // a run may end with an error
	shown bool   // it changes only what is printed or written, and not what moves
	still string // why it changes no run on the event clock; of all keys below it, too
}

// A keyTrace holds the compared results of a run.
type keyTrace struct {
	moved string // digest and counters, or the error that ended the run
	shown string // table, report, files
	ended bool   // by an error
}

// traceOf runs a lab on the event clock.
func traceOf(t *testing.T, text []byte) (k keyTrace, err error) {
	t.Helper()
	l, err := lab.Parse("examples/example.mcl.yml", text)
	if err != nil {
		return k, err
	}
	o := runner.Options{Base: t.TempDir()}
	o.Env.Programs = []rank.Program{{Name: "ring-sum", Run: greet}, {Name: "greet", Run: greet}, {Name: "idle", Run: func(*rank.Rank, []string) error { return nil }}}
	r, err := runner.Simulate(t.Context(), l, o)
	if err != nil {
		return keyTrace{moved: err.Error(), ended: true}, nil
	}
	dir := r.RunDir
	counted, err := os.ReadFile(filepath.Join(dir, "counters.json"))
	if err != nil {
		return k, err
	}
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil {
		return k, err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return k, err
	}
	for _, f := range files {
		fmt.Fprintln(&table, f.Name())
	}
	r.RunDir = ""
	report, err := json.Marshal(r)
	k.moved = r.Digest + string(counted)
	k.shown = strings.ReplaceAll(table.String()+string(report), dir, "")
	return k, err
}

// greet is a program whose second rank sends eight bytes, and one for each argument, to the first, which is not ready.
func greet(r *rank.Rank, args []string) error {
	b, err := r.Alloc(8+len(args), rank.MemoryBytes)
	if err != nil || r.ID() > 1 {
		return err
	}
	c, err := r.Connect(1 - r.ID())
	if err != nil {
		return err
	}
	move := c.Send
	if r.ID() == 0 {
		r.Sleep(20 * vtime.Microsecond)
		move = c.Recv
	}
	q, err := move(b, 0, 8+len(args))
	if err != nil {
		return err
	}
	return r.Wait(q)
}

// pathIn returns the path of a key with [0] after each list in it.
func pathIn(t *testing.T, path string) string {
	t.Helper()
	var b strings.Builder
	words := strings.Split(path, ".")
	for i := range words {
		b.WriteString("." + words[i])
		if i < len(words)-1 && fieldAt(t, strings.Join(words[:i+1], ".")).Type.Kind() == reflect.Slice {
			b.WriteString("[0]")
		}
	}
	return b.String()[1:]
}

// put gives the key at a path below m a value, or takes it out if the value is empty.
func put(t *testing.T, m map[string]any, path, value string) {
	t.Helper()
	word, rest, more := strings.Cut(path, ".")
	name, n, list := word, 0, false
	if i := strings.IndexByte(word, '['); i >= 0 {
		name, list = word[:i], true
		if _, err := fmt.Sscanf(word[i:], "[%d]", &n); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	if list {
		all, _ := m[name].([]any)
		for len(all) <= n {
			all = append(all, map[string]any{})
		}
		m[name] = all
		below, is := all[n].(map[string]any)
		if !is || !more {
			t.Fatalf("%s: %v is no mapping", path, all[n])
		}
		put(t, below, rest, value)
		return
	}
	if more {
		below, is := m[name].(map[string]any)
		if !is {
			below = map[string]any{}
			m[name] = below
		}
		put(t, below, rest, value)
		return
	}
	delete(m, name)
	if value != "" {
		var v any
		if err := yaml.Unmarshal([]byte(value), &v); err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		m[name] = v
	}
}

// labsOf returns the two labs of a key: with the value, and with the other one or without the key.
func labsOf(t *testing.T, path string, r keyRun) (with, without []byte) {
	t.Helper()
	at := r.at
	if at == "" {
		at = pathIn(t, path)
	}
	for i, value := range []string{r.value, r.other} {
		m := mapping(t, leastLab)
		for k, v := range mapping(t, r.lab) {
			m[k] = v
		}
		put(t, m, at, value)
		text, err := json.Marshal(m) // which is YAML
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			with = text
		} else {
			without = text
		}
	}
	return with, without
}

// exampleLabs returns the two labs of a key of which no keyRun says any: with its example, and with that less the key. Where
// a lab needs the key, as it needs a shape and workloads a kind, the other is the least one.
func exampleLabs(t *testing.T, in, key string, d keyDoc) (with, without []byte) {
	t.Helper()
	if d.in != "" {
		in = d.in
	}
	m := mapping(t, d.example)
	with = labWith(t, in, m, d.with)
	m = mapping(t, d.example)
	delete(m, key)
	if without = labWith(t, in, m, d.with); !accepted(without) && !strings.Contains(in, ".") {
		without = labWith(t, "", map[string]any{}, "")
	}
	return with, without
}

// stillFor returns why no run is changed by a key, of itself or of the mappings that it is in.
func stillFor(runs map[string]keyRun, path string) string {
	for {
		if why := runs[path].still; why != "" {
			return why
		}
		i := strings.LastIndexByte(path, '.')
		if i < 0 {
			return ""
		}
		path = path[:i]
	}
}

// TestLabFileRuns: each key of a lab file changes what moves in a run on the event clock, by its example or in the lab that
// keyRuns has for it: the digest, a counter, or the error that ends it. Of the others keyRuns says that they change what is
// printed, or why they change nothing.
func TestLabFileRuns(t *testing.T) {
	docs, runs, seen := keyDocs(), keyRuns(), map[string]bool{}
	for _, s := range sections("", reflect.TypeFor[lab.Lab](), nil) {
		for i := range s.t.NumField() {
			key := s.t.Field(i).Tag.Get("yaml")
			path := below(s.path, key)
			seen[path] = true
			if why := stillFor(runs, path); why != "" {
				with, without := exampleLabs(t, s.path, key, docs[path])
				a, err := traceOf(t, with)
				b, err2 := traceOf(t, without)
				if err == nil && err2 == nil && a.ended == b.ended && a.moved != b.moved {
					t.Errorf("%s: keyRuns says that it changes no run (%s), and it does", path, why)
				}
				continue
			}
			t.Run(path, func(t *testing.T) {
				r := runs[path]
				with, without := exampleLabs(t, s.path, key, docs[path])
				if r.value != "" {
					with, without = labsOf(t, path, r)
				}
				compareRuns(t, r, with, without)
			})
		}
	}
	for path := range runs {
		if !seen[path] {
			t.Errorf("keyRuns has %s, which no lab file has", path)
		}
	}
}

// compareRuns finds out whether two runs differ as a keyRun says.
func compareRuns(t *testing.T, r keyRun, with, without []byte) {
	t.Helper()
	a, err := traceOf(t, with)
	if err != nil {
		t.Fatalf("%v\n%s", err, with)
	}
	b, err := traceOf(t, without)
	if err != nil {
		t.Fatalf("%v\n%s", err, without)
	}
	switch {
	case r.shown && a.moved != b.moved:
		t.Errorf("keyRuns says that it changes only what is printed, and it changes the run")
	case r.shown && a.shown == b.shown || !r.shown && a.moved == b.moved:
		t.Errorf("it changes nothing of a run: keyRuns needs a lab in which it does, or why it does in none\n%s\n%s", with, without)
	}
	if (a.ended || b.ended) != r.ends {
		t.Errorf("a run ends with an error: %t: %.200s\n%.200s", !r.ends, a.moved, b.moved)
	}
}
