// SPDX-License-Identifier: Apache-2.0

package labspec

import (
	"net/netip"
	"testing"
)

// TestManagementAddress: a host and its address on the management network name each other, and no other address does.
func TestManagementAddress(t *testing.T) {
	for _, c := range []struct {
		host int
		want string
	}{{0, "172.31.0.1"}, {254, "172.31.0.255"}, {255, "172.31.1.0"}, {1023, "172.31.4.0"}} {
		a := ManagementAddress(c.host)
		if i, ok := ManagementHost(a); a.String() != c.want || i != c.host || !ok {
			t.Errorf("host %d has %v, which is that of %d, %v", c.host, a, i, ok)
		}
		if i, ok := ManagementHost(netip.AddrFrom16(a.As16())); i != c.host || !ok {
			t.Errorf("mapped, it is that of %d, %v", i, ok)
		}
	}
	for _, s := range []string{"172.31.0.0", "172.30.0.1", "10.0.0.1", "fd00::1"} {
		if i, ok := ManagementHost(netip.MustParseAddr(s)); ok {
			t.Errorf("%s is that of host %d", s, i)
		}
	}
}
