// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"net/netip"
	"testing"
)

// Frames of a Linux 6.1 host with rdma_rxe that joins and leaves 239.7.7.8, and scapy's frames of MLDv2: a report of two groups,
// and a general query; and a general query of IGMPv3 as RFC 3376 has it.
const (
	linuxJoin  = "01005e000016525400aa0001080046c00028000040000102f9f60a000003e00000169404000022 00e3ee0000000104000000ef070708"
	linuxLeave = "01005e000016525400aa0001080046c00028000040000102f9f60a000003e00000169404000022 00e4ee0000000103000000ef070708"
	mldJoins   = "33330000001602000a00000386dd6c00000000380001 fe8000000000000000000afffe000003 ff020000000000000000000000000016" +
		"3a00050200000100 8f00 8fc3 0000 0002 04000000 ff1500000000000000000000ef010203 03000000 ff1500000000000000000000e4000001"
	mldAsks = "33330000000102000a01000186dd6c00000000240001 fe8000000000000000000afffe010001 ff020000000000000000000000000001" +
		"3a00050200000100 8200 4d95 2710 0000 00000000000000000000000000000000 027d0000"
	igmpAsks = "01005e00000102000a010001080046c0002400004000 0102fa10 0a010001 e0000001 94040000 1164ec1e 00000000 027d0000"
)

func membership(t testing.TB, b []byte) (Membership, []GroupRecord, error) {
	t.Helper()
	var p Pool
	f, err := p.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if !f.IsMembership() {
		return Membership{}, nil, ErrFormat
	}
	m, _, err := f.Membership(nil)
	var all []GroupRecord
	for r, ok := m.Next(); ok; r, ok = m.Next() {
		all = append(all, r)
	}
	return m, all, err
}

// TestMembershipGolden: frames of Linux and scapy are parsed, and this package's frames are the same except for
// the MAC addresses of hosts.
func TestMembershipGolden(t *testing.T) {
	join, leave := GroupRecord{Type: ChangeToExclude, Group: 0xef070708}, GroupRecord{Type: ChangeToInclude, Group: 0xef070708}
	both := []GroupRecord{{Type: ChangeToExclude, Group: 0xef010203}, {Type: ChangeToInclude, Group: 0xe4000001}}
	var p Pool
	v4, v6 := Reporter{IP: 0x0a000003}, Reporter{IP: 0x0a000003, IPv6: true}
	for _, c := range []struct {
		name, hex string
		query     bool
		records   []GroupRecord
		mine      *Frame
	}{
		{"join of Linux", linuxJoin, false, []GroupRecord{join}, v4.Report(&p, []GroupRecord{join})},
		{"leave of Linux", linuxLeave, false, []GroupRecord{leave}, v4.Report(&p, []GroupRecord{leave})},
		{"MLDv2 report", mldJoins, false, both, v6.Report(&p, both)},
		{"IGMPv3 query", igmpAsks, true, nil, (&Reporter{IP: 0x0a010001}).Query(&p)},
		{"MLDv2 query", mldAsks, true, nil, (&Reporter{IP: 0x0a010001, IPv6: true}).Query(&p)},
	} {
		b := unhex(t, c.hex)
		m, records, err := membership(t, b)
		if err != nil || m.Query != c.query || len(records) != len(c.records) {
			t.Errorf("%s: %+v, %v, %v", c.name, m, records, err)
			continue
		}
		for i, r := range records {
			if r != c.records[i] {
				t.Errorf("%s: record %d is %+v, want %+v", c.name, i, r, c.records[i])
			}
		}
		copy(b[6:12], c.mine.Header()[6:12])
		if got := c.mine.AppendTo(nil); !bytes.Equal(got, append(b, make([]byte, max(0, MinFrameLen-len(b)))...)) {
			t.Errorf("%s: built\n%x, want\n%x", c.name, got, b)
		}
		again, err := p.Parse(c.mine.AppendTo(nil))
		if err != nil || again.Mix(1) != c.mine.Mix(1) {
			t.Errorf("%s: the digest of the frame that is sent is not that of the one that arrives: %v", c.name, err)
		}
	}
	if records := []GroupRecord{join, leave}; !records[0].Joins() || records[0].Leaves() || records[1].Joins() || !records[1].Leaves() {
		t.Error("join or leave")
	}
}

