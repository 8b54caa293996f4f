// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/wire"
)

// frameOf returns a frame with the given payload.
func frameOf(p *wire.Pool, b []byte) *wire.Frame {
	f := p.Get()
	f.BuildPFC(wire.PFC{})
	blk := p.Block()
	copy(blk.Fill(len(b)), b)
	f.SetPayload(blk)
	return f
}

// TestHashedMemory stores a message in pieces, in any order, some perhaps missing,
// doubled or wrong, and compares the verdict with that of real memory.
func TestHashedMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p wire.Pool
		n := rapid.IntRange(1, 3000).Draw(t, "size")
		seed := rapid.Uint64().Draw(t, "seed")
		msg := make([]byte, n)
		prng.Fill(msg, seed, 0)
		real, hashed := make(Bytes, n), NewHashed(uint64(n))
		hashed.Reset(seed, false)
		var cuts []int
		for at := 0; at < n; {
			cuts = append(cuts, at)
			at += rapid.IntRange(1, 700).Draw(t, "piece")
		}
		whole := true
		for _, i := range rapid.Permutation(seq(len(cuts))).Draw(t, "order") {
			end := n
			if i+1 < len(cuts) {
				end = cuts[i+1]
			}
			b := append([]byte(nil), msg[cuts[i]:end]...)
			times := 1
			switch rapid.IntRange(0, 20).Draw(t, "fate") {
			case 0:
				times, whole = 0, false
			case 1:
				times, whole = 2, false // bytes delivered twice are not delivered once
			case 2:
				b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
				whole = false
			}
			for range times {
				f := frameOf(&p, b)
				real.store(f, uint64(cuts[i]))
				hashed.store(f, uint64(cuts[i]))
				p.Put(f)
			}
		}
		sum, complete := hashed.Sum(uint64(n))
		if ok := complete && sum == wire.HashBytes(msg); ok != whole {
			t.Fatalf("hashed memory says %v (complete %v), the message is whole: %v", ok, complete, whole)
		}
		if whole && string(real) != string(msg) {
			t.Fatal("real memory has other bytes")
		}
		if p.Live != 0 || p.LiveBlocks != 0 {
			t.Fatalf("%d frames, %d payloads live", p.Live, p.LiveBlocks)
		}
	})
}

func seq(n int) (s []int) {
	for i := range n {
		s = append(s, i)
	}
	return s
}

// TestHashedRelay: hashed memory reads as its message only where it holds it.
func TestHashedRelay(t *testing.T) {
	var p wire.Pool
	h := NewHashed(1000)
	h.Reset(7, false)
	part := make([]byte, 300)
	prng.Fill(part, 7, 100)
	f := frameOf(&p, part)
	h.store(f, 100)
	for _, c := range []struct {
		off, n int
		holds  bool
	}{{100, 300, true}, {150, 20, true}, {99, 2, false}, {399, 2, false}, {500, 10, false}} {
		g := p.Get()
		g.BuildPFC(wire.PFC{})
		h.load(&p, g, uint64(c.off), c.n)
		want := make([]byte, c.n)
		prng.Fill(want, 7, uint64(c.off))
		if got := string(g.Payload().Bytes()) == string(want); got != c.holds {
			t.Errorf("bytes %d to %d read as the message: %v, want %v", c.off, c.off+c.n, got, c.holds)
		}
	}
	h.Reset(7, true)
	g := p.Get()
	g.BuildPFC(wire.PFC{})
	h.load(&p, g, 100, 300)
	if string(g.Payload().Bytes()) != string(part) {
		t.Error("the origin does not read as its message")
	}
}

// TestHashedNothing: a message of no bytes is there as long as nothing was written.
func TestHashedNothing(t *testing.T) {
	m := NewHashed(8)
	m.Reset(1, false)
	if _, ok := m.Sum(0); !ok {
		t.Error("nothing was written, and the message of no bytes is not complete")
	}
	m.write([]byte{1}, 0, 1)
	if _, ok := m.Sum(0); ok {
		t.Error("a byte was written, and the message of no bytes is complete")
	}
}
