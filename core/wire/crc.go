// SPDX-License-Identifier: Apache-2.0

package wire

import "hash/crc32"

// The ICRC is CRC-32 (IEEE 802.3). CRC is linear: with state s after bytes A, the
// state after A and then B is shift(s, len(B)) XOR raw(B), where raw starts from
// zero. That lets a frame's ICRC be put together from its headers and a payload
// whose raw CRC was computed once, and lets a rewrite of headers change the ICRC
// without a look at the payload.
//
// A "state" here is the register itself; hash/crc32 works on its complement.

// maxShift bounds the byte count crcShift accepts: more than any frame holds.
const maxShift = 16384

// crcPow[n] is x^(8n) modulo the CRC polynomial, bits reflected.
var crcPow = buildCRCPow()

func buildCRCPow() *[maxShift + 1]uint32 {
	var t [maxShift + 1]uint32
	t[0] = 1 << 31 // x^0
	for n := 1; n <= maxShift; n++ {
		v := t[n-1]
		t[n] = v>>8 ^ crc32.IEEETable[v&0xff]
	}
	return &t
}

// crcMul multiplies two reflected polynomials modulo the CRC polynomial.
func crcMul(a, b uint32) (r uint32) {
	for range 32 {
		// x^k coefficients of a leave from the top; b is multiplied by x each round.
		r ^= b & -(a >> 31)
		a <<= 1
		b = b>>1 ^ crc32.IEEE&-(b&1)
	}
	return r
}

// crcShift returns the state after n more zero bytes.
func crcShift(s uint32, n int) uint32 {
	if s == 0 || n == 0 {
		return s
	}
	return crcMul(s, crcPow[n])
}

// crcRaw returns the state after b, starting from state s.
func crcRaw(s uint32, b []byte) uint32 { return ^crc32.Update(^s, crc32.IEEETable, b) }

// crcSmall is crcRaw from state zero for a few bytes on the stack, which would
// escape through hash/crc32.
func crcSmall(b []byte) (s uint32) {
	for _, x := range b {
		s = s>>8 ^ crc32.IEEETable[byte(s)^x]
	}
	return s
}
