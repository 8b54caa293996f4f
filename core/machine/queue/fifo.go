// SPDX-License-Identifier: Apache-2.0

// Package queue provides the two containers in which cores and drivers keep frames: a FIFO, and a
// heap of elements that are due at an instant. Both grow as needed, do not shrink while they are
// used, and allocate nothing in steady state.
package queue

import "unsafe"

// FIFO is a first-in, first-out queue in a ring. The zero value is empty. A copy shares
// the ring, so that only one of the two may be used afterwards.
type FIFO[T any] struct {
	// buf is the ring. Invariant: its length is 0 or a power of two.
	buf []T

	// head counts the elements taken, modulo 2^32: the oldest element is at head modulo the length of
	// buf. Invariant: n is not above the length of buf, and places without an element hold the zero
	// value, so that nothing is kept alive from there.
	head, n uint32
}

// fifoMin is the number of places of the first ring, unless that would have more than fifoBytes: a
// queue of large elements, of which a lab has many, often holds one at a time.
const fifoMin, fifoBytes = 4, 64

// Len returns the number of elements.
func (q *FIFO[T]) Len() int { return int(q.n) }

// Push appends an element.
func (q *FIFO[T]) Push(v T) {
	for !q.Place(v) {
		q.grow()
	}
}

// Place appends an element if the ring has room for it, and reports whether it has. The compiler
// inlines it, which it does not do with Push: code that runs for every packet tries Place first.
func (q *FIFO[T]) Place(v T) bool {
	if int(q.n) == len(q.buf) {
		return false
	}
	q.buf[(q.head+q.n)&uint32(len(q.buf)-1)] = v
	q.n++
	return true
}

func (q *FIFO[T]) grow() {
	places := max(1, 2*len(q.buf))
	var element T
	for places < fifoMin && 2*places*int(unsafe.Sizeof(element)) <= fifoBytes {
		places *= 2
	}
	buf := make([]T, places)
	for i := range q.n {
		buf[i] = *q.At(int(i))
	}
	q.buf, q.head = buf, 0
}

// Pop removes and returns the oldest element. There must be one.
func (q *FIFO[T]) Pop() T {
	p := &q.buf[q.head&uint32(len(q.buf)-1)]
	v := *p
	var zero T
	*p = zero
	q.head++
	q.n--
	return v
}

// At returns element i, oldest first. It is valid until the next Push, Pop or RemoveIf.
func (q *FIFO[T]) At(i int) *T { return &q.buf[(q.head+uint32(i))&uint32(len(q.buf)-1)] }

// First returns the oldest element. There must be one.
func (q *FIFO[T]) First() T { return q.buf[q.head&uint32(len(q.buf)-1)] }

// Oldest returns where the oldest element is until the next Push, Pop or RemoveIf, or nil if there is none.
func (q *FIFO[T]) Oldest() *T {
	if q.n == 0 {
		return nil
	}
	return q.At(0)
}

// RemoveIf removes unwanted elements. The others keep their order, in a ring that is no larger than it
// needs.
func (q *FIFO[T]) RemoveIf(unwanted func(T) bool) {
	var kept FIFO[T]
	for i := range q.Len() {
		if v := *q.At(i); !unwanted(v) {
			kept.Push(v)
		}
	}
	*q = kept
}
