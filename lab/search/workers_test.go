// SPDX-License-Identifier: Apache-2.0

package search

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// TestLabsWorkers: drawn labs have the digest, the outcome and the events of one worker with several.
func TestLabsWorkers(t *testing.T) {
	from, count := simlab.DaySeeds(t, 120)
	counts := []int{2, 3, 8}
	if testing.Short() {
		counts = []int{3}
	}
	divided := 0
	for seed := from; seed < from+count; seed++ {
		l, err := DrawLab(seed)
		if err != nil {
			t.Fatal(err)
		}
		l.Trace = ""
		one, events, ok := worked(t, l, 1)
		if !ok || l.Runtime.Channel == 0 {
			continue // it takes too long, or hosts reach each other in no time
		}
		whole := true
		for _, workers := range counts {
			got, e, ok := worked(t, l, workers)
			if !ok {
				whole = false // frames that leave a part have events of their own, which the budget counts
				continue
			}
			if got != one || !bytes.Equal(e, events) {
				t.Errorf("seed %d, %d workers: %s, and with one %s; equal events: %v\nreplay: go test ./lab/search -run 'TestLabsWorkers$' -from %d -seeds 1",
					seed, workers, got, one, bytes.Equal(e, events), seed)
			}
		}
		if whole {
			divided++
		}
	}
	t.Logf("seeds %d..%d: %d labs the same with 1 and %v workers", from, from+count-1, divided, counts)
	if divided < int(count)/2 {
		t.Errorf("only %d of %d labs were divided", divided, count)
	}
}

// worked runs a lab, and returns its digest and outcome, its events, and whether it ended within the budget of
// drawn labs.
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
