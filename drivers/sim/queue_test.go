// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// heap4 is the plain reference: a 4-ary heap.
type heap4 struct{ a []uint64 }

func (h *heap4) push(k uint64) {
	h.a = append(h.a, k)
	for i := len(h.a) - 1; i > 0; {
		p := (i - 1) / 4
		if h.a[p] <= h.a[i] {
			break
		}
		h.a[p], h.a[i] = h.a[i], h.a[p]
		i = p
	}
}

func (h *heap4) pop() (uint64, bool) {
	if len(h.a) == 0 {
		return 0, false
	}
	k := h.a[0]
	last := len(h.a) - 1
	h.a[0] = h.a[last]
	h.a = h.a[:last]
	for i := 0; ; {
		m := i
		for c := 4*i + 1; c <= 4*i+4 && c < last; c++ {
			if h.a[c] < h.a[m] {
				m = c
			}
		}
		if m == i {
			return k, true
		}
		h.a[m], h.a[i] = h.a[i], h.a[m]
		i = m
	}
}

// plainRadix is a radix heap without a front: every key moves down bucket by bucket.
type plainRadix struct {
	bucket [65][]uint64
	last   uint64
	n      int
}

func (h *plainRadix) push(k uint64) {
	i := bits.Len64(k ^ h.last)
	h.bucket[i] = append(h.bucket[i], k)
	h.n++
}

func (h *plainRadix) pop() (uint64, bool) {
	if h.n == 0 {
		return 0, false
	}
	h.n--
	i := 0
	for len(h.bucket[i]) == 0 {
		i++
	}
	b := h.bucket[i]
	h.bucket[i] = nil
	h.last = slices.Min(b)
	for _, k := range b {
		j := bits.Len64(k ^ h.last)
		h.bucket[j] = append(h.bucket[j], k)
	}
	h.bucket[0] = h.bucket[0][1:]
	return h.last, true
}

// TestRadixOrder: keys come in the order of a radix heap that moves them bucket by bucket, those below
// the last one included, however many of them there are and however far apart.
func TestRadixOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	early := 0
	for round := range 400 {
		var h radixHeap
		var ref plainRadix
		var last uint64
		many, far, tie := 1+r.IntN(400), 1+r.IntN(40), 1+r.IntN(12)
		for step := range 3000 {
			if (ref.n < many || r.IntN(3) == 0) && step < 2000 {
				k := (last>>tie+uint64(r.IntN(1<<far)))<<tie | uint64(r.IntN(1<<tie))
				if r.IntN(8) == 0 {
					k = last>>tie<<tie | uint64(r.IntN(1<<tie)) // of the same instant, perhaps below the last one
				}
				if k < last {
					early++
				}
				h.push(k)
				ref.push(k)
			} else {
				next, any := h.least()
				a, okA := h.pop()
				b, okB := ref.pop()
				if a != b || okA != okB || any != okA || any && next != a {
					t.Fatalf("round %d, step %d: popped %#x %v after %#x, want %#x %v", round, step, a, okA, next, b, okB)
				}
				last = h.last
			}
			if h.n != ref.n {
				t.Fatalf("round %d, step %d: %d keys, want %d", round, step, h.n, ref.n)
			}
			if r.IntN(500) == 0 && h.n > 0 { // effect of a change of the base
				keys := h.drain()
				for _, k := range keys {
					h.push(k)
				}
			}
		}
	}
	if early < 10000 {
		t.Errorf("only %d keys were below the last one", early)
	}
}

// TestRadixHeap compares the radix heap with the plain one over monotone use.
func TestRadixHeap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for round := range 200 {
		var h radixHeap
		var ref heap4
		now := uint64(0)
		for range 500 {
			if r.IntN(3) > 0 {
				k := now + uint64(r.IntN(1<<uint(r.IntN(40))))
				h.push(k)
				ref.push(k)
			} else {
				a, okA := h.pop()
				b, okB := ref.pop()
				if a != b || okA != okB {
					t.Fatalf("round %d: popped %d %v, want %d %v", round, a, okA, b, okB)
				}
				if okA {
					now = a
				}
			}
			if h.n != len(ref.a) {
				t.Fatalf("length %d, want %d", h.n, len(ref.a))
			}
		}
	}
}

// TestRadixHeapEarlierTie: a key of the current instant that ranks below the one popped
// last still comes before everything later.
func TestRadixHeapEarlierTie(t *testing.T) {
	var h radixHeap
	const instant = 1 << 20
	for _, k := range []uint64{instant | 5, instant | 9, 2*instant | 1} {
		h.push(k)
	}
	if k, _ := h.pop(); k != instant|5 {
		t.Fatalf("popped %#x", k)
	}
	h.push(instant | 2)
	seen := map[uint64]bool{}
	for range 2 {
		k, _ := h.pop()
		seen[k] = true
	}
	if !seen[instant|2] || !seen[instant|9] {
		t.Errorf("popped %v before the later instant", seen)
	}
	if k, _ := h.pop(); k != 2*instant|1 {
		t.Errorf("last is %#x", k)
	}
}

func BenchmarkQueue(b *testing.B) {
	for _, c := range []struct {
		name string
		q    interface {
			push(k uint64)
			pop() (k uint64, ok bool)
		}
	}{{"radix", &radixHeap{}}, {"heap4", &heap4{}}} {
		b.Run(c.name, func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 1))
			for range 2000 {
				c.q.push(uint64(r.IntN(2_000_000)) << 18)
			}
			for b.Loop() {
				k, _ := c.q.pop()
				c.q.push(k + uint64(1_000_000+r.IntN(400_000))<<18)
			}
		})
	}
}
