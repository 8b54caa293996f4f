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

// TestMeterOfNothing: messages that take next to no time, as those of nothing may, do not make it
// normal that a message takes none.
func TestMeterOfNothing(t *testing.T) {
	m := newTestMeter()
	for range 1000 {
		m.begin(5, 0)
		m.end(6)
		if m.normal(0) < m.onWire(0) {
			t.Fatalf("normal is %v, and its packet takes %v", m.normal(0), m.onWire(0))
		}
	}
}
