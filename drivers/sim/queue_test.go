package sim

import (
	"math/rand/v2"
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
