// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// TestFIFO: after any operations a FIFO has the elements of a slice. Its ring has a power of two
// places, those without an element hold nothing, and none moves when another leaves.
func TestFIFO(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		q := FIFO[*int]{head: ^uint32(0) - uint32(r.IntN(40))} // wraps soon
		var want []*int
		for step := range 400 {
			switch k := r.IntN(100); {
			case k == 0:
				odd := func(p *int) bool { return *p%2 == 1 }
				q.RemoveIf(odd)
				want = slices.DeleteFunc(want, odd)
				if len(want) > 0 && len(q.buf) >= 4*len(want) && len(q.buf) > fifoMin {
					t.Fatalf("seed %d, step %d: %d places are left for %d elements", seed, step, len(q.buf), len(want))
				}
			case k < 45 && len(want) > 0:
				before := slices.Clone(q.buf)
				if got := q.Pop(); got != want[0] {
					t.Fatalf("seed %d, step %d: Pop returns %d, want %d", seed, step, *got, *want[0])
				}
				want = want[1:]
				moved := 0
				for i := range before {
					if q.buf[i] != before[i] {
						moved++
					}
				}
				if moved != 1 {
					t.Fatalf("seed %d, step %d: %d places of %d have changed when one element left", seed, step, moved, len(before))
				}
			default:
				v := step
				q.Push(&v)
				want = append(want, &v)
			}
			if q.Len() != len(want) || len(q.buf)&(len(q.buf)-1) != 0 {
				t.Fatalf("seed %d, step %d: %d elements in %d places, want %d", seed, step, q.Len(), len(q.buf), len(want))
			}
			for i, p := range want {
				if *q.At(i) != p || i == 0 && q.First() != p {
					t.Fatalf("seed %d, step %d: element %d is %d, want %d", seed, step, i, **q.At(i), *p)
				}
			}
			kept := 0
			for _, p := range q.buf {
				if p != nil {
					kept++
				}
			}
			if kept != len(want) {
				t.Fatalf("seed %d, step %d: %d elements are kept alive, %d are there", seed, step, kept, len(want))
			}
		}
	}
}

// TestHeap: elements come out in order of their instants and ties, however they went in.
func TestHeap(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		var h Heap[int]
		var want []Due[int]
		if h.Next() != vtime.Never {
			t.Fatalf("an empty heap is due at %v", h.Next())
		}
		for step := range 400 {
			switch k := r.IntN(100); {
			case k == 0:
				odd := func(v int) bool { return v%2 == 1 }
				h.RemoveIf(odd)
				want = slices.DeleteFunc(want, func(d Due[int]) bool { return odd(d.Value) })
			case k < 45 && len(want) > 0:
				first := 0
				for i := range want {
					if want[i].before(&want[first]) {
						first = i
					}
				}
				if h.Next() != want[first].At {
					t.Fatalf("seed %d, step %d: the heap is due at %v, want %v", seed, step, h.Next(), want[first].At)
				}
				if got := h.Pop(); got != want[first] {
					t.Fatalf("seed %d, step %d: Pop returns %+v, want %+v", seed, step, got, want[first])
				}
				want = slices.Delete(want, first, first+1)
			default:
				d := Due[int]{vtime.Time(r.IntN(50)), uint64(r.IntN(8))<<32 | uint64(step), step}
				h.Push(d.At, d.Tie, d.Value)
				want = append(want, d)
			}
			if h.Len() != len(want) || len(h.All()) != len(want) {
				t.Fatalf("seed %d, step %d: %d elements, want %d", seed, step, h.Len(), len(want))
			}
			for i := range h.due {
				if i > 0 && h.due[i].before(&h.due[(i-1)/2]) {
					t.Fatalf("seed %d, step %d: element %d is before its parent", seed, step, i)
				}
			}
		}
	}
}

// TestSteadyState: a queue that has been as full allocates nothing.
func TestSteadyState(t *testing.T) {
	var q FIFO[int]
	var h Heap[int]
	fill := func() {
		for i := range 20 {
			q.Push(i)
			h.Push(vtime.Time(20-i), 0, i)
		}
		for range 20 {
			q.Pop()
			h.Pop()
		}
	}
	fill()
	if n := testing.AllocsPerRun(100, fill); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
