// SPDX-License-Identifier: Apache-2.0

package prng

import (
	"bytes"
	"testing"
)

func TestStreamIsFixed(t *testing.T) {
	// These numbers are part of a seed's meaning: if they change, old seeds no longer reproduce their
	// runs.
	s := New(1)
	d := s.Derive("link/h0:0-leaf0:0")
	got := [4]uint64{s.Uint64(), s.Uint64(), d.Uint64(), d.Uint64()}
	want := [4]uint64{0xb293036f3f5721fd, 0xba01b8bb455767a6, 0xe8f880bd22febd77, 0x310f89e05067557}
	if got != want {
		t.Errorf("streams of seed 1 start %#x, want %#x", got, want)
	}
	again := New(1)
	if d2 := again.Derive("link/h0:0-leaf0:0"); d2.Uint64() != got[2] {
		t.Error("a derived stream depends on more than seed and name")
	}
	if again.Uint64() != got[0] {
		t.Error("one seed, two streams")
	}
}

func TestStreamsDiffer(t *testing.T) {
	s := New(7)
	seen := map[uint64]string{}
	for _, n := range []string{"", "a", "b", "ab", "ba", "a\x00", "h1", "h10", "h11"} {
		d := s.Derive(n)
		v := d.Uint64()
		if other, dup := seen[v]; dup {
			t.Errorf("streams %q and %q start alike", n, other)
		}
		seen[v] = n
	}
}

func TestUniform(t *testing.T) {
	s := New(3)
	var count [10]int
	hits := 0
	for range 100000 {
		count[s.IntN(10)]++
		if s.Chance(0.01) {
			hits++
		}
	}
	for i, c := range count {
		if c < 9500 || c > 10500 {
			t.Errorf("%d drawn %d times of 100000, expected about 10000", i, c)
		}
	}
	if hits < 850 || hits > 1150 {
		t.Errorf("chance 0.01 hit %d times of 100000", hits)
	}
	seen := map[int]bool{}
	for _, v := range s.Perm(50) {
		seen[v] = true
	}
	if len(seen) != 50 {
		t.Errorf("permutation of 50 has %d values", len(seen))
	}
}

func TestFillIsOneMessage(t *testing.T) {
	whole := make([]byte, 1000)
	Fill(whole, 42, 0)
	for _, c := range [][2]int{{0, 7}, {1, 9}, {8, 16}, {13, 999}, {500, 500}, {999, 1000}} {
		part := make([]byte, c[1]-c[0])
		Fill(part, 42, uint64(c[0]))
		if !bytes.Equal(part, whole[c[0]:c[1]]) {
			t.Errorf("bytes %d..%d differ from the whole message's", c[0], c[1])
		}
	}
	other := make([]byte, 1000)
	Fill(other, 43, 0)
	if bytes.Equal(whole, other) {
		t.Error("two seeds, one message")
	}
}

func BenchmarkFill4096(b *testing.B) {
	x := make([]byte, 4096)
	for b.Loop() {
		Fill(x, 1, 8192)
	}
}
