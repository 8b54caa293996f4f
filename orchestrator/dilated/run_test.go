// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/rank/outofband"
)

// answers is a rank's stream of which only what is sent to the rank counts.
type answers struct {
	nodeapi.Node_JobClient
	n atomic.Int64
}

// Send implements nodeapi.Node_JobClient.
func (s *answers) Send(*nodeapi.ToRank) error { s.n.Add(1); return nil }

// TestStepsOneByOne: whichever ranks report, and however many at once, steps are taken one
// after the other, and each rank is answered.
func TestStepsOneByOne(t *testing.T) {
	const ranks, each = 8, 20
	s := &answers{}
	var at atomic.Int32
	taken := 0 // without a lock: steps are the lock
	b := &board{step: func(context.Context, string) error {
		if at.Add(1) != 1 {
			t.Error("two steps are taken at once")
		}
		taken++
		for range 100 { // others come meanwhile
			runtime.Gosched()
		}
		at.Add(-1)
		return nil
	}}
	b.channel, b.ranks, b.sending = outofband.New[call](ranks, nil), slices.Repeat([]nodeapi.Node_JobClient{s}, ranks), make([]sync.Mutex, ranks)
	b.rest = newRankActivity(ranks)
	var all sync.WaitGroup
	for rank := range ranks {
		all.Go(func() {
			for i := range each {
				if err := b.answer(t.Context(), call{rank, uint64(i)}, &nodeapi.FromRank{What: &nodeapi.FromRank_Report{Report: "a step"}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if taken != ranks*each || s.n.Load() != ranks*each {
		t.Errorf("%d steps and %d answers, want %d", taken, s.n.Load(), ranks*each)
	}
}

// looks counts the calls of the progress display, and checks their order.
type looks struct {
	t    *testing.T
	last runner.ProgressState
	n    int
}

// Update implements runner.Progress.
func (l *looks) Update(s runner.ProgressState) {
	if s.Step < l.last.Step || s.PacketHops < l.last.PacketHops || s.PacketHops != 10*uint64(max(0, s.Step-1)) {
		l.t.Errorf("after %+v comes %+v", l.last, s)
	}
	l.last = s
	l.n++
}

// Done implements runner.Progress.
func (l *looks) Done() {}

// TestProgressWhileStepping: the progress display looks at a run while its steps go on; go
// test -race sees whether it may.
func TestProgressWhileStepping(t *testing.T) {
	d := &orchestrator.Deployed{Graph: &topo.Graph{}} // no node has a clock to set
	d.Plane = orchestrator.NoControllers(d)
	d.Access = orchestrator.LocalAccess(d)
	p, err := orchestrator.NewLabClock(t.Context(), d, "h0", counters.Rate{Dilation: 1})
	if err != nil {
		t.Fatal(err)
	}
	shown := &looks{t: t}
	const steps = 5_000
	reh := &runner.Rehearsal{Steps: make([]runner.Step, steps)}
	for i := range reh.Steps {
		reh.Steps[i].Hops = 10
	}
	r := &dilatedRun{
		d: d, o: orchestrator.RunOptions{Progress: shown}, reh: reh, clock: p,
		fid: &fidelity{d: d, reh: reh, open: noRow, fixed: 1, dil: make([]float64, 1), lag: []live.Lag{live.NewLag()}},
	}
	stop := r.showProgress(t.Context())
	for range steps {
		if err := r.step(t.Context(), "a step"); err != nil {
			t.Fatal(err)
		}
		// Some looks long in all. A sleep would hide a race: timers are synchronised.
		for began := time.Now(); time.Since(began) < 100*time.Microsecond; {
			runtime.Gosched()
		}
	}
	stop()
	if shown.n == 0 || shown.last.Step == 0 || shown.last.Steps != steps {
		t.Errorf("%d looks, the last at %+v", shown.n, shown.last)
	}
}
