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
