// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// A job in which all ranks wait for each other does not end by itself. The agents report when
// their host is at rest (nodeagent/observe_linux.go). Once all hosts of a job are, and nothing
// moves in the fabric either, no wait can end any more.

const (
	// deadlockEvery is the interval at which a job is checked for ranks that all rest; nothing may
	// move in the fabric from one check to the next.
	deadlockEvery = time.Second
	// heldLooks is the number of checks in a row at which nothing has moved after which even
	// held frames, by a pause that does not end, are no reason to wait.
	heldLooks = 8
)

// rankActivity holds the ranks' reports about themselves. The board's lock protects it.
type rankActivity struct {
	said    []*nodeapi.Rest    // by rank; nil: the rank does not rest
	away    []*nodeapi.Outside // by rank; nil: its program is not blocked outside package rank
	replies []uint64           // by rank: replies sent to it
	over    []bool             // by rank: it has ended, or there is no program
	busy    int                // calls that are being answered
	moves   uint64             // messages received from the ranks so far
	dead    error              // why the job was ended: a deadlock
}

func newRankActivity(ranks int) rankActivity {
	return rankActivity{said: make([]*nodeapi.Rest, ranks), away: make([]*nodeapi.Outside, ranks), replies: make([]uint64, ranks), over: make([]bool, ranks)}
}

// deadlocked returns the error of a job in which all ranks rest, or nil.
func (r *rankActivity) deadlocked() error {
	var who []string
	for i, s := range r.said {
		switch {
		case r.over[i]:
		case r.busy > 0 || s == nil || s.Replies != r.replies[i]:
			return nil
		default:
			who = append(who, s.Who...)
		}
	}
	if who == nil {
		return nil // all have ended
	}
	return rankhost.Deadlock(who)
}

// hear records what a rank reports about itself.
func (b *board) hear(rank int, m *nodeapi.FromRank) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest.moves++
	if s := m.GetRest(); s != nil {
		b.rest.said[rank] = nil
		if s.Resting {
			b.rest.said[rank] = s
		}
	}
	if s := m.GetOutside(); s != nil {
		b.rest.away[rank] = nil
		if s.Task != "" {
			b.rest.away[rank] = s
		}
		if time.Duration(s.Wall) >= runner.OutsideAfter {
			b.warn("%v", runner.OutsideError{Task: s.Task, For: time.Duration(s.Wall)})
		}
	}
}

// work changes the number of calls that are being answered.
func (b *board) work(calls int) {
	b.mu.Lock()
	b.rest.busy += calls
	b.mu.Unlock()
}

// ended notes that a rank has ended or is lost. itself tells whether it did so by itself, and not
// because the run was interrupted.
func (b *board) ended(rank int, itself bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest.over[rank] = true
	if itself {
		b.rest.away[rank] = nil
	}
}

// outside returns an error that names a rank which does not return to package rank, or nil.
func (b *board) outside() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.rest.away {
		if s != nil {
			return runner.OutsideError{Task: s.Task, For: time.Duration(s.Wall)}
		}
	}
	return nil
}

// dead returns the error of a job that was ended as a deadlock, or nil.
func (b *board) dead() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rest.dead
}

// watchDeadlock ends the job when its ranks are deadlocked, until the function that it returns is
// called. With an external host, which may send at any time, no job counts as deadlocked.
func (b *board) watchDeadlock(ctx context.Context, d *orchestrator.Deployed, external bool, end func()) (stop func()) {
	if external {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var over sync.WaitGroup
	over.Go(func() { b.lookOn(ctx, d, end) })
	return func() {
		cancel()
		over.Wait()
	}
}

func (b *board) lookOn(ctx context.Context, d *orchestrator.Deployed, end func()) {
	tick := time.NewTicker(deadlockEvery)
	defer tick.Stop()
	var before []uint64
	for looks := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		b.mu.Lock()
		dead, said := b.rest.deadlocked(), b.rest.moves
		b.mu.Unlock()
		if dead == nil {
			looks, before = 0, nil
			continue
		}
		states, err := d.States(ctx)
		if err != nil {
			looks, before = 0, nil // a node that is gone is noticed elsewhere
			continue
		}
		moved, held := traffic(states, said)
		if !slices.Equal(moved, before) {
			looks, before = 0, moved
			continue
		}
		if looks++; held > 0 && looks < heldLooks {
			continue
		}
		b.mu.Lock()
		b.rest.dead = dead
		b.mu.Unlock()
		end()
		return
	}
}

// traffic returns counts, one of which changes whenever a frame other than a pause frame moves in
// the fabric, and the number of frames held there.
func traffic(states []counters.Node, said uint64) (moved []uint64, held int) {
	for i := range states {
		held += states[i].Live
	}
	return []uint64{said, counters.Sent(states) - counters.Total(states, "pauses_sent")}, held
}

// named adds to the error that ended a run the faults in force that were added by hand: they may
// be the cause.
func (r *dilatedRun) named(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	all, ferr := r.d.Faults(ctx)
	if ferr != nil {
		return err
	}
	for _, f := range all {
		if f.On {
			err = fmt.Errorf("%w; fault %s is in force: %s", err, f.Id, f.Text)
		}
	}
	return err
}
