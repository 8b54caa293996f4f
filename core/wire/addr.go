// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"net/netip"
)

// The two /96 of an IPv6 fabric. The last four bytes of an address are the IPv4 address
// that the node or group would have, so that one 32-bit number names it in switches and in
// MRP records whatever the fabric's family.
var (
	// ipv6Prefix is a unique local one (RFC 4193, global id "mcast"): of hosts, switches and
	// McstIDs, which are unicast so that RC address checks accept them.
	ipv6Prefix = [12]byte{0xfd, 0x6d, 0x63, 0x61, 0x73, 0x74}
	// ipv6Multicast is transient and of site scope (RFC 4291 §2.7): of 224/4.
	ipv6Multicast = [12]byte{0xff, 0x15}
)

// IPv6Of returns the IPv6 address of ip.
func IPv6Of(ip uint32) (a [16]byte) {
	if IsMulticast(ip) {
		copy(a[:], ipv6Multicast[:])
	} else {
		copy(a[:], ipv6Prefix[:])
	}
	binary.BigEndian.PutUint32(a[12:], ip)
	return a
}

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

// GroupNet is the /16 that McstIDs come from unless a lab has another (CEP-5), a unicast range so
// that RC address checks accept it. It is part of the hosts' 10/8: on-link for any peer.
const GroupNet uint32 = 10<<24 | 254<<16

// GroupRange is the /16 that the McstIDs of a fabric come from (CEP-5). The zero value is GroupNet.
type GroupRange struct {
	differs uint32 // the bits in which the network differs from GroupNet
}

// NewGroupRange returns the range with the upper half of net.
func NewGroupRange(net uint32) GroupRange { return GroupRange{(net ^ GroupNet) & 0xffff0000} }

// Has reports whether the address is a McstID (CEP-4).
func (r GroupRange) Has(ip uint32) bool { return (ip^r.differs)&0xffff0000 == GroupNet }

// Net returns the address of the network. A McstID is its union with a number below 1<<16.
func (r GroupRange) Net() uint32 { return r.differs ^ GroupNet }

// MulticastNet is the /16 that the addresses of plain IP multicast groups come from: of
// the block for use within an administration (RFC 2365).
const MulticastNet uint32 = 239<<24 | 254<<16

// AddrIn returns the address that ip has in a fabric of the given family.
func AddrIn(ipv6 bool, ip uint32) netip.Addr {
	if ipv6 {
		return netip.AddrFrom16(IPv6Of(ip))
	}
	return AddrOf(ip)
}

// AddrOf returns the IPv4 address as a netip.Addr.
func AddrOf(ip uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], ip)
	return netip.AddrFrom4(b)
}

// IPOf returns the 32-bit number that names the address in a fabric: an IPv4
// address, or the last four bytes of an address that IPv6Of returns.
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
	ip = binary.BigEndian.Uint32(b[12:])
	return ip, b == IPv6Of(ip)
}
