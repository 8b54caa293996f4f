// SPDX-License-Identifier: Apache-2.0

package rcpeer

import (
	"encoding/binary"
	"net/netip"
)

const (
	ipv6Len    = 40 // extension headers are never used
	etherIPv6  = 0x86dd
	icmpv6     = 58
	ndLen      = 32 // ICMPv6 header, target, one link-layer address option
	ndAsk      = 135
	ndAnswer   = 136
	ndSource   = 1 // option of a solicitation: the sender's link-layer address
	ndTarget   = 2 // option of an advertisement: the target's
	ndSolicits = 0x60000000
)

// ipLenOf returns the length of the IP header of an address's family.
func ipLenOf(a netip.Addr) int {
	if a.Is6() {
		return ipv6Len
	}
	return ipLen
}

// appendIPv6 appends the header in front of n bytes.
func appendIPv6(b []byte, traffic, next, hops byte, src, dst netip.Addr, n int) []byte {
	b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(traffic)<<20)
	b = binary.BigEndian.AppendUint16(b, uint16(n))
	b = append(b, next, hops)
	return append(append(b, src.AsSlice()...), dst.AsSlice()...)
}

// nd returns a neighbor solicitation, or an advertisement in reply to one (RFC 4861).
func nd(kind byte, mac [6]byte, ip netip.Addr, toMAC [6]byte, toIP, target netip.Addr) []byte {
	option, flags := byte(ndSource), uint32(0)
	if kind == ndAnswer {
		option, flags = ndTarget, ndSolicits
	}
	b := append(append(make([]byte, 0, ethernetLen+ipv6Len+ndLen), toMAC[:]...), mac[:]...)
	b = binary.BigEndian.AppendUint16(b, etherIPv6)
	b = appendIPv6(b, 0, icmpv6, 255, ip, toIP, ndLen)
	b = append(b, kind, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, flags)
	b = append(append(b, target.AsSlice()...), option, 1)
	b = append(b, mac[:]...)
	m := b[ethernetLen+ipv6Len:]
	binary.BigEndian.PutUint16(m[2:], ^sum(m, uint32(sum(b[ethernetLen+8:ethernetLen+ipv6Len], icmpv6+ndLen))))
	return b
}

// solicit returns the neighbor solicitation for target, sent to its solicited-node group.
func solicit(mac [6]byte, ip, target netip.Addr) []byte {
	t := target.As16()
	group := [16]byte{0xff, 0x02, 11: 1, 12: 0xff, 13: t[13], 14: t[14], 15: t[15]}
	return nd(ndAsk, mac, ip, [6]byte{0x33, 0x33, 0xff, t[13], t[14], t[15]}, netip.AddrFrom16(group), target)
}

// isND reports whether a frame is a neighbor solicitation or advertisement whose length is that
// of a message with one link-layer address option.
func isND(f []byte) bool {
	const at = ethernetLen + ipv6Len
	return len(f) >= at+ndLen && binary.BigEndian.Uint16(f[12:]) == etherIPv6 && f[ethernetLen+6] == icmpv6 && (f[at] == ndAsk || f[at] == ndAnswer)
}

// handleND is handleARP over IPv6.
func (p *Peer) handleND(f []byte) {
	ip := f[ethernetLen:]
	m := ip[ipv6Len:][:ndLen]
	ask := m[0] == ndAsk
	option := byte(ndTarget)
	if ask {
		option = ndSource
	}
	if ip[7] != 255 || binary.BigEndian.Uint16(ip[4:]) != ndLen || m[1] != 0 || m[24] != option || m[25] != 1 ||
		sum(m, uint32(sum(ip[8:ipv6Len], icmpv6+ndLen))) != 0xffff {
		p.stats.Ignored++
		return
	}
	mac, from, target := [6]byte(m[26:]), netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(m[8:]))
	if (ask && from == p.cfg.PeerIP || !ask && target == p.cfg.PeerIP) && mac[0]&1 == 0 {
		p.arp.mac, p.arp.known = mac, true
	}
	if ask && target == p.cfg.IP {
		p.control = append(p.control, nd(ndAnswer, p.mac, p.cfg.IP, mac, from, p.cfg.IP))
	}
}
