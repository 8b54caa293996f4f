// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

func TestCRCParts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		a := make([]byte, r.IntN(200))
		b := make([]byte, r.IntN(5000))
		for i := range a {
			a[i] = byte(r.Uint32())
		}
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		whole := ^crc32.ChecksumIEEE(append(append([]byte{}, a...), b...))
		parts := crcShift(crcRaw(0xffffffff, a), len(b)) ^ crcRaw(0, b)
		if whole != parts {
			t.Fatalf("len %d+%d: whole %08x, parts %08x", len(a), len(b), whole, parts)
		}
	}
}

func BenchmarkCRCShift(b *testing.B) {
	s := uint32(0x12345678)
	for b.Loop() {
		s = crcShift(s, 4096)
	}
	_ = s
}
