// SPDX-License-Identifier: Apache-2.0

package virtswitch

import "testing"

// TestBitset: the set has its elements and no others, in the first word and the others.
func TestBitset(t *testing.T) {
	const n = PortsMax
	for i := range n {
		b := newBitset(n)
		b.set(i)
		for k := range n {
			if b.has(k) != (k == i) {
				t.Fatalf("with %d set, has(%d) is %v", i, k, b.has(k))
			}
			want := -1
			if k <= i {
				want = i
			}
			if got := b.next(k); got != want {
				t.Fatalf("with %d set, next(%d) is %d, want %d", i, k, got, want)
			}
		}
		b.set((i + 1) % n)
		b.clear(i)
		if b.has(i) || !b.has((i+1)%n) {
			t.Fatalf("%d is there still, or %d has gone with it", i, (i+1)%n)
		}
	}
	if b := newBitset(64); len(b) != 1 || b.next(0) != -1 {
		t.Errorf("64 ports take %d words", len(b))
	}
}
