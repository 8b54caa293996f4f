// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"unsafe"
)

// poolSlab is the number of frames that are allocated together: 64 KiB.
const poolSlab = 512

// Pool hands out frames and payload blocks and takes them back. One pool belongs to
// one driver and is not safe for concurrent use. In steady state it allocates nothing.
type Pool struct {
	// Poison makes the pool overwrite frames that are put back, so that a use after free shows.
	Poison bool

	free   []*Frame
	warm   uint8 // keeps the compiler from dropping the load of a frame that is needed soon
	blocks []*Block
	small  []*Block // those with smallCap bytes

	// Live and LiveBlocks count the frames and blocks that are handed out and not yet returned.
	// At the end of a run, when no link or queue holds a frame, both are zero.
	Live, LiveBlocks int
}

// ahead is the number of frames by which loading runs ahead: those of a large lab are not in the near caches when they are
// taken.
const ahead = 4

// cacheLine is the first line of a Frame, and firstLine the number of bytes of headers in it.
type cacheLine [8]uint64

const firstLine = int(unsafe.Sizeof(cacheLine{}) - unsafe.Offsetof(Frame{}.h))

// poison is written over a freed block: a copy is many times faster than a loop.
var poison = buildPoison()

func buildPoison() []byte { return bytes.Repeat([]byte{0xdd}, BlockCap) }

// Get returns a frame whose contents are undefined; Start, BuildPFC or Parse defines them.
func (p *Pool) Get() *Frame {
	n := len(p.free)
	if n == 0 {
		slab := make([]Frame, poolSlab)
		for i := range slab {
			slab[i].flags = flagFree
			p.free = append(p.free, &slab[i])
		}
		n = poolSlab
	}
	f := p.free[n-1]
	p.free = p.free[:n-1]
	if n > ahead {
		p.warm += p.free[n-1-ahead].flags
	}
	f.flags = 0
	p.Live++
	return f
}

// Free returns the number of frames that wait to be handed out.
func (p *Pool) Free() int { return len(p.free) }

// Give lets another pool hand out n of the frames that wait here, or all that do.
func (p *Pool) Give(to *Pool, n int) {
	keep := max(0, len(p.free)-n)
	to.free = append(to.free, p.free[keep:]...)
	clear(p.free[keep:])
	p.free = p.free[:keep]
}

// Put takes a frame back and drops its reference to the payload. Putting a frame
// back twice panics.
func (p *Pool) Put(f *Frame) {
	if f.flags&(flagBlock|flagFree) != 0 {
		if f.flags&flagFree != 0 {
			panic("wire: frame put back twice")
		}
		p.unref(f.block)
	}
	if p.Poison {
		copy(f.h[:], poison)
		f.block, f.icrc = nil, 0xdddddddd
	}
	f.flags = flagFree
	p.free = append(p.free, f)
	p.Live--
}

// Clone returns a second frame with the same bytes; the payload is shared.
func (p *Pool) Clone(f *Frame) *Frame {
	c := p.Get()
	*(*cacheLine)(unsafe.Pointer(c)) = *(*cacheLine)(unsafe.Pointer(f))
	if int(f.n) > firstLine {
		*(*[HeaderCap - firstLine]byte)(c.h[firstLine:]) = *(*[HeaderCap - firstLine]byte)(f.h[firstLine:])
	}
	if f.flags&flagTrusted == 0 {
		c.icrc = f.icrc
	}
	if f.flags&flagBlock != 0 {
		c.block = f.block
		f.block.refs++
	}
	return c
}

// Import returns a frame with the same bytes as one of another pool, whose payload is copied. The driver
// of that pool may continue meanwhile as long as it leaves this frame alone: of a payload that other
// frames share, Import reads only the parts that never change.
func (p *Pool) Import(f *Frame) *Frame {
	c := p.Get()
	c.n, c.flags, c.pay, c.h, c.icrc = f.n, f.flags, f.pay, f.h, f.icrc
	if f.flags&flagBlock != 0 {
		b := f.block.Bytes()
		c.block = p.BlockFor(len(b))
		copy(c.block.Fill(len(b)), b)
	}
	return c
}

// Strip drops the payload so that the frame can be built again in place.
func (p *Pool) Strip(f *Frame) {
	if f.flags&flagBlock != 0 {
		p.unref(f.block)
		f.flags &^= flagBlock
	}
	f.pay = 0
}

// Block returns a payload block with one reference, to be filled with up to BlockCap bytes.
func (p *Pool) Block() *Block { return p.take(&p.blocks, BlockCap) }

// BlockFor is Block for up to n bytes.
func (p *Pool) BlockFor(n int) *Block {
	if n <= smallCap {
		return p.take(&p.small, smallCap)
	}
	return p.Block()
}

func (p *Pool) take(free *[]*Block, size int) *Block {
	n := len(*free)
	if n == 0 {
		const slab = 16
		blocks, bytes := make([]Block, slab), make([]byte, slab*size)
		for i := range blocks {
			blocks[i].buf = bytes[i*size:][:size:size]
			*free = append(*free, &blocks[i])
		}
		n = slab
	}
	b := (*free)[n-1]
	*free = (*free)[:n-1]
	b.refs, b.known = 1, 0
	p.LiveBlocks++
	return b
}

func (p *Pool) unref(b *Block) {
	b.refs--
	if b.refs > 0 {
		return
	}
	if b.refs < 0 {
		panic("wire: payload block released twice")
	}
	if p.Poison {
		copy(b.buf, poison)
		b.known = 0
	}
	if len(b.buf) == smallCap {
		p.small = append(p.small, b)
	} else {
		p.blocks = append(p.blocks, b)
	}
	p.LiveBlocks--
}
