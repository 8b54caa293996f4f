// SPDX-License-Identifier: Apache-2.0

package labspec

import "net/netip"

// managementNet begins with the two bytes of every address on a lab's management network; 16 bits follow.
var managementNet = [2]byte{172, 31}

// ManagementAddress returns the address of host number i on the management network: number i+1 there.
func ManagementAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{managementNet[0], managementNet[1], byte((i + 1) >> 8), byte(i + 1)})
}

// ManagementHost returns the number of the host whose address on the management network a is, and whether it is one of
// that network at all.
func ManagementHost(a netip.Addr) (i int, ok bool) {
	if a = a.Unmap(); !a.Is4() {
		return 0, false
	}
	b := a.As4()
	i = int(b[2])<<8 | int(b[3]) - 1
	return i, [2]byte(b[:2]) == managementNet && i >= 0
}
