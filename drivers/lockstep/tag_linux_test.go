// SPDX-License-Identifier: Apache-2.0

package lockstep

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

var testKey = []byte("sixteen bytes of")

// TestTags: a tag with a key is of the key, the transmitter, the place, and each bit of the frame, and costs no memory.
func TestTags(t *testing.T) {
	seed := rand.Uint64()
	draw := rand.New(rand.NewPCG(seed, 0))
	tags, err := newTagger(testKey)
	if err != nil {
		t.Fatal(err)
	}
	other, err := newTagger(slices.Concat(testKey[1:], testKey[:1]))
	if err != nil {
		t.Fatal(err)
	}
	for range 2000 {
		b := make([]byte, 1+draw.IntN(9014))
		for i := range b {
			b[i] = byte(draw.Uint32())
		}
		id, n := draw.IntN(1<<20), draw.Uint64()
		want := tags.of(id, n, b)
		if tags.of(id, n, bytes.Clone(b)) != want {
			t.Fatalf("seed %d: a frame has two tags", seed)
		}
		if tags.of(id+1, n, b) == want || tags.of(id, n+1, b) == want || tags.of(id, n, b[:len(b)-1]) == want || other.of(id, n, b) == want {
			t.Fatalf("seed %d: two frames have one tag", seed)
		}
		bit := draw.IntN(8 * len(b))
		if b[bit/8] ^= 1 << (bit % 8); tags.of(id, n, b) == want {
			t.Fatalf("seed %d: bit %d of %d bytes does not count", seed, bit, len(b))
		}
	}
	b := make([]byte, 4210)
	if n := testing.AllocsPerRun(100, func() { tags.of(1, 2, b) }); n != 0 {
		t.Errorf("a tag makes %v allocations", n)
	}
	if _, err := newTagger(testKey[1:]); err == nil {
		t.Error("a key of 15 bytes is taken")
	}
}

// TestReplayedFrames: a stranger who has recorded all that a host receives in a run, which is the same in the next, sends
// it again in that, at any time and in any order. That run is the simulation.
func TestReplayedFrames(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	draw := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex // of state that the node's goroutine shares with this one
	var frames [][]byte
	for _, sends := range []bool{false, true} {
		b := newBenchOn(t, benchLab, 3)
		b.key = testKey
		next := 0
		b.pipes[1][0].spoil = func(i int, f []byte) []byte {
			mu.Lock()
			defer mu.Unlock()
			if next = i; !sends {
				frames = append(frames, slices.Clone(f))
			}
			return f
		}
		b.start(nil)
		sent := 0
		b.edge = func() error {
			if !sends || draw.IntN(4) > 0 || sent > 1000 {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			at := min(next+draw.IntN(8), len(frames)-1) // the next frame, or
			if draw.IntN(2) == 0 {
				at = draw.IntN(len(frames)) // any
			}
			sent++
			_, err := b.pipes[4][1].Send(frames[at : at+1])
			return err
		}
		if err := b.run(); err != nil {
			t.Fatalf("seed %d, after %d copies: %v", seed, sent, err)
		}
		b.sameAs(nil, false)
		if got := b.nodes[1].Foreign(0); sends != (got > 0) || got > uint64(sent) {
			t.Errorf("seed %d: %d frames were refused, %d copies sent", seed, got, sent)
		}
	}
}
