// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/netip"
	"testing"
)

// TestMulticastMAC maps groups as RFC 1112 §6.4 has it for IPv4, where the highest of the
// 24 low bits is lost, and RFC 2464 §7 for IPv6.
func TestMulticastMAC(t *testing.T) {
	for _, c := range []struct {
		ip           uint32
		addr, v4, v6 string
	}{
		{0xef010203, "ff15::ef01:203", "01:00:5e:01:02:03", "33:33:ef:01:02:03"},
		{0xefffffff, "ff15::efff:ffff", "01:00:5e:7f:ff:ff", "33:33:ef:ff:ff:ff"},
		{0xe0800001, "ff15::e080:1", "01:00:5e:00:00:01", "33:33:e0:80:00:01"},
	} {
		if got := MulticastMAC(false, c.ip).String(); got != c.v4 || !IsMulticast(c.ip) {
			t.Errorf("%v: %s, want %s", AddrOf(c.ip), got, c.v4)
		}
		a := AddrIn(true, c.ip)
		if got := MulticastMAC(true, c.ip).String(); got != c.v6 || a.String() != c.addr || !a.IsMulticast() {
			t.Errorf("%v: %s, want %s %s", a, got, c.addr, c.v6)
		}
		if ip, ok := IPOf(a); !ok || ip != c.ip {
			t.Errorf("%v names %v, %v", a, AddrOf(ip), ok)
		}
	}
	for _, ip := range []uint32{0xdfffffff, 0xf0000000, GroupNet | 1} {
		if IsMulticast(ip) {
			t.Errorf("%v is taken for a multicast group", AddrOf(ip))
		}
	}
}

// TestAddresses: the IPv6 addresses of a fabric, and their text.
func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		addr string
		ip   uint32
	}{
		{"fd6d:6361:7374::a00:1", 0x0a000001},
		{"fd6d:6361:7374::afe:1", GroupNet | 1},
		{"ff15::e000:1", 0xe0000001},
		{"::ffff:10.0.0.1", 0x0a000001},
	} {
		a := netip.MustParseAddr(c.addr)
		if ip, ok := IPOf(a); !ok || ip != c.ip {
			t.Errorf("%v names %v, %v; want %v", a, AddrOf(ip), ok, AddrOf(c.ip))
		}
		if !a.Is4In6() && AddrIn(true, c.ip) != a {
			t.Errorf("%v is %v, want %v", AddrOf(c.ip), AddrIn(true, c.ip), a)
		}
	}
	for _, s := range []string{"fd6d:6361:7374:1::a00:1", "fe80::1", "ff15::a00:1", "ff05::e000:1", "fd6d:6361:7374::e000:1"} {
		if ip, ok := IPOf(netip.MustParseAddr(s)); ok {
			t.Errorf("%s names %v", s, AddrOf(ip))
		}
	}
}
