// SPDX-License-Identifier: Apache-2.0

package wire

import "testing"

// TestBlockFor: a block holds the size asked for, also when it is used again after one of the other kind.
func TestBlockFor(t *testing.T) {
	p := Pool{Poison: true}
	for range 3 {
		for _, n := range []int{0, 1, smallCap, smallCap + 1, BlockCap} {
			b := p.BlockFor(n)
			for i := range b.Fill(n) {
				b.buf[i] = byte(n)
			}
			if got := b.Bytes(); len(got) != n || n > 0 && (got[0] != byte(n) || got[n-1] != byte(n)) {
				t.Errorf("a block for %d bytes has %d", n, len(got))
			}
			if room := len(b.buf); n <= smallCap && room != smallCap || n > smallCap && room != BlockCap {
				t.Errorf("a block for %d bytes has room for %d", n, len(b.buf))
			}
			p.unref(b)
		}
	}
	if p.LiveBlocks != 0 {
		t.Errorf("%d blocks are live", p.LiveBlocks)
	}
}
