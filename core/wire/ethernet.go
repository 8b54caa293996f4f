// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"
)

// Link-layer sizes in bytes.
const (
	EthernetLen = 14 // destination, source, EtherType
	VLANLen     = 4  // 802.1Q tag
	FCSLen      = 4  // frame check sequence, added by the port
	MinFrameLen = 60 // shortest frame without FCS; shorter ones are padded

	// LinkOverhead is the number of bytes that a frame takes on a link besides its counted bytes:
	// FCS 4, preamble and start delimiter 8, inter-frame gap 12.
	LinkOverhead = FCSLen + 8 + 12
)

// EtherTypes in use.
const (
	EtherTypeIPv4       uint16 = 0x0800
	EtherTypeARP        uint16 = 0x0806
	EtherTypeVLAN       uint16 = 0x8100
	EtherTypeIPv6       uint16 = 0x86dd
	EtherTypeMACControl uint16 = 0x8808
)

// MAC is an Ethernet address.
type MAC [6]byte

// String prints the address as 02:00:0a:00:00:01.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// Ethernet is the Ethernet II header (IEEE 802.3 clause 3).
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-------------------------------+-------------------------------+
//	|                      destination address                      |
//	+                               +-------------------------------+
//	|                               |                               |
//	+-------------------------------+         source address        +
//	|                                                               |
//	+-------------------------------+-------------------------------+
//	|           EtherType           |
//	+-------------------------------+
type Ethernet struct {
	Dst, Src  MAC
	EtherType uint16
}

// AppendTo appends the 14 header bytes.
func (h Ethernet) AppendTo(b []byte) []byte {
	b = append(b, h.Dst[:]...)
	b = append(b, h.Src[:]...)
	return binary.BigEndian.AppendUint16(b, h.EtherType)
}

// ParseEthernet reads the header and returns the bytes after it, or ErrShort.
func ParseEthernet(b []byte) (h Ethernet, rest []byte, err error) {
	if len(b) < EthernetLen {
		return Ethernet{}, nil, ErrShort
	}
	copy(h.Dst[:], b[0:6])
	copy(h.Src[:], b[6:12])
	h.EtherType = binary.BigEndian.Uint16(b[12:14])
	return h, b[EthernetLen:], nil
}

// VLAN is the 802.1Q tag that follows the source address when the EtherType there
// is 0x8100 (IEEE 802.1Q clause 9.6). The priority code point picks the PFC class.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-----+-+-----------------------+-------------------------------+
//	| PCP |D|        VLAN id        |      encapsulated EtherType   |
//	+-----+-+-----------------------+-------------------------------+
type VLAN struct {
	PCP       uint8 // priority code point, 0..7
	DEI       bool  // drop eligible
	ID        uint16
	EtherType uint16
}

// AppendTo appends the 4 tag bytes that follow the 0x8100.
func (h VLAN) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, h.tci())
	return binary.BigEndian.AppendUint16(b, h.EtherType)
}

func (h VLAN) tci() uint16 {
	t := uint16(h.PCP&7)<<13 | h.ID&0xfff
	if h.DEI {
		t |= 1 << 12
	}
	return t
}

// ParseVLAN reads the 4 bytes after the 0x8100 and returns the bytes after them, or ErrShort.
func ParseVLAN(b []byte) (h VLAN, rest []byte, err error) {
	if len(b) < VLANLen {
		return VLAN{}, nil, ErrShort
	}
	t := binary.BigEndian.Uint16(b[0:2])
	h = VLAN{PCP: uint8(t >> 13), DEI: t>>12&1 == 1, ID: t & 0xfff, EtherType: binary.BigEndian.Uint16(b[2:4])}
	return h, b[VLANLen:], nil
}
