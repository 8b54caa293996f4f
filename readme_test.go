package mcastlab

import (
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/runner"
)

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

// TestPaperLabs runs the labs of the papers that take seconds: what they expect
// holds.
func TestPaperLabs(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for some seconds")
	}
	for _, name := range []string{
		"cepheus-small-messages", "cepheus-small-messages-cost", "cepheus-large-messages", "cepheus-rdmc", "cepheus-rdmc-cost",
		"multicast-traffic", "multicast-node-boundary", "multicast-counters",
		"cepheus-hpl", "cepheus-hpl-end-to-end", "gleam-hpl-32", "cepheus-storage", "cepheus-storage-mr", "cepheus-storage-latency",
	} {
		l, err := lab.Read("examples/papers/" + name + ".mcl.yml")
		if err != nil {
			t.Error(err)
			continue
		}
		r, err := runner.Simulate(t.Context(), l, runner.Options{Base: t.TempDir()})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, line := range r.Failures() {
			t.Errorf("%s: %s", name, line)
		}
		if len(r.Expect) == 0 {
			t.Errorf("%s expects nothing", name)
		}
	}
}