// TestMembershipRoundTrip: any number of records comes back, with and without a tag, in both families.
func TestMembershipRoundTrip(t *testing.T) {
	var p Pool
	for _, ipv6 := range []bool{false, true} {
		for _, tag := range []*VLAN{nil, {PCP: 6, ID: 100}} {
			w := Reporter{IP: 0x0a000102, IPv6: ipv6, VLAN: tag}
			for n := range GroupRecordsMax + 1 {
				var want []GroupRecord
				for i := range n {
					want = append(want, GroupRecord{Type: RecordType(1 + i%6), Group: 0xe1000000 + uint32(i)})
				}
				f := w.Report(&p, want)
				if f.Traffic() != MembershipTraffic || f.IPv6() != ipv6 || f.VLANID() != 0 && tag == nil {
					t.Fatalf("traffic class %#x, IPv6 %v, VLAN %d", f.Traffic(), f.IPv6(), f.VLANID())
				}
				m, got, err := membership(t, f.AppendTo(nil))
				if err != nil || m.Query || m.IPv6 != ipv6 || !ipv6 && m.Src != w.IP || len(got) != n {
					t.Fatalf("%d records: %+v, %d, %v", n, m, len(got), err)
				}
				for i, r := range got {
					if r != want[i] {
						t.Fatalf("record %d of %d: %+v, want %+v", i, n, r, want[i])
					}
				}
				p.Put(f)
			}
			q := w.Query(&p)
			if m, _, err := membership(t, q.AppendTo(nil)); err != nil || !m.Query || m.Group != 0 {
				t.Errorf("query: %+v, %v", m, err)
			}
			p.Put(q)
		}
	}
	if p.Live != 0 || p.LiveBlocks != 0 {
		t.Errorf("%d frames and %d blocks not returned", p.Live, p.LiveBlocks)
	}
}

// TestMembershipCut: no prefix of a message is taken for one, and no damaged byte of one passes for the same records.
func TestMembershipCut(t *testing.T) {
	for _, hex := range []string{linuxJoin, linuxLeave, mldJoins, mldAsks} {
		b := unhex(t, hex)
		_, want, _ := membership(t, b)
		for n := range len(b) {
			var p Pool
			f, err := p.Parse(b[:n:n])
			if err != nil || !f.IsMembership() {
				continue
			}
			if m, _, err := f.Membership(nil); err == nil {
				t.Errorf("the first %d bytes are taken for %+v", n, m)
			}
		}
		for i := EthernetLen; i < len(b); i++ {
			c := bytes.Clone(b)
			c[i] ^= 0x41
			var p Pool
			f, err := p.Parse(c)
			if err != nil || !f.IsMembership() {
				continue
			}
			if m, _, err := f.Membership(nil); err == nil && len(want) > 0 && (i >= 62 || i >= 38 && !m.IPv6) { // the router alert has no checksum
				t.Errorf("with byte %d damaged it is taken for %+v", i, m)
			}
		}
	}
}

