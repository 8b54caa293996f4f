// SPDX-License-Identifier: Apache-2.0

package lockstep

import (
	"flag"
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/lab/labspec"
)

var (
	actsFrom = flag.Uint64("acts-from", 0, "first seed of TestActs")
	actsRuns = flag.Uint64("acts-runs", 8, "runs of TestActs")
)

// TestActs: manual faults between rounds, at any instant, have their record: a simulation that does the
// same at the recorded instants is the same run.
func TestActs(t *testing.T) {
	t.Parallel()
	runs := *actsRuns
	if testing.Short() {
		runs = min(runs, 2)
	}
	for seed := *actsFrom; seed < *actsFrom+runs; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			if acted(t, seed); t.Failed() {
				t.Logf("again: go test ./drivers/lockstep -run TestActs -args -acts-from %d -acts-runs 1", seed)
			}
		})
	}
}

// acted runs a lab, with or without faults of its own, in which up to eight faults are added and removed by
// hand, each a random number of rounds after the one before.
func acted(t *testing.T, seed uint64) {
	t.Helper()
	r, kinds := prng.New(seed), simlab.LabFaults()
	text := benchLab + "nics: {retries: 2, timeout: 67us}\n"
	if r.IntN(2) == 0 {
		text += "faults: [" + kinds[r.IntN(len(kinds))] + "]\n"
	}
	b := newBench(t, text)
	b.start(nil)
	var acts []faults.Act
	left, wait := 1+r.IntN(8), r.IntN(200)
	b.edge = func() error {
		if wait--; wait >= 0 || left == 0 {
			return nil
		}
		left, wait = left-1, r.IntN(400)
		a := faults.Act{At: b.c.Edge()}
		if prefix := fmt.Sprintf("hand-%d", r.IntN(8)); r.IntN(3) == 0 {
			a.Reset = &prefix
		} else {
			f, err := b.l.ParseFault(kinds[r.IntN(len(kinds))])
			if err != nil {
				return err
			}
			a.ID, a.Text = fmt.Sprintf("hand-%d", len(acts)), f.Text()
			s, err := labspec.Fault(b.l, b.cfg.Graph, f, a.ID)
			if err != nil {
				return err
			}
			if a.Fault, err = faults.Encode(&s, b.cfg.Graph); err != nil {
				return err
			}
		}
		acts = append(acts, a)
		if err := a.Apply(b.calls, b.cfg.Graph, nil, nil); err != nil {
			return err
		}
		for i := range b.orders {
			b.orders[i] <- func() error { return a.Apply(b.timelines[i], b.cfg.Graph, nil, nil) }
			b.c.Ordered(i, a.At)
		}
		return nil
	}
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	b.sameAs(acts, true)
}

// TestHorizon: nothing happens before the instant that the coordinator gives as such between two rounds, while
// ranks wait for each other over the channel and while faults are due.
func TestHorizon(t *testing.T) {
	t.Parallel()
	for _, lab := range []string{benchLab, benchLab + "faults: [{at: 30us, for: 200us, link-down: {links: h1-leaf0}}, {at: 400us, restart: {nodes: leaf0}}]\n"} {
		b := newBench(t, lab)
		b.start(nil)
		var promised vtime.Time
		last, moved := make([]vtime.Time, len(b.nodes)), 0
		b.edge = func() error {
			for i := range b.nodes {
				now := vtime.Time(b.c.nodes[i].slot.now().Load())
				if now != last[i] && now < promised {
					return fmt.Errorf("node %d has handled an event at %v: nothing was to happen before %v", i, now, promised)
				}
				last[i] = now
			}
			if h := b.c.Horizon(); h != vtime.Never && h > promised {
				promised = h
				moved++
			}
			return nil
		}
		if err := b.run(); err != nil {
			t.Fatal(err)
		}
		if moved < 50 {
			t.Errorf("the horizon has moved %d times", moved)
		}
	}
}
