// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestLayout: chunks cover the buffer once, in order, and shares of subgroups cover them.
func TestLayout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLayout(rapid.IntRange(1, 9).Draw(t, "blocks"), rapid.IntRange(0, 5000).Draw(t, "n"), rapid.IntRange(1, 700).Draw(t, "chunk"))
		at := 0
		for k := range l.count() {
			off, n := l.at(k)
			if off != at || n < 1 || n > l.chunk {
				t.Fatalf("%+v: chunk %d is %d bytes at %d, want them at %d", l, k, n, off, at)
			}
			at += n
		}
		if at != l.blocks*l.n {
			t.Fatalf("%+v: chunks end at %d", l, at)
		}
		if l.count() > 0 {
			lo := rapid.IntRange(0, l.count()-1).Draw(t, "lo")
			hi := rapid.IntRange(lo+1, l.count()).Draw(t, "hi")
			off, n := l.extent(span{lo, hi})
			first, _ := l.at(lo)
			last, more := l.at(hi - 1)
			if off != first || off+n != last+more {
				t.Fatalf("%+v: chunks %d to %d are %d bytes at %d", l, lo, hi, n, off)
			}
		}
		subs, next := rapid.IntRange(1, 8).Draw(t, "subgroups"), 0
		for b := range l.blocks {
			for s := range subs {
				k := l.share(b, s, subs)
				if k.lo != next || k.hi < k.lo {
					t.Fatalf("%+v: share %d of %d of block %d is %v, want it from %d", l, s, subs, b, k, next)
				}
				next = k.hi
			}
		}
		if next != l.count() {
			t.Fatalf("%+v: shares end at %d", l, next)
		}
	})
}

// TestPaperSubgroups: the paper's example (§IV-C, R-A12): 16 ranks, 8 MiB, 4 subgroups
// are 2 MiB to send and 30 MiB to receive per queue pair.
func TestPaperSubgroups(t *testing.T) {
	l := newLayout(16, 8<<20, 4096)
	for s := range 4 {
		own, all := 0, 0
		for b := range l.blocks {
			k := l.share(b, s, 4)
			if b == 0 {
				own = (k.hi - k.lo) * l.chunk
			} else {
				all += (k.hi - k.lo) * l.chunk
			}
		}
		if own != 2<<20 || all != 30<<20 {
			t.Errorf("subgroup %d: sends %d, receives %d bytes", s, own, all)
		}
	}
}

// TestBitmap: runs are the maximal ones, lowest first, and no more than asked for. A
// bitmap of 2^b bits is 2^b/8 bytes and covers 2^b chunks (F-23, R-A5).
func TestBitmap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "chunks")
		var m bitmap
		m.reset(n)
		var want []span
		in := rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "set")
		for i, is := range in {
			if !is {
				continue
			}
			m.set(i)
			if k := len(want); k > 0 && want[k-1].hi == i {
				want[k-1].hi++
			} else {
				want = append(want, span{i, i + 1})
			}
		}
		most := rapid.IntRange(1, 20).Draw(t, "most")
		if got := runs(span{0, n}, most, m.has); !slices.Equal(got, want[:min(most, len(want))]) {
			t.Fatalf("runs %v, want %v, at most %d", got, want, most)
		}
	})
	for bits, bytes := range map[int]int{20: 128 << 10, 22: 512 << 10, 24: 2 << 20} {
		var m bitmap
		if m.reset(1 << bits); len(m)*8 != bytes {
			t.Errorf("2^%d chunks take %d bytes, want %d", bits, len(m)*8, bytes)
		}
	}
}

// TestSpans: lists of spans survive encoding and decoding, and malformed lists are refused.
func TestSpans(t *testing.T) {
	all := []span{{0, 1}, {3, 9}, {12, 13}}
	b := appendSpans(nil, all)
	if got, err := parseSpans(b, 13); err != nil || !slices.Equal(got, all) {
		t.Errorf("got %v, %v", got, err)
	}
	if want := "\x00\x00\x00\x03\x00\x00\x00\x06"; string(b[8:16]) != want {
		t.Errorf("the second run is %x, want %x", b[8:16], want)
	}
	for n := range len(b) {
		if got, err := parseSpans(b[:n], 13); (err == nil) != (n%8 == 0) || len(got) != n/8 && err == nil {
			t.Errorf("%d bytes: %v, %v", n, got, err)
		}
	}
	if _, err := parseSpans(b, 12); err == nil {
		t.Error("a chunk beyond the last one is taken")
	}
	if _, err := parseSpans(appendSpans(nil, []span{{4, 4}}), 12); err == nil {
		t.Error("an empty run is taken")
	}
	if _, err := parseSpans(make([]byte, (spansMax+1)*spanLen), 1<<24); err == nil {
		t.Error("a list that is too long is taken")
	}
}

// FuzzSpans: no bytes from a neighbour name chunks that there are not.
func FuzzSpans(f *testing.F) {
	f.Add(appendSpans(nil, []span{{0, 1}, {3, 9}}), 9)
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255}, 100)
	f.Fuzz(func(t *testing.T, b []byte, chunks int) {
		all, err := parseSpans(b, max(0, chunks))
		for _, s := range all {
			if err == nil && (s.lo < 0 || s.lo >= s.hi || s.hi > chunks) {
				t.Errorf("%v of %d", s, chunks)
			}
		}
	})
}

// TestChains: chains are consecutive and of the lengths that AG-21 gives.
func TestChains(t *testing.T) {
	for _, c := range []struct {
		ranks, chains int
		want          []int
	}{{8, 2, []int{0, 4, 8}}, {8, 3, []int{0, 3, 6, 8}}, {7, 7, []int{0, 1, 2, 3, 4, 5, 6, 7}}, {11, 4, []int{0, 3, 6, 9, 11}}, {5, 1, []int{0, 5}}} {
		for i, want := range c.want {
			if got := chainStart(c.ranks, c.chains, i); got != want {
				t.Errorf("%d ranks in %d chains: chain %d begins at %d, want %d", c.ranks, c.chains, i, got, want)
			}
		}
	}
}
