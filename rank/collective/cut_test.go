// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"testing"

	"pgregory.net/rapid"
)

// TestCut: the pieces of a message are whole packets but for the last, of one size but
// for the last, no more than asked for but one at least, and cover the message once.
func TestCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 100000).Draw(t, "bytes")
		s := rapid.IntRange(0, 600).Draw(t, "slices")
		mtu := 256 << rapid.IntRange(0, 4).Draw(t, "mtu")
		pieces := cut(n, s, mtu)
		if len(pieces) > max(1, s) || len(pieces) == 0 {
			t.Fatalf("%d pieces of %d asked for", len(pieces), s)
		}
		off := 0
		for i, p := range pieces {
			last := i == len(pieces)-1
			if p.off != off || !last && (p.n != pieces[0].n || p.n%mtu != 0 || p.n == 0) || last && p.n > pieces[0].n {
				t.Fatalf("piece %d of %v", i, pieces)
			}
			off += p.n
		}
		if off != n {
			t.Fatalf("%d of %d bytes covered", off, n)
		}
	})
}
