package mcastlab

import (
	"os"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// TestReadme: the commands' output in the README is what they print.
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
	if got := tableOf(t, l); got != shown {
		t.Errorf("README.md shows\n%s\nthe command prints\n%s", shown, got)
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
