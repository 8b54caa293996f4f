// SPDX-License-Identifier: Apache-2.0

// Package outofband is the channel beside the fabric that the ranks of a job share, as a value:
// published values, the calls that wait for one, and the barrier. It decides which calls resume; it
// never blocks, owns no goroutine and takes no lock. A runtime keeps one Board for each job, passes it
// the ranks' calls, and resumes the calls that it returns:
//
//	call            when it blocks                       what resumes it
//	Get             the key has no value                 a Put of that key
//	Arrive          a rank has not arrived               the Arrive of the last rank, or the Lose of it
//	Put, Lose       never
//
// Both runtimes use it: the event clock (package sim) resumes coroutines, the orchestrator
// answers the messages of agents.
package outofband

import (
	"fmt"
	"maps"
	"slices"
)

// Board is the state of the channel. A value of C identifies one blocked call of a rank; a
// rank with workers may have several.
type Board[C comparable] struct {
	values map[string][]byte

	// readers are the calls that wait for each key, in the order in which they came.
	// Invariant: no key has both readers and a value.
	readers map[string]*waiting[C]

	// arrived are the calls that wait in the barrier, in the order in which they came.
	// Invariant: there are fewer of them than size, or none.
	arrived []caller[C]

	// size is the number of arrivals that the barrier waits for: one of each rank that is not lost.
	size int

	// round counts the completed barriers.
	round int

	// spare holds for each rank whether the others survive its loss; it does not change. Ranks beyond
	// its end are not spare.
	spare []bool

	// lost are the ranks that were lost. Invariant: all of them are spare.
	lost []int
}

// waiting is calls in the order in which they came, each once.
type waiting[C comparable] struct {
	order []caller[C]
	in    map[caller[C]]bool // of many thousands, too, each asks whether it is there
}

// caller is a blocked call and the rank that made it.
type caller[C comparable] struct {
	rank int
	call C
}

// New returns the board of a job of size ranks. spare holds for each rank whether the job survives its
// loss; nil means that no rank may be lost.
func New[C comparable](size int, spare []bool) *Board[C] {
	return &Board[C]{values: map[string][]byte{}, readers: map[string]*waiting[C]{}, size: size, spare: slices.Clone(spare)}
}

// Put publishes a value and returns the calls that waited for it.
func (b *Board[C]) Put(key string, value []byte) (resume []C) {
	b.values[key] = value
	if w := b.readers[key]; w != nil {
		resume = callsOf(w.order)
		delete(b.readers, key)
	}
	return resume
}

// Get returns the value of a key. If there is none yet, the call is blocked until Put returns
// it; calling Get again meanwhile changes nothing.
func (b *Board[C]) Get(rank int, call C, key string) (value []byte, ok bool) {
	if v, ok := b.values[key]; ok {
		return v, true
	}
	w := b.readers[key]
	if w == nil {
		w = &waiting[C]{in: map[caller[C]]bool{}}
		b.readers[key] = w
	}
	if c := (caller[C]{rank, call}); !w.in[c] {
		w.order, w.in[c] = append(w.order, c), true
	}
	return nil, false
}

// Take is Get for the only reader of a key: the board deletes the value after it.
func (b *Board[C]) Take(rank int, call C, key string) (value []byte, ok bool) {
	if value, ok = b.Get(rank, call, key); ok {
		delete(b.values, key)
	}
	return value, ok
}

// Withdraw ends a call's wait for a key: no Put will return it.
func (b *Board[C]) Withdraw(rank int, call C, key string) {
	b.drop(key, func(c caller[C]) bool { return c == caller[C]{rank, call} })
}

// Arrive brings a rank to the barrier. For the last rank it returns all calls of the barrier,
// the last rank's own at the end; before, it returns none. A rank that has arrived stays
// counted even if it stops waiting for the others.
func (b *Board[C]) Arrive(rank int, call C) (resume []C) {
	b.arrived = append(b.arrived, caller[C]{rank, call})
	return b.pass()
}

// Lose removes a spare rank from the job: its calls are forgotten, and barriers no longer wait
// for it. It returns the calls that waited in the barrier for this rank alone. The loss of a
// rank that is not spare changes nothing.
func (b *Board[C]) Lose(rank int) (resume []C) {
	if !b.Spare(rank) || slices.Contains(b.lost, rank) {
		return nil
	}
	b.lost = append(b.lost, rank)
	b.size--
	its := func(c caller[C]) bool { return c.rank == rank }
	b.arrived = slices.DeleteFunc(b.arrived, its)
	for key := range b.readers { // map order does not matter: each key is handled by itself
		b.drop(key, its)
	}
	return b.pass()
}

// Spare reports whether the job survives the loss of a rank.
func (b *Board[C]) Spare(rank int) bool { return rank < len(b.spare) && b.spare[rank] }

// Round returns the number of barriers that have completed. A call that has arrived may resume when
// this number has changed.
func (b *Board[C]) Round() int { return b.round }

// Missing describes the barrier's progress, to complete "waiting on ...".
func (b *Board[C]) Missing() string {
	return fmt.Sprintf("the other ranks to synchronise (%d of %d are there)", len(b.arrived), b.size)
}

// pass ends the barrier if all ranks have arrived.
func (b *Board[C]) pass() (resume []C) {
	if len(b.arrived) == 0 || len(b.arrived) < b.size {
		return nil
	}
	resume = callsOf(b.arrived)
	b.arrived = nil
	b.round++
	return resume
}

// drop removes the calls that wait for a key and satisfy which.
func (b *Board[C]) drop(key string, which func(caller[C]) bool) {
	w := b.readers[key]
	if w == nil {
		return
	}
	w.order = slices.DeleteFunc(w.order, which)
	maps.DeleteFunc(w.in, func(c caller[C], _ bool) bool { return which(c) })
	if len(w.order) == 0 {
		delete(b.readers, key)
	}
}

func callsOf[C comparable](all []caller[C]) (calls []C) {
	for _, c := range all {
		calls = append(calls, c.call)
	}
	return calls
}
