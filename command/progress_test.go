// SPDX-License-Identifier: Apache-2.0

package command

import (
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// TestProgressText: the display says how fast frames move, and how long the rest takes: by their
// number where that is known, else by iterations, else not at all.
func TestProgressText(t *testing.T) {
	p := newProgress(io.Discard)
	p.movedAt = p.start.Add(2 * time.Second)
	now := p.start.Add(12 * time.Second)
	for _, c := range []struct {
		s          runner.ProgressState
		rate, left string
	}{
		{runner.ProgressState{}, "| 0 k packet-hops/s", ""},
		{runner.ProgressState{Step: 1, Steps: 3, PacketHops: 6000}, "| 0 k packet-hops/s", ""},
		{runner.ProgressState{Step: 3, Steps: 4, PacketHops: 120_000}, "| 10 k packet-hops/s", ", about 12s left"},
		{runner.ProgressState{Step: 1, Steps: 1, PacketHops: 120_000, AllHops: 480_000}, "| 10 k packet-hops/s", ", about 30s left"},
		{runner.ProgressState{Step: 1, Steps: 1, PacketHops: 120_000, AllHops: 100_000}, "| 10 k packet-hops/s", ""},
		{runner.ProgressState{Step: 1, Steps: 1, PacketHops: 36_000_000, LabTime: vtime.Time(vtime.Millisecond)}, "lab time 1ms | 12,000 times slower than real time | 3.0 M packet-hops/s", ""},
	} {
		if got := strings.Join(p.describe(c.s, now), " | "); !strings.Contains(got, c.rate) {
			t.Errorf("%+v: %q, want %q", c.s, got, c.rate)
		}
		if got := p.remaining(c.s, now, now.Sub(p.start)); got != c.left {
			t.Errorf("%+v: %q is left, want %q", c.s, got, c.left)
		}
	}
}

// TestPace: two digits count, and thousands are set apart.
func TestPace(t *testing.T) {
	for ratio, want := range map[float64]string{
		18_949: "19,000 times slower", 1_234_567: "1,200,000 times slower", 999: "1,000 times slower", 950: "950 times slower", 12.34: "12 times slower", 1.25: "1.2 times slower",
		1: "1 times slower", 0.5: "2 times faster", 0.00001: "100,000 times faster", 0: "1,000,000,000 times faster",
	} {
		if got := pace(ratio); got != want+" than real time" {
			t.Errorf("%v: %q, want %q", ratio, got, want)
		}
	}
}

// TestFitting: the display of a run fits any terminal, with the most important parts.
func TestFitting(t *testing.T) {
	parts := []string{"bcast cepheus 64KiB", "lab time 339.008us", "19,000 times slower than real time", "5 k packet-hops/s"}
	for columns := -1; columns < 120; columns++ {
		got := fitting(parts, columns)
		if n := utf8.RuneCountInString(got); n > max(columns, 8) {
			t.Errorf("%d columns: %q has %d", columns, got, n)
		}
	}
	for columns, want := range map[int]string{
		10: "bcast cep…", 19: "bcast cepheus 64KiB", 40: "bcast cepheus 64KiB | lab time 339.008us", 60: "bcast cepheus 64KiB | lab time 339.008us | 5 k packet-hops/s",
		120: strings.Join(parts, " | "),
	} {
		if got := fitting(parts, columns); got != want {
			t.Errorf("%d columns: %q, want %q", columns, got, want)
		}
	}
}

// TestOneLine: on terminals of 40, 80 and 120 columns no redraw of the bar is wider than the terminal.
func TestOneLine(t *testing.T) {
	for _, columns := range []int{40, 80, 120} {
		var out strings.Builder
		p := newProgress(&out)
		p.width = func() int { return columns }
		p.bar = newBar(&out)
		for step := range 40 {
			p.last = time.Time{}
			p.start = time.Now().Add(-time.Duration(step) * 7 * time.Minute)
			p.Update(runner.ProgressState{Doing: "storage three-replicas 4MiB", Step: step, Steps: 40, LabTime: vtime.Time(vtime.Millisecond) * vtime.Time(step), PacketHops: uint64(step) * 1e7})
		}
		drawn := strings.FieldsFunc(out.String(), func(r rune) bool { return r == '\r' || r == '\n' })
		if len(drawn) < 30 {
			t.Fatalf("%d columns: drawn %d times", columns, len(drawn))
		}
		for _, line := range drawn {
			if n := utf8.RuneCountInString(line); n > columns {
				t.Errorf("%d columns: %q has %d", columns, line, n)
				break
			}
		}
	}
}
