package wire

import "testing"

// TestMulticastMAC maps groups as RFC 1112 §6.4 has it: the highest of the 24 low bits
// is lost.
func TestMulticastMAC(t *testing.T) {
	for _, c := range []struct {
		ip   uint32
		want string
	}{
		{0xef010203, "01:00:5e:01:02:03"},
		{0xefffffff, "01:00:5e:7f:ff:ff"},
		{0xe0800001, "01:00:5e:00:00:01"},
	} {
		if got := MulticastMAC(c.ip).String(); got != c.want || !IsMulticast(c.ip) {
			t.Errorf("%v: %s, want %s", AddrOf(c.ip), got, c.want)
		}
	}
	for _, ip := range []uint32{0xdfffffff, 0xf0000000, GroupNet | 1} {
		if IsMulticast(ip) {
			t.Errorf("%v is taken for a multicast group", AddrOf(ip))
		}
	}
}
