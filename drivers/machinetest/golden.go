package machinetest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

// rewrite makes Golden write its input instead of comparing.
var rewrite = flag.Bool("rewrite", false, "write golden transcripts instead of comparing; commit the change only if you understand it")

// Golden compares a transcript with testdata/name.txt.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (make it with: go test -run '^%s$' -rewrite)", err, t.Name())
	}
	if string(want) != got {
		t.Errorf("transcript differs from %s (rewrite with: go test -run '^%s$' -rewrite)\n--- got\n%s--- want\n%s", file, t.Name(), got, want)
	}
}
