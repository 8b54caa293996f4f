// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/lab/search"
)

// TestLockstepLabs: random labs of all workloads, with and without faults, are their simulations: some of the
// day's own, and with MCASTLAB_SOAK five hundred; before them those that once were not.
func TestLockstepLabs(t *testing.T) {
	need(t)
	from, n := 3_000_000+100*uint64(time.Now().Unix()/86400), 10
	if os.Getenv("MCASTLAB_SOAK") != "" {
		from, n = 4_000_000, 500
	}
	found := []uint64{
		4_000_052, // a rank computes beyond the end of lab time
		4_000_065, // a bit error in zeros that a simulation has no bytes of
		4_000_262, // icrc: flag
		4_000_491, // a run is halted, and what its ranks have left is released at that instant
		5_078_702, // trace: messages, and two nodes have events at one instant
	}
	drawnLabs(t, "t-step-drawn", from, n, found...)
}

// TestLockstepUnlike: so are those whose tiers and links have unlike delays and rates: some of the day's own, and with MCASTLAB_SOAK five hundred. UNLIKE
// names the first and the number of others.
func TestLockstepUnlike(t *testing.T) {
	need(t)
	from, n := search.Unlike+10_000+100*uint64(time.Now().Unix()/86400), 8
	if os.Getenv("MCASTLAB_SOAK") != "" {
		from, n = search.Unlike, 500
	}
	if _, err := fmt.Sscanf(os.Getenv("UNLIKE"), "%d %d", &from, &n); err != nil && os.Getenv("UNLIKE") != "" {
		t.Fatal(err)
	}
	drawnLabs(t, "t-step-unlike", from, n)
}

// drawnLabs runs those of so many seeds that are short enough, and before them some that once were not their simulations.
func drawnLabs(t *testing.T, name string, from uint64, n int, found ...uint64) {
	t.Helper()
	n += len(found)
	before := snapshot(t)
	tried, faulty := 0, 0
	for i := 0; tried < n && i < 10*n; i++ {
		seed := from + uint64(i-len(found))
		if i < len(found) {
			seed = found[i]
		}
		l, err := search.DrawLab(seed)
		if err != nil {
			t.Fatal(err)
		}
		l.Name = name
		// A lab that takes longer has a fault that recurs without end.
		ctx, cancel := context.WithCancel(t.Context())
		_, _ = runner.Simulate(ctx, l, runner.Options{Base: t.TempDir(), Progress: &short{end: cancel}}) // its error is looked at below
		long := ctx.Err() != nil
		if cancel(); long {
			continue
		}
		tried++
		file := write(t, string(l.Compact()))
		want, _ := allOf(t, "sim", file)
		got, r := allOf(t, "netns", file)
		if len(r.Faults) > 0 {
			faulty++
		}
		if got != want {
			a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
			for i := range min(len(a), len(b)) {
				if a[i] != b[i] {
					t.Errorf("seed %d, line %d: under netns\n%s\nin the simulation\n%s\n%s", seed, i, a[i], b[i], l.Compact())
					break
				}
			}
			if len(a) != len(b) {
				t.Errorf("seed %d: %d lines under netns, %d in the simulation\n%s", seed, len(a), len(b), l.Compact())
			}
		}
	}
	t.Logf("%d labs from seed %d on, %d with faults", tried, from, faulty)
	if tried < n {
		t.Errorf("only %d of %d labs are short enough", tried, n)
	}
	same(t, before, snapshot(t))
}

// short ends a simulation that takes more packet-hops than a running lab has in a few seconds, or more events without them.
type short struct {
	end   context.CancelFunc
	looks int // of some 33,000 events each
}

// Update implements runner.Progress.
func (x *short) Update(s runner.ProgressState) {
	if x.looks++; s.PacketHops > 60_000 || x.looks > 10 {
		x.end()
	}
}

// Done implements runner.Progress.
func (*short) Done() {}
