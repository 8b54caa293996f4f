// SPDX-License-Identifier: Apache-2.0

// Package prng gives every part of a run its own stream of random numbers, derived from one seed by
// name: adding a host or a link does not change the draws of another.
package prng

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"math/rand/v2"
)

// Stream is a seeded stream of random numbers (PCG). It is a value: a copy continues
// from where the original was and then goes its own way.
type Stream struct {
	pcg  rand.PCG
	seed uint64
}

// New returns the root stream of a seed.
func New(seed uint64) Stream {
	s := Stream{seed: seed}
	s.pcg.Seed(Mix(seed), Mix(seed^0x6d63617374)) // "mcast"
	return s
}

// Derive returns the stream with the given name. It depends on the seed and the name only, not on
// earlier draws.
func (s *Stream) Derive(name string) Stream {
	h := s.seed
	for i := range len(name) {
		h = Mix(h ^ uint64(name[i]))
	}
	return New(Mix(h + uint64(len(name))))
}

// Uint64 returns 64 random bits.
func (s *Stream) Uint64() uint64 { return s.pcg.Uint64() }

// IntN returns a number in [0, n); n must be positive.
func (s *Stream) IntN(n int) int {
	if n <= 0 {
		panic("prng: IntN of a number below 1")
	}
	hi, _ := bits.Mul64(s.Uint64(), uint64(n)) // bias below n/2^64
	return int(hi)
}

// Float64 returns a number in [0, 1).
func (s *Stream) Float64() float64 { return float64(s.Uint64()>>11) / (1 << 53) }

// Chance reports whether an event of probability p happens in this draw.
func (s *Stream) Chance(p float64) bool { return s.Float64() < p }

// Perm returns a random permutation of [0, n).
func (s *Stream) Perm(n int) []int {
	p := make([]int, n)
	for i := range p {
		j := s.IntN(i + 1)
		p[i], p[j] = p[j], i
	}
	return p
}

// Mix is the finaliser of splitmix64: a bijection under which neighbours part.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Fill writes the bytes from offset off on of the endless pseudo-random message named by seed.
// Workloads send it, and receivers are checked against it.
func Fill(b []byte, seed, off uint64) {
	seed = Mix(seed)
	for len(b) > 0 {
		w := Mix(seed ^ off/8)
		if off%8 == 0 && len(b) >= 8 {
			_ = b[7]
			b[0], b[1], b[2], b[3] = byte(w), byte(w>>8), byte(w>>16), byte(w>>24)
			b[4], b[5], b[6], b[7] = byte(w>>32), byte(w>>40), byte(w>>48), byte(w>>56)
			b, off = b[8:], off+8
			continue
		}
		b[0] = byte(w >> (off % 8 * 8))
		b, off = b[1:], off+1
	}
}

// MarshalBinary returns the state of the stream, with which another process can continue it.
func (s Stream) MarshalBinary() ([]byte, error) {
	b, err := s.pcg.MarshalBinary()
	return binary.BigEndian.AppendUint64(b, s.seed), err
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler.
func (s *Stream) UnmarshalBinary(b []byte) error {
	if len(b) < 8 {
		return errors.New("prng: a stream is cut short")
	}
	s.seed = binary.BigEndian.Uint64(b[len(b)-8:])
	return s.pcg.UnmarshalBinary(b[:len(b)-8])
}
