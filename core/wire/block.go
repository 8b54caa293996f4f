// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"math/bits"
)

// BlockCap is the most payload one frame carries: the largest RoCE path MTU, or the
// largest MRP packet with room to spare.
const BlockCap = 4096

// smallCap is the most that a small block holds: an MRP packet of a few members, of which a large lab
// has many at a time.
const smallCap = 512

// Block holds the payload of a frame. It is written once, before it is attached to
// a frame, and shared from then on: replication adds a reference, never a copy.
// What is computed from the bytes (CRC, hash) is therefore computed at most once.
type Block struct {
	refs  int32
	n     uint16
	known uint8
	crc   uint32
	hash  uint64
	buf   []byte // smallCap or BlockCap bytes
}

const (
	knownCRC = 1 << iota
	knownHash
)

// Fill returns n bytes to be written before the block is attached to a frame: at most BlockCap, or the
// size asked of BlockFor.
func (b *Block) Fill(n int) []byte {
	b.n, b.known = uint16(n), 0
	return b.buf[:n]
}

// Bytes returns the payload; it must not be written to.
func (b *Block) Bytes() []byte { return b.buf[:b.n] }

// Hash returns HashBytes of the payload.
func (b *Block) Hash() uint64 {
	if b.known&knownHash == 0 {
		b.hash, b.known = HashBytes(b.Bytes()), b.known|knownHash
	}
	return b.hash
}

func (b *Block) rawCRC() uint32 {
	if b.known&knownCRC == 0 {
		b.crc, b.known = crcRaw(0, b.Bytes()), b.known|knownCRC
	}
	return b.crc
}

// hashPrime is the largest prime below 2^64. Content hashes read bytes as one
// little-endian number modulo this prime, so hashes of parts add up to the hash of
// the whole whatever the parts are and in whatever order they come.
const hashPrime = 1<<64 - 59

// HashBytes returns the bytes of b, read as one little-endian number, modulo 2^64-59.
func HashBytes(b []byte) uint64 {
	var h uint64
	if r := len(b) & 7; r != 0 {
		var last [8]byte
		copy(last[:], b[len(b)-r:])
		h = hashReduce(0, binary.LittleEndian.Uint64(last[:]))
		b = b[:len(b)-r]
	}
	for i := len(b) - 8; i >= 0; i -= 8 {
		hi, lo := bits.Mul64(h, 59) // 2^64 is 59 modulo the prime
		lo, c := bits.Add64(lo, binary.LittleEndian.Uint64(b[i:]), 0)
		h = hashReduce(hi+c, lo)
	}
	return h
}

// HashAt returns the part of a region's hash that bytes with hash h add at byte offset off of the
// region.
func HashAt(h, off uint64) uint64 { return HashMul(h, hashPow(off)) }

// HashAdd adds the contributions of two disjoint parts of a region.
func HashAdd(a, b uint64) uint64 {
	s, c := bits.Add64(a, b, 0)
	return hashReduce(c, s)
}

// HashSub subtracts the contribution b from a.
func HashSub(a, b uint64) uint64 {
	if a >= b {
		return a - b
	}
	return a + (hashPrime - b)
}

// hashReduce brings hi*2^64 + lo below the prime.
func hashReduce(hi, lo uint64) uint64 {
	for hi != 0 {
		h, l := bits.Mul64(hi, 59)
		var c uint64
		lo, c = bits.Add64(lo, l, 0)
		hi = h + c
	}
	if lo >= hashPrime {
		lo -= hashPrime
	}
	return lo
}

// HashMul multiplies two hashes. HashAt(1, n) is the factor that moves a hash by n
// bytes; a caller that stores bytes in order keeps the product and saves the power.
func HashMul(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hashReduce(hi, lo)
}

// hashPow returns 256^off modulo the prime.
func hashPow(off uint64) uint64 {
	r, base := uint64(1), uint64(256)
	for ; off != 0; off >>= 1 {
		if off&1 != 0 {
			r = HashMul(r, base)
		}
		base = HashMul(base, base)
	}
	return r
}
