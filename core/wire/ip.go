// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// Network-layer sizes in bytes.
const (
	IPv4Len = 20 // options are never used by RoCE and refused here
	IPv6Len = 40
)

// RoCEHeadersMax is the most bytes that a RoCE packet has beside its payload, counted from the
// IP header on: IPv6, UDP, BTH, RETH, immediate data and ICRC. An interface's MTU must hold
// both.
const RoCEHeadersMax = IPv6Len + UDPLen + BTHLen + RETHLen + ImmDtLen + ICRCLen

// ProtocolUDP is the IPv4 protocol and IPv6 next-header number of UDP.
const ProtocolUDP = 17

// Explicit congestion notification code points (RFC 3168 §5).
const (
	ECNNotECT uint8 = 0
	ECNECT1   uint8 = 1
	ECNECT0   uint8 = 2
	ECNCE     uint8 = 3
)

// IPv4 is the header without options (RFC 791 §3.1). RoCEv2 sets DF and is never
// fragmented; the identification is covered by the ICRC and therefore never
// changed on the way.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-------+-------+-----------+---+-------------------------------+
//	|   4   |   5   |   DSCP    |ECN|         total length          |
//	+-------+-------+-----------+---+-----+-------------------------+
//	|        identification         |0|D|0|     fragment offset     |
//	+---------------+---------------+-----+-------------------------+
//	| time to live  |   protocol    |        header checksum        |
//	+---------------+---------------+-------------------------------+
//	|                        source address                         |
//	+---------------------------------------------------------------+
//	|                      destination address                      |
//	+---------------------------------------------------------------+
type IPv4 struct {
	TOS          uint8 // DSCP in the upper 6 bits, ECN in the lower 2
	TotalLen     uint16
	ID           uint16
	DontFragment bool
	TTL          uint8
	Protocol     uint8
	Src, Dst     netip.Addr
}

// AppendTo appends the 20 header bytes with a correct checksum.
func (h IPv4) AppendTo(b []byte) []byte {
	at := len(b)
	b = append(b, 0x45, h.TOS)
	b = binary.BigEndian.AppendUint16(b, h.TotalLen)
	b = binary.BigEndian.AppendUint16(b, h.ID)
	var frag uint16
	if h.DontFragment {
		frag = 0x4000
	}
	b = binary.BigEndian.AppendUint16(b, frag)
	b = append(b, h.TTL, h.Protocol, 0, 0)
	src, dst := h.Src.As4(), h.Dst.As4()
	b = append(b, src[:]...)
	b = append(b, dst[:]...)
	binary.BigEndian.PutUint16(b[at+10:], ^sumIPv4(b[at:]))
	return b
}

// ParseIPv4 reads the header and returns the bytes of the datagram that follow it,
// cut at the total length (an Ethernet trailer is not part of it). It refuses
// options, fragments, wrong checksums and lengths the buffer cannot hold.
func ParseIPv4(b []byte) (h IPv4, rest []byte, err error) {
	if len(b) < IPv4Len {
		return IPv4{}, nil, ErrShort
	}
	if b[0]>>4 != 4 {
		return IPv4{}, nil, ErrVersion
	}
	if b[0] != 0x45 {
		return IPv4{}, nil, ErrOptions
	}
	if sumIPv4(b) != 0xffff {
		return IPv4{}, nil, ErrChecksum
	}
	frag := binary.BigEndian.Uint16(b[6:8])
	if frag&^0x4000 != 0 {
		return IPv4{}, nil, ErrFormat
	}
	n := int(binary.BigEndian.Uint16(b[2:4]))
	if n < IPv4Len {
		return IPv4{}, nil, ErrLength
	}
	if n > len(b) {
		return IPv4{}, nil, ErrShort
	}
	h = IPv4{
		TOS: b[1], TotalLen: uint16(n), ID: binary.BigEndian.Uint16(b[4:6]), DontFragment: frag != 0,
		TTL: b[8], Protocol: b[9],
		Src: netip.AddrFrom4([4]byte(b[12:16])), Dst: netip.AddrFrom4([4]byte(b[16:20])),
	}
	return h, b[IPv4Len:n], nil
}

// IPv6 is the fixed header (RFC 8200 §3); extension headers are refused.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-------+---------------+---------------------------------------+
//	|   6   | traffic class |              flow label               |
//	+-------+---------------+-------+---------------+---------------+
//	|        payload length         |  next header  |   hop limit   |
//	+-------------------------------+---------------+---------------+
//	|                     source address (16)                       |
//	+---------------------------------------------------------------+
//	|                  destination address (16)                     |
//	+---------------------------------------------------------------+
type IPv6 struct {
	TrafficClass uint8
	FlowLabel    uint32 // 20 bits
	PayloadLen   uint16
	NextHeader   uint8
	HopLimit     uint8
	Src, Dst     netip.Addr
}

// AppendTo appends the 40 header bytes.
func (h IPv6) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(h.TrafficClass)<<20|h.FlowLabel&0xfffff)
	b = binary.BigEndian.AppendUint16(b, h.PayloadLen)
	b = append(b, h.NextHeader, h.HopLimit)
	src, dst := h.Src.As16(), h.Dst.As16()
	b = append(b, src[:]...)
	return append(b, dst[:]...)
}

// ParseIPv6 reads the header and returns the payload, cut at the payload length.
func ParseIPv6(b []byte) (h IPv6, rest []byte, err error) {
	if len(b) < IPv6Len {
		return IPv6{}, nil, ErrShort
	}
	if b[0]>>4 != 6 {
		return IPv6{}, nil, ErrVersion
	}
	n := int(binary.BigEndian.Uint16(b[4:6]))
	if IPv6Len+n > len(b) {
		return IPv6{}, nil, ErrShort
	}
	w := binary.BigEndian.Uint32(b[0:4])
	h = IPv6{
		TrafficClass: uint8(w >> 20), FlowLabel: w & 0xfffff, PayloadLen: uint16(n),
		NextHeader: b[6], HopLimit: b[7],
		Src: netip.AddrFrom16([16]byte(b[8:24])), Dst: netip.AddrFrom16([16]byte(b[24:40])),
	}
	return h, b[IPv6Len : IPv6Len+n], nil
}

// sum16 adds b as 16-bit big-endian words without folding, an odd last byte as the upper
// half of one. b has at most 64 KiB.
func sum16(b []byte) (s uint32) {
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return s
}

// sumIPv4 returns the ones' complement sum of an IPv4 header without options. It adds words
// of 64 bits, which folds to the same (RFC 1071 §2, B and C): 0 only if all bytes are.
func sumIPv4(h []byte) uint16 {
	_ = h[IPv4Len-1]
	s, carry := bits.Add64(binary.BigEndian.Uint64(h[0:8]), binary.BigEndian.Uint64(h[8:16]), 0)
	s, carry = bits.Add64(s, uint64(binary.BigEndian.Uint32(h[16:20])), carry)
	s = s>>32 + s&0xffffffff + carry
	s = s>>32 + s&0xffffffff
	return fold(uint32(s))
}

// fold brings a sum of 16-bit words down to 16 bits, carries added back (RFC 1071 §1).
func fold(s uint32) uint16 {
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint16(s)
}
