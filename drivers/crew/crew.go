// SPDX-License-Identifier: Apache-2.0

// Package crew has the goroutines on which the parts of a simulation run at the same time. The simulator
// itself, which decides the order of events, starts none.
package crew

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Crew does the shares of a round at the same time, that of part 0 on the goroutine of the caller and
// every other one on a goroutine of its own. It decides nothing about the order of events: a share
// reads and writes its part's state alone.
type Crew struct {
	work    func(part int)
	calls   []gate // by part: counts rounds that have begun
	done    gate   // counts shares that have ended, in all rounds
	rounds  uint64
	over    atomic.Bool
	running sync.WaitGroup
}

// New returns a crew for the given number of parts. End must be called.
func New(parts int, work func(part int)) *Crew {
	c := &Crew{work: work, calls: make([]gate, parts)}
	c.done.init()
	for i := 1; i < parts; i++ {
		c.calls[i].init()
		c.running.Go(func() {
			for round := uint64(1); ; round++ {
				if c.calls[i].await(round); c.over.Load() {
					return
				}
				c.work(i)
				c.done.add()
			}
		})
	}
	return c
}

// All does one round.
func (c *Crew) All() {
	c.rounds++
	for i := 1; i < len(c.calls); i++ {
		c.calls[i].add()
	}
	c.work(0)
	c.done.await(c.rounds * uint64(len(c.calls)-1))
}

// End ends the goroutines.
func (c *Crew) End() {
	c.over.Store(true)
	for i := 1; i < len(c.calls); i++ {
		c.calls[i].add()
	}
	c.running.Wait()
}

// gate is a counter for which one goroutine waits. Others raise it.
type gate struct {
	count  atomic.Uint64
	parked atomic.Bool
	wake   chan struct{}
	wary   int      // number of rounds for which the waiting goroutine looks less often
	_      [64]byte // keeps the counters of different goroutines in lines of their own
}

func (g *gate) init() { g.wake = make(chan struct{}, 1) }

func (g *gate) add() {
	g.count.Add(1)
	if g.parked.CompareAndSwap(true, false) {
		g.wake <- struct{}{}
	}
}

// Bounds of the number of times that a goroutine polls a gate before it sleeps. Rounds follow each other within some tens of
// microseconds, and a sleep costs as much. A goroutine whose looks were all too early waits for one that does not run now, as
// others use the processor. That one could run on the processor of this goroutine, so that for a while this looks less often.
const (
	spins      = 1 << 13
	spinsWary  = 1 << 8
	waryRounds = 256
)

// await waits until the count is at least as given.
func (g *gate) await(count uint64) {
	looks := spins
	if g.wary > 0 {
		looks = spinsWary
		g.wary--
	}
	for range looks {
		if g.count.Load() >= count {
			return
		}
		runtime.Gosched()
	}
	if looks == spins {
		g.wary = waryRounds
	}
	for g.count.Load() < count {
		g.parked.Store(true)
		if g.count.Load() >= count && g.parked.CompareAndSwap(true, false) {
			return
		}
		<-g.wake
	}
}
