// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/checksum"
	"github.com/mcastlab/mcastlab/internal/test/sweeps"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/traces/explain"
)

// kept is a folder of a run that has every file that is read again, and the files.
func kept(t *testing.T) (l *lab.Lab, dir string, files map[string][]byte) {
	t.Helper()
	l, err := lab.Parse("kept.mcl.yml", []byte(`name: kept
topology: {star: {hosts: 3}}
trace: messages
nics: {timeout: 262us}
workloads:
  - bcast: {schemes: [cepheus, chain], sizes: [1B, 9kB], iterations: 2}
faults:
  - {loss: {links: h2-leaf0, frames: {kind: data}, nth: [3]}}
expect: [bcast.cepheus.9kB.jct.avg < bcast.chain.9kB.jct.avg * 1.5]
`))
	if err != nil {
		t.Fatal(err)
	}
	all := ""
	report, err := runner.Simulate(t.Context(), l, runner.Options{Base: t.TempDir(), Acts: []faults.Act{{At: 5_000_000, Reset: &all}, {At: 9_000_000, Reset: &all}}})
	if err != nil {
		t.Fatal(err)
	}
	files = map[string][]byte{}
	for _, name := range []string{"meta.json", "summary.json", "counters.json", runner.LabFile, "events.jsonl", runner.TraceFile, runner.ActsFile} {
		b, err := os.ReadFile(filepath.Join(report.RunDir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = b
	}
	return l, report.RunDir, files
}

func text(v any) string {
	b, err := json.Marshal(v)
	return fmt.Sprint(string(b), err)
}

// shownOf is all that is read of a run's folder, and all that is said of it.
func shownOf(l *lab.Lab, dir string) (shown, said string) {
	var out, words []string
	say := func(err error) {
		if err != nil {
			words = append(words, err.Error())
		}
	}
	r, err := Read(dir)
	if say(err); err == nil {
		out, words = append(out, HTML([]*Run{r})), append(words, r.Missing()...)
	}
	film, err := ReadFilm(dir)
	say(err)
	out = append(out, text(film))
	d, err := runner.Compare(dir, dir)
	say(err)
	out = append(out, text(d))
	acts, whole, err := runner.ReadActs(filepath.Join(dir, runner.ActsFile), l)
	say(err)
	if err == nil && !whole {
		words = append(words, runner.ActsFile+" has no end")
	}
	out = append(out, text(acts))
	if f, err := runner.OpenTrace(dir); err == nil {
		t, err := explain.Read(f)
		_ = f.Close() // it was only read
		if err != nil || t.Incomplete != "" {
			words = append(words, runner.TraceFile+" is damaged")
		} else {
			var b strings.Builder
			say(t.List().WriteText(&b))
			say(t.Table().WriteText(&b))
			out = append(out, b.String())
		}
	} else {
		say(err)
	}
	words = append(words, runner.Unsealed(dir)...)
	return strings.Join(out, "\n"), strings.Join(words, "\n")
}

// damages are ways in which a file comes back other than it was written.
func damages(b []byte, r *prng.Stream) map[string][]byte {
	lines := slices.Collect(bytes.Lines(b))
	i, k, at := r.IntN(len(lines)), r.IntN(len(lines)), r.IntN(len(b))
	join := func(all ...[][]byte) []byte { return bytes.Join(slices.Concat(all...), nil) }
	swapped := slices.Clone(lines)
	swapped[i], swapped[k] = swapped[k], swapped[i]
	flipped, digit := bytes.Clone(b), bytes.Clone(b)
	flipped[at] ^= 1 << r.IntN(8)
	for n := range digit { // one digit more or less still is a number
		if c := digit[(at+n)%len(b)]; c >= '1' && c <= '8' {
			digit[(at+n)%len(b)]++
			break
		}
	}
	return map[string][]byte{
		"a bit flipped": flipped, "a digit changed": digit, "cut": b[:at], "a line dropped": join(lines[:i], lines[i+1:]),
		"lines swapped": join(swapped), "a line doubled": join(lines[:i+1], lines[i:]), "lines at the end dropped": join(lines[:i]), "zeros": append(bytes.Clone(b[:at]), make([]byte, len(b)-at)...),
	}
}

// TestDamages: for a run's folder with a damaged file, the page is the same as before, or names the file.
func TestDamages(t *testing.T) {
	l, dir, files := kept(t)
	want, said := shownOf(l, dir)
	if said != "" {
		t.Fatalf("of a whole folder: %s", said)
	}
	names := []string{}
	for name := range files { // sorted below
		names = append(names, name)
	}
	slices.Sort(names)
	for seed := range 12 {
		if !sweeps.Takes(t, seed) {
			continue
		}
		for _, name := range names {
			r := prng.New(uint64(seed))
			for how, bad := range damages(files[name], &r) { // independent of each other
				if bytes.Equal(bad, files[name]) {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, name), bad, 0o600); err != nil {
					t.Fatal(err)
				}
				if got, said := shownOf(l, dir); got != want && !strings.Contains(said, name) {
					t.Errorf("seed %d, %s: %s: something else is shown, and all that is said is %q", seed, name, how, said)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, name), files[name], 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestUnsealed: the folder of a version that wrote no checksums is shown as it was, with a word about each file.
func TestUnsealed(t *testing.T) {
	l, dir, files := kept(t)
	want, _ := shownOf(l, dir)
	var names []string
	for name, b := range files { // independent of each other
		var old []byte
		switch at := bytes.LastIndex(b, []byte(checksum.Key)); {
		case strings.HasSuffix(name, ".yml"):
			old = b[:at-len("# ")]
		case name == runner.ActsFile:
			old = b[:bytes.LastIndex(b, []byte(`{"end"`))]
		case strings.HasSuffix(name, ".jsonl"):
			old = append(bytes.Clone(b[:at-len(`,"`)]), "}\n"...)
		default:
			old = append(bytes.Clone(b[:at-len(",\n  \"")]), "\n}\n"...)
		}
		if err := os.WriteFile(filepath.Join(dir, name), old, 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	got, said := shownOf(l, dir)
	if got != want {
		t.Error("something else is shown")
	}
	for _, name := range names {
		if !strings.Contains(said, name) {
			t.Errorf("nothing is said of %s: %s", name, said)
		}
	}
}

// TestCutShort: events whose end is missing are not taken for those of a run that was killed, nor are those of a file that
// was put aside.
func TestCutShort(t *testing.T) {
	_, dir, files := kept(t)
	events := files["events.jsonl"]
	short := events[:bytes.LastIndex(events, []byte("{"))]
	for _, name := range []string{"events.jsonl", "events-1.jsonl"} {
		if err := os.WriteFile(filepath.Join(dir, name), short, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Read(dir)
		if err != nil || len(r.Missing()) != 1 || !strings.Contains(r.Missing()[0], name+": it has no end, although the run has ended") {
			t.Errorf("%s: %v, %q", name, err, r.Missing())
		}
		if err := os.WriteFile(filepath.Join(dir, "events.jsonl"), events, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
