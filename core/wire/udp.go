// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// UDPLen is the size of the UDP header in bytes.
const UDPLen = 8

// PortRoCEv2 is the UDP destination port of RoCEv2 (InfiniBand annex A17).
const PortRoCEv2 uint16 = 4791

// UDP is the header of RFC 768. RoCEv2 sends a zero checksum over IPv4 and IPv6
// alike; the length field, not the end of the frame, says where the ICRC is. MRP has none
// over IPv4 and a checksum over IPv6.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-------------------------------+-------------------------------+
//	|          source port          |       destination port        |
//	+-------------------------------+-------------------------------+
//	|            length             |           checksum            |
//	+-------------------------------+-------------------------------+
type UDP struct {
	SrcPort, DstPort uint16
	Length           uint16 // header and payload
	Checksum         uint16
}

// AppendTo appends the 8 header bytes.
func (h UDP) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, h.SrcPort)
	b = binary.BigEndian.AppendUint16(b, h.DstPort)
	b = binary.BigEndian.AppendUint16(b, h.Length)
	return binary.BigEndian.AppendUint16(b, h.Checksum)
}

// udpSum6 returns the ones' complement sum of the frame's datagram over IPv6 and its pseudo
// header: 0xffff if the checksum in it is right.
func (f *Frame) udpSum6() uint16 {
	o, u := f.ipOff(), f.udpOff()
	n := int(f.n) - u + int(f.pay)
	s := uint32(ProtocolUDP) + uint32(n) + sum16(f.h[o+8:f.n])
	if f.flags&flagBlock != 0 {
		s += sum16(f.block.Bytes())
	}
	return fold(s)
}

// ParseUDP reads the header and returns the payload, cut at the length field.
func ParseUDP(b []byte) (h UDP, rest []byte, err error) {
	if len(b) < UDPLen {
		return UDP{}, nil, ErrShort
	}
	h = UDP{
		SrcPort: binary.BigEndian.Uint16(b[0:2]), DstPort: binary.BigEndian.Uint16(b[2:4]),
		Length: binary.BigEndian.Uint16(b[4:6]), Checksum: binary.BigEndian.Uint16(b[6:8]),
	}
	if h.Length < UDPLen {
		return UDP{}, nil, ErrLength
	}
	if int(h.Length) > len(b) {
		return UDP{}, nil, ErrShort
	}
	return h, b[UDPLen:h.Length], nil
}
