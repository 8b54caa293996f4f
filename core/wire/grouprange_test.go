// SPDX-License-Identifier: Apache-2.0

package wire

import "testing"

// TestGroupRange: a range has the addresses of its /16 and no others; the zero value is the usual one (CEP-5).
func TestGroupRange(t *testing.T) {
	const other = 192<<24 | 168<<16
	for _, c := range []struct {
		r    GroupRange
		ip   uint32
		has  bool
		base uint32
	}{
		{GroupRange{}, GroupNet | 1, true, GroupNet},
		{GroupRange{}, GroupNet | 0xffff, true, GroupNet},
		{GroupRange{}, GroupNet - 1, false, GroupNet},
		{GroupRange{}, GroupNet + 1<<16, false, GroupNet},
		{GroupRange{}, other | 1, false, GroupNet},
		{NewGroupRange(GroupNet), GroupNet | 1, true, GroupNet},
		{NewGroupRange(other), other, true, other},
		{NewGroupRange(other | 7), other | 0xffff, true, other}, // its lower half does not count
		{NewGroupRange(other), other + 1<<16, false, other},
		{NewGroupRange(other), other - 1, false, other},
		{NewGroupRange(other), GroupNet | 1, false, other},
	} {
		if c.r.Has(c.ip) != c.has || c.r.Net() != c.base {
			t.Errorf("%v/16 has %v: %v, want %v in %v", AddrOf(c.r.Net()), AddrOf(c.ip), c.r.Has(c.ip), c.has, AddrOf(c.base))
		}
	}
}
