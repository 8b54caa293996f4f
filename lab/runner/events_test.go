// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/internal/checksum"
	"github.com/mcastlab/mcastlab/lab"
)

// TestRotate: full files are put aside, the newest are kept, and lost events are counted.
func TestRotate(t *testing.T) {
	folder, err := makeFolder(t.TempDir(), "x")
	if err != nil {
		t.Fatal(err)
	}
	e := &eventFiles{folder: folder}
	if err := e.open(); err != nil {
		t.Fatal(err)
	}
	lost := uint64(0)
	for i := range uint64(oldEventFiles + 2) {
		if _, err := io.WriteString(e.f, "line\n"); err != nil {
			t.Fatal(err)
		}
		_, l, err := e.rotate(10 + i)
		if err != nil {
			t.Fatal(err)
		}
		lost += l
	}
	if err := e.close(); err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob(filepath.Join(folder.Path(), "*"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range all {
		names = append(names, filepath.Base(f))
	}
	want := []string{"events-3.jsonl", "events-4.jsonl", "events-5.jsonl", "events-6.jsonl", "events.jsonl"}
	if !slices.Equal(names, want) || lost != 10+11 {
		t.Errorf("files %v, %d lines given up; want %v and 21", names, lost, want)
	}
	if b, err := os.ReadFile(filepath.Join(folder.Path(), oldEvents(3))); err != nil || string(b) != "line\n" {
		t.Errorf("events-3.jsonl holds %q, %v", b, err)
	}
}

// TestFilesEnd: the events of a run end with their number, and a summary that was cut anywhere is
// refused.
func TestFilesEnd(t *testing.T) {
	l, err := lab.Parse("lab.mcl.yml", []byte("name: ends\ntopology: {star: {hosts: 2}}\nworkloads:\n  - bcast: {schemes: [unicast], sizes: [1kB], iterations: 1}\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Simulate(t.Context(), l, Options{Base: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(r.RunDir, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	if want := fmt.Sprintf(`{"event":"end","value":%d,"crc32c":%q}`, len(lines)-1, checksum.Sum(b[:len(b)-len(lines[len(lines)-1])-1])); string(lines[len(lines)-1]) != want {
		t.Errorf("the last event is %s, want %s", lines[len(lines)-1], want)
	}
	name := filepath.Join(r.RunDir, "summary.json")
	if b, err = os.ReadFile(name); err != nil {
		t.Fatal(err)
	}
	cut := t.TempDir()
	for n := 0; n < len(b)-1; n += 7 { // without its last newline nothing is missing
		if err := os.WriteFile(filepath.Join(cut, "summary.json"), b[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Compare(r.RunDir, cut); err == nil {
			t.Errorf("%d of %d bytes of a summary are taken for it", n, len(b))
		}
	}
}

// TestEventsTraced: a trace, which has causes before effects, changes nothing of the events, whose order within an instant is that of the
// nodes. Both flows that meet at h3 bring queue pairs up at 4 us, h5 first.
func TestEventsTraced(t *testing.T) {
	var seen [2][]byte
	for i, trace := range []string{"", "trace: messages\n"} {
		text := "name: traced\ntopology: {star: {hosts: 6}}\n" + trace + "workloads:\n  - flows: {flows: [{name: a, from: h3, to: [h4], end: 1us}, {name: b, from: h5, to: [h3], end: 1us}, {name: c, from: h1, to: [h5], end: 1us}]}\n"
		l, err := lab.Parse("lab.mcl.yml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		r, err := Simulate(t.Context(), l, Options{Base: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		if seen[i], err = os.ReadFile(filepath.Join(r.RunDir, "events.jsonl")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(seen[0], seen[1]) {
		t.Errorf("without a trace the events are\n%s\nand with one\n%s", seen[0], seen[1])
	}
	if n := bytes.Count(seen[0], []byte(`"text":"RTS"`)); n < 6 {
		t.Errorf("%d queue pairs were brought up, and not 6", n)
	}
}
