package sim

// BareHeap lets the benchmarks' bare loop use the event queue by itself.
type BareHeap struct{ h radixHeap }

// Push adds a key.
func (b *BareHeap) Push(k uint64) { b.h.push(k) }

// Pop takes the smallest key.
func (b *BareHeap) Pop() (uint64, bool) { return b.h.pop() }
