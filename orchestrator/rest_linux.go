package orchestrator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/control"
	"github.com/mcastlab/mcastlab/counters"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/runner"
)

// A job in which all ranks wait for each other does not end by itself. The agents say when
// their host has come to rest (nodeagent/observe_linux.go); once all of a job have, and
// nothing moves in the fabric either, nobody is left who could end a wait.

const (
	// restEvery is how often it is looked whether all ranks rest, and how long nothing may
	// move then.
	restEvery = time.Second
	// heldLooks is after how many looks in a row at which nothing moves even frames that are
	// held somewhere, for a pause that does not end, are not waited for.
	heldLooks = 8
)

// rest is what the ranks have said of themselves. The board's lock holds for it.
type rest struct {
	said    []*control.Rest    // by rank; nil: it does not rest
	away    []*control.Outside // by rank; nil: it comes back to package rank
	replies []uint64           // by rank: that were sent to it
	over    []bool             // by rank: it has ended, or there is no program
	busy    int                // calls that are being answered
	moves   uint64             // what the ranks have said so far, in messages
	dead    error              // why the job was ended: a deadlock
}

func newRest(ranks int) rest {
	return rest{said: make([]*control.Rest, ranks), away: make([]*control.Outside, ranks), replies: make([]uint64, ranks), over: make([]bool, ranks)}
}

// deadlocked returns the error of a job in which all ranks rest, or nil.
func (r *rest) deadlocked() error {
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
	return rank.Deadlock(who)
}

// hear takes note of what a rank says of itself.
func (b *board) hear(rank int, m *control.FromRank) {
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

// work says that so many more calls are being answered.
func (b *board) work(calls int) {
	b.mu.Lock()
	b.rest.busy += calls
	b.mu.Unlock()
}

// ended says that a rank has ended, or is lost, by itself or because the run was interrupted.
func (b *board) ended(rank int, itself bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest.over[rank] = true
	if itself {
		b.rest.away[rank] = nil
	}
}

// outside returns, as an error, which rank does not come back to package rank, or nil.
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

// dead returns why the job was ended, if all its ranks wait for what cannot come.
func (b *board) dead() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rest.dead
}

// watchRest ends the job when all its ranks wait for what cannot come, until the function that
// it returns is called. An external host may always do something.
func (b *board) watchRest(ctx context.Context, d *Deployed, external bool, end func()) (stop func()) {
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

func (b *board) lookOn(ctx context.Context, d *Deployed, end func()) {
	tick := time.NewTicker(restEvery)
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
			looks, before = 0, nil // a node that is gone is found by others
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

// traffic returns counts of which one changes when anything moves in the fabric, but for pause
// frames, and how many frames are held there.
func traffic(states []counters.Node, said uint64) (moved []uint64, held int) {
	for i := range states {
		held += states[i].Live
	}
	return []uint64{said, counters.Sent(states) - counters.Total(states, "pauses_sent")}, held
}

// named returns the error that ended a run, with the faults that were made by hand and are in
// force: they may be why.
func (r *liveRun) named(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	all, ferr := r.d.Faults(ctx)
	if ferr != nil {
		return err
	}
	for _, f := range all {
		if f.On {
			err = fmt.Errorf("%w; fault %s is in force: %s", err, f.Id, f.Entry)
		}
	}
	return err
}
