package wire

// IsMulticast says whether the address is an IPv4 multicast group (224/4), as native UD
// multicast uses it. A McstID is not one (see IsGroup).
func IsMulticast(ip uint32) bool { return ip>>28 == 0xe }

// MulticastMAC returns the MAC address of an IPv4 multicast group: 01:00:5e and the
// low 23 bits of the address (RFC 1112 §6.4).
func MulticastMAC(ip uint32) MAC {
	return MAC{0x01, 0x00, 0x5e, byte(ip >> 16 & 0x7f), byte(ip >> 8), byte(ip)}
}