// TestMembershipOld: reports and leaves of IGMPv1, IGMPv2 and MLDv1, sources, auxiliary data, and addresses that are no
// group of a fabric.
func TestMembershipOld(t *testing.T) {
	var p Pool
	igmp := func(body ...byte) []byte {
		w := Reporter{IP: 0x0a000003}
		return w.finish(&p, append(w.begin(nil, 22), body...)).AppendTo(nil)
	}
	mld := func(body ...byte) []byte {
		w := Reporter{IP: 0x0a000003, IPv6: true}
		return w.finish(&p, append(w.begin(nil, 22), body...)).AppendTo(nil)
	}
	group6 := IPv6Of(0xef010203)
	v1 := func(kind byte) []byte { return append([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, group6[:]...) }
	for name, c := range map[string]struct {
		b             []byte
		group         uint32
		joins, leaves bool
	}{
		"IGMPv1 report":   {igmp(0x12, 0, 0, 0, 239, 1, 2, 3), 0xef010203, true, false},
		"IGMPv2 report":   {igmp(0x16, 0, 0, 0, 239, 1, 2, 3), 0xef010203, true, false},
		"IGMPv2 leave":    {igmp(0x17, 0, 0, 0, 239, 1, 2, 3), 0xef010203, false, true},
		"MLDv1 report":    {mld(v1(131)...), 0xef010203, true, false},
		"MLDv1 done":      {mld(v1(132)...), 0xef010203, false, true},
		"source":          {igmp(0x22, 0, 0, 0, 0, 0, 0, 1, 3, 0, 0, 1, 239, 1, 2, 3, 10, 0, 0, 1), 0xef010203, true, false},
		"auxiliary data":  {igmp(0x22, 0, 0, 0, 0, 0, 0, 1, 4, 1, 0, 0, 239, 1, 2, 3, 1, 2, 3, 4), 0xef010203, true, false},
		"blocked source":  {igmp(0x22, 0, 0, 0, 0, 0, 0, 1, 6, 0, 0, 1, 239, 1, 2, 3, 10, 0, 0, 1), 0xef010203, false, false},
		"unicast address": {igmp(0x22, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0, 10, 0, 0, 1), 0, true, false},
	} {
		_, records, err := membership(t, c.b)
		if err != nil || len(records) != 1 || records[0].Group != c.group || records[0].Joins() != c.joins || records[0].Leaves() != c.leaves {
			t.Errorf("%s: %+v, %v", name, records, err)
		}
	}
	for name, b := range map[string][]byte{
		"a record too many": igmp(0x22, 0, 0, 0, 0, 0, 0, 2, 4, 0, 0, 0, 239, 1, 2, 3),
		"other IGMP":        igmp(0x14, 0, 0, 0, 239, 1, 2, 3),
		"other ICMPv6":      mld(v1(133)...),
	} {
		if m, _, err := membership(t, b); err == nil {
			t.Errorf("%s is taken for %+v", name, m)
		}
	}
}

// TestMembershipAllocatesNothing: neither to build nor to read.
func TestMembershipAllocatesNothing(t *testing.T) {
	var p Pool
	w, records, scratch := Reporter{IP: 0x0a000003, IPv6: true}, make([]GroupRecord, GroupRecordsMax), make([]byte, 0, 2048)
	for i := range records {
		records[i] = GroupRecord{Type: ModeIsExclude, Group: 0xe1000000 + uint32(i)}
	}
	if n := testing.AllocsPerRun(100, func() {
		f := w.Report(&p, records)
		m, b, err := f.Membership(scratch)
		for _, ok := m.Next(); ok; _, ok = m.Next() {
		}
		if scratch = b; err != nil {
			t.Fatal(err)
		}
		p.Put(f)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzMembership: any bytes are read without a panic, and a report that is read has records that can be sent again.
func FuzzMembership(f *testing.F) {
	for _, s := range []string{linuxJoin, linuxLeave, mldJoins, mldAsks} {
		f.Add(unhex(f, s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := Pool{Poison: true}
		fr, err := p.Parse(b)
		if err != nil || !fr.IsMembership() {
			return
		}
		m, _, err := fr.Membership(nil)
		if err != nil {
			return
		}
		var groups []GroupRecord
		for r, ok := m.Next(); ok; r, ok = m.Next() {
			if r.Group != 0 && len(groups) < GroupRecordsMax {
				groups = append(groups, GroupRecord{Type: r.Type, Group: r.Group})
			}
		}
		w := Reporter{IP: 0x0a000001, IPv6: m.IPv6}
		again := w.Report(&p, groups)
		n, _, err := again.Membership(nil)
		for _, want := range groups {
			if got, ok := n.Next(); !ok || got != want || err != nil {
				t.Fatalf("%+v comes back as %+v, %v", want, got, err)
			}
		}
	})
}

// TestGroupOf maps MGIDs: those that name an IPv4 group in each of the ways that programs use, and all others.
func TestGroupOf(t *testing.T) {
	for _, c := range []struct {
		mgid, group string // no group: not an MGID
	}{
		{"::ffff:239.1.2.3", "239.1.2.3"},       // RoCEv2 (rdma_join_multicast)
		{"ff0e::ffff:239.1.2.3", "239.1.2.3"},   // RoCEv1
		{"ff15::ef01:203", "239.1.2.3"},         // a fabric of IPv6
		{"::ffff:224.0.0.1", "224.0.0.1"},       // the lowest
		{"::ffff:239.255.1.1", "228.131.67.65"}, // the lab's own
		{"::ffff:239.254.0.1", "228.90.24.55"},  // likewise
		{"ff01:0:2:c985::", "228.53.112.192"},   // perftest
		{"ff01:0:2:c985::1", "231.50.64.86"},    // perftest's client
		{"ff12:401b:ffff::1", "228.124.96.141"}, // IPoIB
		{"ff0e::1:2", "231.117.97.236"},
		{"::ffff:10.0.0.1", ""},
		{"::ffff:240.0.0.1", ""},
		{"fd6d:6361:7374::a00:1", ""},
		{"fe80::1", ""},
		{"::", ""},
	} {
		got, ok := GroupOf(netip.MustParseAddr(c.mgid).As16())
		text := ""
		if ok {
			text = AddrOf(got).String()
		}
		if text != c.group {
			t.Errorf("%s is %s, want %s", c.mgid, text, c.group)
		}
		if ok && (!IsMulticast(got) || IsLabGroup(got)) {
			t.Errorf("%s is %s, no group of programs", c.mgid, text)
		}
	}
}
