// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// SACKLen is the size of the selective acknowledgement in bytes.
const SACKLen = 20

// SACKBits is the number of packets after the expected one that a SACK describes.
const SACKBits = 128

const sackVersion = 1

// SACK follows the AETH of a sequence NAK between two NICs of this project that repeat
// selectively (after IRN: Mittal et al., "Revisiting Network Support for RDMA", SIGCOMM 2018).
// The BTH's PSN is, as in every NAK, the expected one, and acknowledges everything before; the
// bitmap says which packets beyond it have arrived. A NIC that does not know SACK reads a plain
// NAK. It is sent only to a NIC that has set the BTH's selective bit.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+-----------------------------------------------+
//	|  version (1)  |      PSN of the packet that caused it         |
//	+---------------+-----------------------------------------------+
//	|                                                               |
//	+   bitmap (16): a number, whose lowest bit i=0 says that the   +
//	|   packet after the expected one has come, bit i that the      |
//	+   i-th after that has                                         +
//	|                                                               |
//	+---------------------------------------------------------------+
type SACK struct {
	PSN    PSN
	Lo, Hi uint64 // bitmap: packets 1..64 after the expected one, and 65..128
}

// AppendTo appends the 20 bytes.
func (h SACK) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, sackVersion<<24|uint32(h.PSN&PSNMask))
	b = binary.BigEndian.AppendUint64(b, h.Hi)
	return binary.BigEndian.AppendUint64(b, h.Lo)
}

// ParseSACK reads the header and returns the bytes after it: ErrShort, or ErrFormat for another
// version.
func ParseSACK(b []byte) (h SACK, rest []byte, err error) {
	if len(b) < SACKLen {
		return SACK{}, nil, ErrShort
	}
	if b[0] != sackVersion {
		return SACK{}, nil, ErrFormat
	}
	h = SACK{PSN: PSN(get24(b[1:4])), Hi: binary.BigEndian.Uint64(b[4:]), Lo: binary.BigEndian.Uint64(b[12:])}
	return h, b[SACKLen:], nil
}

// AddSACK appends the header to an acknowledgement that has its AETH.
func (f *Frame) AddSACK(h SACK) {
	h.AppendTo(f.h[:f.n])
	f.n += SACKLen
}

// SACK returns the selective acknowledgement that ends an acknowledgement's headers;
// ok is false if there is none.
func (f *Frame) SACK() (h SACK, ok bool) {
	at := f.bthOff() + BTHLen + AETHLen
	if f.OpCode() != OpAcknowledge || int(f.n) != at+SACKLen {
		return SACK{}, false
	}
	h, _, err := ParseSACK(f.h[at:f.n])
	return h, err == nil
}

// sackOf returns the length of the SACK after an acknowledgement's AETH, given all bytes after the AETH
// except the ICRC.
func sackOf(op OpCode, b []byte) int {
	if op != OpAcknowledge || len(b) != SACKLen || b[0] != sackVersion {
		return 0
	}
	return SACKLen
}

// Selective reports whether the BTH's selective bit is set: the packet's sender takes SACKs.
func (f *Frame) Selective() bool { return f.h[f.bthOff()+8]&1 != 0 }
