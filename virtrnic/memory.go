// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Memory is the memory behind a region. Real memory (Bytes) has bytes, hashed memory a hash of the
// written bytes, and phantom memory only a length. The last two let one process hold a broadcast to
// thousands of hosts.
type Memory interface {
	// Size returns the bytes of the memory.
	Size() uint64
	// load attaches n bytes from offset off to the frame as its payload, n > 0.
	load(p *wire.Pool, f *wire.Frame, off uint64, n int)
	// store writes the frame's payload, which is not empty, at offset off.
	store(f *wire.Frame, off uint64)
	// read copies len(b) bytes from offset off.
	read(b []byte, off uint64)
	// write writes n > 0 bytes at offset off: b, or zeros if it is nil.
	write(b []byte, off uint64, n int)
}

// Copy copies n bytes within a host, as its processor or a loopback WRITE does. Phantom
// memory reads as zeros.
func Copy(dst Memory, to uint64, src Memory, from uint64, n int) {
	if n == 0 {
		return
	}
	switch m := src.(type) {
	case Bytes:
		dst.write(m[from:from+uint64(n)], to, n)
	case Phantom:
		dst.write(nil, to, n)
	default:
		b := make([]byte, n)
		src.read(b, from)
		dst.write(b, to, n)
	}
}

// Bytes is real memory.
type Bytes []byte

// Size implements Memory.
func (m Bytes) Size() uint64 { return uint64(len(m)) }

func (m Bytes) load(p *wire.Pool, f *wire.Frame, off uint64, n int) {
	b := p.Block()
	copy(b.Fill(n), m[off:])
	f.SetPayload(b)
}

func (m Bytes) store(f *wire.Frame, off uint64) { m.write(f.PayloadBytes(), off, f.PayloadLen()) }

func (m Bytes) read(b []byte, off uint64) { copy(b, m[off:]) }

func (m Bytes) write(b []byte, off uint64, n int) {
	if b != nil {
		copy(m[off:], b)
		return
	}
	clear(m[off : off+uint64(n)])
}

// Phantom is memory without bytes: it reads as zeros and drops writes.
type Phantom uint64

// Size implements Memory.
func (m Phantom) Size() uint64 { return uint64(m) }

func (m Phantom) load(_ *wire.Pool, f *wire.Frame, _ uint64, n int) { f.SetPhantom(n) }

func (m Phantom) store(*wire.Frame, uint64) {}

func (m Phantom) read(b []byte, _ uint64) { clear(b) }

func (m Phantom) write([]byte, uint64, int) {}

// Hashed is memory that keeps, instead of bytes, the hash of the bytes written since Reset and the
// parts that they cover. It reads as the expected message (prng.Fill of a seed), but only where it was
// written or is the origin: anywhere else it reads as something else, so that a relay that sends too
// early is caught.
type Hashed struct {
	size    uint64
	seed    uint64
	origin  bool
	sum     uint64 // hash of the covered bytes, all others zero
	torn    bool   // some byte was written more than once
	covered []span // ascending, disjoint, not adjacent

	powOff, pow uint64 // pow is 256^powOff; powOff is the end of the last store
	stepN, step uint64 // step is 256^stepN; stepN is the length of the last store
}

type span struct{ from, to uint64 }

// NewHashed returns hashed memory of the given size.
func NewHashed(size uint64) *Hashed { return &Hashed{size: size} }

// Reset forgets all writes. The memory now expects the message of the seed; with origin it holds all of
// it already.
func (m *Hashed) Reset(seed uint64, origin bool) {
	m.seed, m.origin, m.sum, m.torn, m.covered = seed, origin, 0, false, m.covered[:0]
	m.powOff, m.pow = 0, 1
}

// Flip alters the hash as if the lowest bit of the byte at an offset had been set.
func (m *Hashed) Flip(off uint64) { m.sum = wire.HashAdd(m.sum, wire.HashAt(1, off)) }

// Size implements Memory.
func (m *Hashed) Size() uint64 { return m.size }

// Sum returns the hash of the first n bytes (wire.HashBytes). complete reports whether exactly
// these bytes were written, each once.
func (m *Hashed) Sum(n uint64) (sum uint64, complete bool) {
	whole := n == 0 && len(m.covered) == 0 ||
		len(m.covered) == 1 && m.covered[0] == span{0, n}
	return m.sum, whole && !m.torn
}

func (m *Hashed) load(p *wire.Pool, f *wire.Frame, off uint64, n int) {
	b := p.Block()
	m.read(b.Fill(n), off)
	f.SetPayload(b)
}

func (m *Hashed) read(b []byte, off uint64) {
	seed := m.seed
	if !m.holds(off, off+uint64(len(b))) {
		seed = ^seed
	}
	prng.Fill(b, seed, off)
}

// holds reports whether the memory holds bytes [from, to) of its message.
func (m *Hashed) holds(from, to uint64) bool {
	if m.origin {
		return true
	}
	for _, s := range m.covered {
		if s.from <= from && to <= s.to {
			return true
		}
	}
	return false
}

func (m *Hashed) store(f *wire.Frame, off uint64) {
	n := uint64(f.PayloadLen())
	m.cover(off, off+n)
	if b := f.Payload(); b != nil {
		m.add(b.Hash(), off, n)
	}
}

func (m *Hashed) write(b []byte, off uint64, n int) {
	m.cover(off, off+uint64(n))
	if b != nil {
		m.add(wire.HashBytes(b), off, uint64(n))
	}
}

// add adds the hash of n bytes at an offset; bytes that are 0 add nothing.
func (m *Hashed) add(hash, off, n uint64) {
	if off != m.powOff {
		m.powOff, m.pow = off, wire.HashAt(1, off)
	}
	m.sum = wire.HashAdd(m.sum, wire.HashMul(hash, m.pow))
	if n != m.stepN {
		m.stepN, m.step = n, wire.HashAt(1, n)
	}
	m.powOff, m.pow = off+n, wire.HashMul(m.pow, m.step)
}

// cover adds [from, to) to the covered parts. Data mostly comes in order, so the last span grows;
// anything else is put in its place.
func (m *Hashed) cover(from, to uint64) {
	n := len(m.covered)
	if n > 0 && m.covered[n-1].to == from {
		m.covered[n-1].to = to
		return
	}
	i := n
	for i > 0 && m.covered[i-1].from > from {
		i--
	}
	if i > 0 && m.covered[i-1].to > from || i < n && to > m.covered[i].from {
		m.torn = true
		return
	}
	m.covered = append(m.covered, span{})
	copy(m.covered[i+1:], m.covered[i:])
	m.covered[i] = span{from, to}
	if i+1 < len(m.covered) && m.covered[i].to == m.covered[i+1].from {
		m.covered[i].to = m.covered[i+1].to
		m.covered = append(m.covered[:i+1], m.covered[i+2:]...)
	}
	if i > 0 && m.covered[i-1].to == m.covered[i].from {
		m.covered[i-1].to = m.covered[i].to
		m.covered = append(m.covered[:i], m.covered[i+1:]...)
	}
}
