// SPDX-License-Identifier: Apache-2.0

package collective

// layout divides a result into chunks. There are blocks of n bytes, one in a broadcast and one
// per rank in an Allgather, each cut into chunks of which the last may be short. Chunks are
// numbered through the receive buffer; this number is the PSN of the protocol (AG-9).
type layout struct {
	blocks int
	n      int // bytes in a block
	chunk  int // bytes in a chunk
	per    int // chunks in a block
}

func newLayout(blocks, n, chunk int) layout {
	return layout{blocks, n, chunk, (n + chunk - 1) / chunk}
}

// count returns the number of chunks.
func (l layout) count() int { return l.blocks * l.per }

// at returns the offset and length of a chunk in the buffer.
func (l layout) at(c int) (off, n int) {
	b, i := c/l.per, c%l.per
	return b*l.n + i*l.chunk, min(l.chunk, l.n-i*l.chunk)
}

// extent returns the offset and length of a run of chunks: blocks follow each other without
// gaps.
func (l layout) extent(s span) (off, n int) {
	off, _ = l.at(s.lo)
	last, more := l.at(s.hi - 1)
	return off, last + more - off
}

// share returns the chunks of a block that go by one of several subgroups: a contiguous run,
// the same in every block (AG-24).
func (l layout) share(block, sub, subs int) span {
	return span{block*l.per + sub*l.per/subs, block*l.per + (sub+1)*l.per/subs}
}

// span is the chunks lo to hi-1.
type span struct{ lo, hi int }

// bitmap marks the chunks that have been received (AG-11).
type bitmap []uint64

// reset clears the bitmap and sizes it for n chunks.
func (m *bitmap) reset(n int) {
	words := (n + 63) / 64
	if cap(*m) < words {
		*m = make(bitmap, words)
	}
	*m = (*m)[:words]
	clear(*m)
}

func (m bitmap) has(c int) bool { return m[c/64]>>(c%64)&1 != 0 }

func (m bitmap) set(c int) { m[c/64] |= 1 << (c % 64) }

// runs returns the runs of chunks within s for which has returns true, at most the first most
// of them.
func runs(s span, most int, has func(c int) bool) (all []span) {
	for c := s.lo; c < s.hi; c++ {
		switch {
		case !has(c):
		case len(all) > 0 && all[len(all)-1].hi == c:
			all[len(all)-1].hi++
		case len(all) == most:
			return all
		default:
			all = append(all, span{c, c + 1})
		}
	}
	return all
}
