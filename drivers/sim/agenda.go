// SPDX-License-Identifier: Apache-2.0

package sim

import "github.com/mcastlab/mcastlab/core/vtime"

// agenda is a binary heap of values, each due at an instant of lab time. Values that are due
// at the same instant leave in the order in which they were pushed.
type agenda[T any] struct {
	heap []entry[T]
	seq  uint64
}

type entry[T any] struct {
	at   vtime.Time
	seq  uint64
	what T
}

// event names a step of the loop: one of the class constants, and the id that the class
// documents.
type event struct{ class, id int }

func (e *entry[T]) before(o *entry[T]) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

func (a *agenda[T]) len() int { return len(a.heap) }

// first returns the instant at which the earliest value is due, or vtime.Never if the agenda
// is empty.
func (a *agenda[T]) first() vtime.Time {
	if len(a.heap) == 0 {
		return vtime.Never
	}
	return a.heap[0].at
}

// push adds a value. Pushing one that is due after all others costs one comparison.
func (a *agenda[T]) push(at vtime.Time, what T) {
	a.seq++
	a.heap = append(a.heap, entry[T]{at, a.seq, what})
	h := a.heap
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

// pop removes and returns the earliest value. The agenda must not be empty.
func (a *agenda[T]) pop() T {
	h := a.heap
	what, last := h[0].what, len(h)-1
	h[0], h[last] = h[last], entry[T]{}
	h = h[:last]
	a.heap = h
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			return what
		}
		if down+1 < last && h[down+1].before(&h[down]) {
			down++
		}
		if !h[down].before(&h[i]) {
			return what
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
}
