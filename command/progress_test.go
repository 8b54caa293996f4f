package command

import (
	"io"
	"strings"
	"testing"
	"time"

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
		{runner.ProgressState{Step: 1, Steps: 1, PacketHops: 36_000_000, LabTime: vtime.Time(vtime.Millisecond)}, "lab time 1ms, 1:12000 | 3.0 M packet-hops/s", ""},
	} {
		if got := p.describe(c.s, now); !strings.Contains(got, c.rate) {
			t.Errorf("%+v: %q, want %q", c.s, got, c.rate)
		}
		if got := p.remaining(c.s, now, now.Sub(p.start)); got != c.left {
			t.Errorf("%+v: %q is left, want %q", c.s, got, c.left)
		}
	}
}
