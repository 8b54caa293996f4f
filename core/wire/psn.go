// SPDX-License-Identifier: Apache-2.0

package wire

import "fmt"

// PSN is a 24-bit packet sequence number. All comparison is serial: a is after b
// iff 0 < (a-b) mod 2^24 < 2^23 (InfiniBand specification, chapter 9.7.1; GEN-5).
type PSN uint32

// PSNMask holds the 24 bits of a PSN.
const PSNMask PSN = 1<<24 - 1

// PSNWindow is the number of PSNs that may be outstanding at once: more would make
// a duplicate look like a new packet.
const PSNWindow = 1 << 23

// Add returns the PSN n packets after p; n may be negative.
func (p PSN) Add(n int) PSN { return PSN(uint32(p)+uint32(n)) & PSNMask }

// Sub returns the serial distance from q to p, in [-2^23, 2^23).
func (p PSN) Sub(q PSN) int { return int(int32((p-q)<<8) >> 8) }

// After reports whether p comes after q in serial order.
func (p PSN) After(q PSN) bool { return int32((p-q)<<8) > 0 }

// Before reports whether p comes before q in serial order.
func (p PSN) Before(q PSN) bool { return int32((q-p)<<8) > 0 }

// String prints the PSN in decimal, as Wireshark does.
func (p PSN) String() string { return fmt.Sprintf("%d", uint32(p)) }

// QPN is a 24-bit queue pair number.
type QPN uint32

// QPNMask holds the 24 bits of a QPN.
const QPNMask QPN = 1<<24 - 1

// Queue pair numbers with a meaning of their own.
const (
	QPNGSI       QPN = 1        // general services interface; never a data queue pair
	QPNMulticast QPN = 0xffffff // native UD multicast
)

func put24(b []byte, v uint32) {
	_ = b[2]
	b[0], b[1], b[2] = byte(v>>16), byte(v>>8), byte(v)
}

func get24(b []byte) uint32 {
	_ = b[2]
	return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2])
}
