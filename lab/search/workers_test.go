package search

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// TestLabsWorkers: drawn labs have the digest, the outcome and the events of one worker with several.
func TestLabsWorkers(t *testing.T) {
	count := uint64(40)
	if testing.Short() || os.Getenv("MCASTLAB_REQUIRE_TOOLS") == "" {
		count = 12
	}
	divided := 0
	for seed := range count {
		l, err := DrawLab(seed)
		if err != nil {
			t.Fatal(err)
		}
		l.Trace = ""
		one, events, ok := worked(t, l, 1)
		if !ok || l.Runtime.Channel == 0 {
			continue // it takes too long, or hosts reach each other in no time
		}
		got, e, ok := worked(t, l, 2+int(seed%7))
		if !ok {
			continue // frames that leave a part have events of their own, which the budget counts
		}
		divided++
		if got != one || !bytes.Equal(e, events) {
			t.Errorf("seed %d, %d workers: %s, and with one %s; equal events: %v", seed, 2+seed%7, got, one, bytes.Equal(e, events))
		}
	}
	if divided < int(count)/2 {
		t.Errorf("only %d of %d labs were divided", divided, count)
	}
}

// worked runs a lab, and returns its digest and how it ended, its events, and whether it came to its end within
// the budget of drawn labs.
func worked(t *testing.T, l *lab.Lab, workers int) (shown string, events []byte, ended bool) {
	t.Helper()
	base := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := &labWatch{cancel: cancel, budgets: 1}
	r, err := runner.Simulate(ctx, l, runner.Options{Base: base, Workers: workers, Progress: watch})
	if r == nil {
		t.Fatal(err)
	}
	events, rerr := os.ReadFile(filepath.Join(r.RunDir, "events.jsonl"))
	if rerr != nil {
		t.Fatal(rerr)
	}
	return fmt.Sprintf("digest %s, %s", r.Digest, strings.ReplaceAll(fmt.Sprint(err), base, "")), events, !watch.long
}
