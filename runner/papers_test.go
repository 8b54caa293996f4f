package runner

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/lab"
)

// slow returns why a lab of a paper is not run with all other tests: what it took where it
// was measured. MCASTLAB_SOAK=1, or make papers, runs all.
func slow() map[string]string {
	return map[string]string{}
}

// TestPapers: each lab that is held against a paper runs and meets all that it expects,
// and what is expected of its times says whether it was predicted.
func TestPapers(t *testing.T) {
	files, err := filepath.Glob("../examples/papers/*.mcl.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d labs, %v", len(files), err)
	}
	labs := map[string]bool{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".mcl.yml")
		labs[name] = true
		t.Run(name, func(t *testing.T) {
			if why := slow()[name]; why != "" && os.Getenv("MCASTLAB_SOAK") == "" {
				t.Skipf("took %s: MCASTLAB_SOAK=1 runs it", why)
			} else if testing.Short() {
				t.Skip("some seconds")
			}
			runPaper(t, file)
		})
	}
	for name := range slow() {
		if !labs[name] {
			t.Errorf("%s is said to be slow, and there is no such lab", name)
		}
	}
}

func runPaper(t *testing.T, file string) {
	l, err := lab.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Expect) == 0 {
		t.Error("the lab expects nothing")
	}
	start := time.Now()
	r, err := Simulate(context.Background(), l, Options{Base: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range r.Failures() {
		t.Error(line)
	}
	for _, e := range r.Expect {
		if e.Got != nil {
			t.Logf("%10.4f  %s", *e.Got, e.Text)
		}
	}
	t.Logf("%s: %d expectations, %.1f s, %d MiB", l.Name, len(r.Expect), time.Since(start).Seconds(), memoryBytes()>>20)
}
