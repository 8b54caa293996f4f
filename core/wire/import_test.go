// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// TestImport: a frame that another pool imports has the same bytes and the same digest, and nothing in
// common with the original, which may change and go.
func TestImport(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p, q Pool
		p.Poison = true
		f := drawFrame(t, &p)
		want, mix, phantom := f.AppendTo(nil), f.Mix(1), f.Phantom()
		c := q.Import(f)
		p.Put(f)
		if p.Live != 0 || p.LiveBlocks != 0 || q.Live != 1 {
			t.Fatalf("the first pool has %d frames and %d blocks live, the other %d frames", p.Live, p.LiveBlocks, q.Live)
		}
		if got := c.AppendTo(nil); !bytes.Equal(got, want) || c.Mix(1) != mix || c.Phantom() != phantom {
			t.Fatalf("%x is imported as %x", want, got)
		}
		q.Put(c)
		if q.Live != 0 || q.LiveBlocks != 0 {
			t.Fatalf("%d frames and %d blocks of the other pool are live", q.Live, q.LiveBlocks)
		}
	})
}
