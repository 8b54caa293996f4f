package runner

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestRotate: full files are put aside, the newest are kept, and what is given up is
// counted.
func TestRotate(t *testing.T) {
	e := &eventFiles{dir: t.TempDir()}
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
	all, err := filepath.Glob(filepath.Join(e.dir, "*"))
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
	if b, err := os.ReadFile(e.name(3)); err != nil || string(b) != "line\n" {
		t.Errorf("events-3.jsonl holds %q, %v", b, err)
	}
}
