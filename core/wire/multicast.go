package wire

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
