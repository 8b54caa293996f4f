// SPDX-License-Identifier: Apache-2.0

package cm

import (
	"encoding/binary"
	"net/netip"
)

// The RDMA IP CM Service: connections are named by addresses and ports of the Internet protocol, which a REQ and a
// SIDR_REQ carry at the beginning of their private data.

// Space is a port space of rdma_cm.
type Space uint16

// Port spaces: of connections, of datagrams.
const (
	SpaceTCP Space = 0x0106
	SpaceUDP Space = 0x0111
)

// ServiceID returns the service ID of a port.
func (s Space) ServiceID(port uint16) uint64 { return uint64(s)<<16 | uint64(port) }

// ServiceOf returns the port that a service ID stands for, if it is one of the two spaces.
func ServiceOf(id uint64) (s Space, port uint16, ok bool) {
	s = Space(id >> 16)
	return s, uint16(id), id>>32 == 0 && (s == SpaceTCP || s == SpaceUDP)
}

// IPHeader is the header of rdma_cm in front of the user's private data.
type IPHeader struct {
	Version  uint8 // of the Internet protocol: 4 or 6
	Port     uint16
	Src, Dst netip.Addr
}

// IPHeaderLen is its length.
const IPHeaderLen = 36

// AppendTo appends the header.
func (h IPHeader) AppendTo(b []byte) []byte {
	b = append(b, 0, h.Version<<4)
	b = binary.BigEndian.AppendUint16(b, h.Port)
	for _, a := range [...]netip.Addr{h.Src, h.Dst} {
		if h.Version == 4 {
			four := a.As4()
			b = append(append(b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), four[:]...)
		} else {
			six := a.As16()
			b = append(b, six[:]...)
		}
	}
	return b
}

// ParseIPHeader reads the header and reports whether it is one of version 0.
func ParseIPHeader(b []byte) (h IPHeader, rest []byte, ok bool) {
	if len(b) < IPHeaderLen || b[0] != 0 {
		return h, nil, false
	}
	h.Version, h.Port = b[1]>>4, binary.BigEndian.Uint16(b[2:])
	switch h.Version {
	case 4:
		h.Src, h.Dst = netip.AddrFrom4([4]byte(b[16:])), netip.AddrFrom4([4]byte(b[32:]))
	case 6:
		h.Src, h.Dst = netip.AddrFrom16([16]byte(b[4:])), netip.AddrFrom16([16]byte(b[20:]))
	default:
		return h, nil, false
	}
	return h, b[IPHeaderLen:], true
}
