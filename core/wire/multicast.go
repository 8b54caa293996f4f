// SPDX-License-Identifier: Apache-2.0

package wire

import "hash/crc32"

// IsMulticast reports whether the address is a multicast group (224/4), as native UD
// multicast uses it. A McstID is not one (see GroupRange).
func IsMulticast(ip uint32) bool { return ip>>28 == 0xe }

// MulticastMAC returns the MAC address of a multicast group: 01:00:5e and the low 23 bits
// of an IPv4 address (RFC 1112 §6.4), 33:33 and the low 32 bits of an IPv6 one (RFC 2464 §7).
func MulticastMAC(ipv6 bool, ip uint32) MAC {
	if ipv6 {
		return MAC{0x33, 0x33, byte(ip >> 24), byte(ip >> 16), byte(ip >> 8), byte(ip)}
	}
	return MAC{0x01, 0x00, 0x5e, byte(ip >> 16 & 0x7f), byte(ip >> 8), byte(ip)}
}

// IsLabGroup reports whether a multicast group is one of a lab itself, whose tables its driver installs: in MulticastNet, or of
// a multicast LID (239.255.0.0/16). Programs do not get these.
func IsLabGroup(ip uint32) bool { return (ip^MulticastNet)&0xfffe0000 == 0 }

// programNet is the /6 that GroupOf maps MGIDs to which name no IPv4 group: 228.0.0.0 to
// 231.255.255.255, which IANA has reserved and assigned to nobody.
const programNet uint32 = 228 << 24

// GroupOf returns the group that a program's MGID stands for, in either family of fabric:
//
//   - 224/4 as ::ffff:a.b.c.d (RoCEv2, which rdma_join_multicast uses), ffxx::ffff:a.b.c.d (the same
//     in RoCEv1) or ff15::a.b.c.d (an IPv6 fabric's own): a.b.c.d, unless the lab itself uses that
//     (239.254.0.0/15, IsLabGroup);
//   - any other MGID of ff00::/8: 228.0.0.0/6 with the low 26 bits of the CRC-32 (IEEE 802.3) of its
//     16 bytes.
//
// Two MGIDs of the second kind may share a group, of 2^26. Other GIDs are no MGIDs.
func GroupOf(mgid [16]byte) (group uint32, ok bool) {
	low := uint32(mgid[12])<<24 | uint32(mgid[13])<<16 | uint32(mgid[14])<<8 | uint32(mgid[15])
	middle := [10]byte(mgid[2:12])
	mapped := middle == [10]byte{8: 0xff, 9: 0xff}
	named := mgid[0] == 0 && mgid[1] == 0 && mapped || mgid[0] == 0xff && mapped || mgid == IPv6Of(low)
	named = named && IsMulticast(low)
	switch {
	case named && !IsLabGroup(low):
		return low, true
	case named || mgid[0] == 0xff:
		s := ^uint32(0) // as crc32.ChecksumIEEE, which would send the address to the heap
		for _, x := range mgid {
			s = s>>8 ^ crc32.IEEETable[byte(s)^x]
		}
		return programNet | ^s&0x03ffffff, true
	}
	return 0, false
}
