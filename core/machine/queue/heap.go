// SPDX-License-Identifier: Apache-2.0

package queue

import "github.com/mcastlab/mcastlab/core/vtime"

// Heap holds elements until they are due, the first of them at hand. The zero value is
// empty. Order is total, so elements come out in the same order however they went in: by
// instant, then by tie. No two elements may have both in common.
type Heap[T any] struct {
	// due is a binary heap. Invariant: no element is before its parent, which element i has
	// at (i-1)/2.
	due []Due[T]
}

// Due is an element of a heap.
type Due[T any] struct {
	At    vtime.Time
	Tie   uint64 // the smaller goes first at one instant
	Value T
}

func (d *Due[T]) before(e *Due[T]) bool { return d.At < e.At || d.At == e.At && d.Tie < e.Tie }

// Len returns the number of elements.
func (h *Heap[T]) Len() int { return len(h.due) }

// Next returns when the first element is due, or vtime.Never.
func (h *Heap[T]) Next() vtime.Time {
	if len(h.due) == 0 {
		return vtime.Never
	}
	return h.due[0].At
}

// All returns the elements in no order that means anything. It is valid until the next
// Push or Pop.
func (h *Heap[T]) All() []Due[T] { return h.due }

// Push adds an element.
func (h *Heap[T]) Push(at vtime.Time, tie uint64, v T) {
	h.due = append(h.due, Due[T]{at, tie, v})
	d := h.due
	for i := len(d) - 1; i > 0; {
		up := (i - 1) / 2
		if !d[i].before(&d[up]) {
			return
		}
		d[i], d[up] = d[up], d[i]
		i = up
	}
}

// Pop takes the element that is due first. There must be one.
func (h *Heap[T]) Pop() Due[T] {
	d := h.due
	first, last := d[0], len(d)-1
	d[0], d[last] = d[last], Due[T]{}
	d = d[:last]
	h.due = d
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return first
		}
		if child+1 < last && d[child+1].before(&d[child]) {
			child++
		}
		if !d[child].before(&d[i]) {
			return first
		}
		d[i], d[child] = d[child], d[i]
		i = child
	}
}

// RemoveIf removes unwanted elements.
func (h *Heap[T]) RemoveIf(unwanted func(T) bool) {
	all := h.due
	h.due = nil
	for _, d := range all {
		if !unwanted(d.Value) {
			h.Push(d.At, d.Tie, d.Value)
		}
	}
}
