package wire

import (
	"encoding/binary"
	"net/netip"
)

// HostMAC returns the MAC address of the host with the given IPv4 address: 02:00
// and the address, so that a capture can be read without a table.
func HostMAC(ip uint32) (m MAC) {
	m[0] = 0x02
	binary.BigEndian.PutUint32(m[2:], ip)
	return m
}

// GroupMAC returns the virtual MAC address of a group: 02:4d:43 and the low three
// bytes of the McstID (CEP-5).
func GroupMAC(mcstID uint32) MAC {
	return MAC{0x02, 0x4d, 0x43, byte(mcstID >> 16), byte(mcstID >> 8), byte(mcstID)}
}

// GroupNet is the /16 that McstIDs come from (CEP-5), a unicast range so that RC
// address checks accept it. It is part of the hosts' 10/8: on-link for any peer.
const GroupNet uint32 = 10<<24 | 254<<16

// IsGroup says whether the address is a McstID.
func IsGroup(ip uint32) bool { return ip&0xffff0000 == GroupNet }

// AddrOf returns the IPv4 address as a netip.Addr.
func AddrOf(ip uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], ip)
	return netip.AddrFrom4(b)
}

// IPOf returns the 32-bit number that names the address in a fabric: an IPv4
// address, or the last four bytes of an IPv6 address of the fabric's prefix.
func IPOf(a netip.Addr) (ip uint32, ok bool) {
	a = a.Unmap()
	if a.Is4() {
		b := a.As4()
		return binary.BigEndian.Uint32(b[:]), true
	}
	if !a.Is6() {
		return 0, false
	}
	b := a.As16()
	return binary.BigEndian.Uint32(b[12:]), [12]byte(b[:12]) == ipv6Prefix
}
