// SPDX-License-Identifier: Apache-2.0

package mcastlab

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// TestReadme: each line of output in the README is one that the command prints, in the same order.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(readme), "$ go run ./cmd/mcastlab run examples/quickstart.mcl.yml\n")
	shown, _, closed := strings.Cut(after, "```")
	if !ok || !closed {
		t.Fatal("README.md does not show the quickstart")
	}
	l, err := lab.Read("examples/quickstart.mcl.yml")
	if err != nil {
		t.Fatal(err)
	}
	got := tableOf(t, l)
	rest := strings.Split(got, "\n")
	rows := 0
	for line := range strings.SplitSeq(strings.TrimSuffix(shown, "\n"), "\n") {
		at := slices.Index(rest, line)
		if at < 0 {
			t.Fatalf("README.md shows the line\n%s\nthe command prints\n%s", line, got)
		}
		rest = rest[at+1:]
		if line != "" {
			rows++
		}
	}
	const rowsMin = 10 // the head, two sizes of four schemes, the sentence
	if rows < rowsMin {
		t.Errorf("README.md shows %d lines, want %d", rows, rowsMin)
	}
}

// tableOf runs a lab and returns the table it prints.
func tableOf(t *testing.T, l *lab.Lab) string {
	t.Helper()
	r, err := runner.Simulate(t.Context(), l, runner.Options{Base: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
