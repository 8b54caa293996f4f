// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"net/netip"
)

// Membership of IP multicast groups: IGMPv3 (RFC 3376) in IPv4 fabrics and MLDv2 (RFC 3810) in
// IPv6 ones. Reports and leaves of IGMPv1, IGMPv2 and MLDv1 are understood and never sent.

// RecordType is the type of a group record (RFC 3376 §4.2.12, RFC 3810 §5.2.12).
type RecordType uint8

// Record types.
const (
	ModeIsInclude   RecordType = 1 // current state, in answer to a query
	ModeIsExclude   RecordType = 2
	ChangeToInclude RecordType = 3 // change of state; without sources: leave
	ChangeToExclude RecordType = 4 // without sources: join
	AllowNewSources RecordType = 5
	BlockOldSources RecordType = 6
)

// GroupRecord is the record of one group in a report. Types 1 and 2 answer a query; types 3 and 4 report a change: to no source (3, leave), to
// all sources (4, join). Records sent here carry no sources and no auxiliary data; those of other senders are skipped.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+---------------+-------------------------------+
//	|  record type  |   aux words   |       number of sources       |
//	+---------------+---------------+-------------------------------+
//	|                   group address (4 or 16)                     |
//	+---------------------------------------------------------------+
//	|             sources (4 or 16 each), auxiliary data            |
//	+---------------------------------------------------------------+
type GroupRecord struct {
	Type    RecordType
	Group   uint32 // 0: a group that has no number in a fabric
	Sources int
}

// Joins reports whether the sender receives the group, from some source at least.
func (r GroupRecord) Joins() bool {
	switch r.Type {
	case ModeIsExclude, ChangeToExclude:
		return true
	case ModeIsInclude, ChangeToInclude, AllowNewSources:
		return r.Sources > 0
	}
	return false
}

// Leaves reports whether the sender no longer receives the group from any source.
func (r GroupRecord) Leaves() bool {
	return (r.Type == ModeIsInclude || r.Type == ChangeToInclude) && r.Sources == 0
}

// Constants of both protocols (RFC 3376 §8, RFC 3810 §9): the defaults that the RFCs recommend.
const (
	QueryInterval        = 125 // s between general queries
	QueryResponse        = 10  // s that hosts have for their answers
	MembershipRobustness = 2   // how often a change is reported, and a query sent
)

// GroupRecordsMax is the number of records that a report to an MTU of 1,500 bytes holds.
const GroupRecordsMax = (1500 - IPv6Len - hopByHopLen - membershipHead) / recordLen6

// Message types and sizes.
const (
	protocolIGMP = 2

	igmpQuery    = 0x11
	igmpReportV1 = 0x12
	igmpReportV2 = 0x16
	igmpLeave    = 0x17
	igmpReport   = 0x22

	mldQuery    = 130
	mldReportV1 = 131
	mldDone     = 132
	mldReport   = 143

	membershipHead = 8  // of a report of either protocol, and the least that IGMP has
	recordLen4     = 8  // without sources
	recordLen6     = 20 // without sources
	mldV1Len       = 24
	igmpQueryLen   = 12
	mldQueryLen    = 28
	alertLen       = 4 // router alert option of IPv4 (RFC 2113)
	hopByHopLen    = 8 // hop-by-hop header with the router alert of MLD (RFC 2711)
	// membershipMax is the longest frame with a report: MTU, Ethernet header and tag.
	membershipMax = 1500 + EthernetLen + VLANLen
)

// MembershipTraffic is the traffic class of reports and queries: DSCP 48, as hosts send them (RFC 4594 §3.2).
const MembershipTraffic = 48 << 2

// routerAlert is the IPv4 option, and hopByHop the IPv6 header with ICMPv6 as the next one,
// router alert 0 (MLD) and two bytes of padding.
var (
	routerAlert = [alertLen]byte{0x94, 4, 0, 0}
	hopByHop    = [hopByHopLen]byte{protocolICMPv6, 0, 5, 2, 0, 0, 1, 0}
)

// Membership is a view of a message of IGMPv3 (RFC 3376 §4) or MLDv2 (RFC 3810 §5) whose lengths and checksums are right. The
// checksum of IGMP is over the message, that of MLD also over the pseudo header of IPv6.
//
// A query of IGMPv3 asks for one group, or with address 0 for all. Its times are in tenths of a second and in seconds; here they are
// 100 and 125.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+---------------+-------------------------------+
//	|     0x11      | response time |           checksum            |
//	+---------------+---------------+-------------------------------+
//	|                       group address (4)                       |
//	+-------+-+-----+---------------+-------------------------------+
//	|   0   |S| QRV | query interval|     number of sources (0)     |
//	+-------+-+-----+---------------+-------------------------------+
//
// A query of MLDv2 has its time in milliseconds: 10,000.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+---------------+-------------------------------+
//	|      130      |       0       |           checksum            |
//	+---------------+---------------+-------------------------------+
//	|         response time         |               0               |
//	+-------------------------------+-------------------------------+
//	|                      group address (16)                       |
//	+-------+-+-----+---------------+-------------------------------+
//	|   0   |S| QRV | query interval|     number of sources (0)     |
//	+-------+-+-----+---------------+-------------------------------+
//
// A report of either protocol has records, each a GroupRecord.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+---------------+-------------------------------+
//	|  0x22 or 143  |       0       |           checksum            |
//	+---------------+---------------+-------------------------------+
//	|               0               |       number of records       |
//	+-------------------------------+-------------------------------+
//	|                            records                            |
//	+---------------------------------------------------------------+
type Membership struct {
	Query bool
	IPv6  bool
	// Group is that of a query for one group, 0 in a general query.
	Group uint32
	// Src is the sender's address in an IPv4 fabric. MLD is sent from link-local addresses, and Src is 0.
	Src     uint32
	old     GroupRecord // of a report of an earlier version, which has one
	records []byte
	addr    [16]byte
}

// Addr returns the group's address in the record that Next returned last, that of IPv4 as ::ffff:a.b.c.d.
// An MGID is such an address, and GroupOf has its number.
func (m *Membership) Addr() [16]byte { return m.addr }

// Next takes the next record of a report; ok is false if there is none.
func (m *Membership) Next() (r GroupRecord, ok bool) {
	if m.old.Type != 0 {
		r, m.old = m.old, GroupRecord{}
		return r, true
	}
	r, rest, ok := parseRecord(m.records, m.IPv6)
	if ok {
		m.setAddr(m.records[4:])
	}
	m.records = rest
	return r, ok
}

// setAddr notes the address that b begins with.
func (m *Membership) setAddr(b []byte) {
	if m.IPv6 {
		m.addr = [16]byte(b[:16])
		return
	}
	m.addr = [16]byte{10: 0xff, 11: 0xff}
	copy(m.addr[12:], b[:4])
}

// parseRecord reads a record and returns the bytes after it; ok is false if b does not hold one.
func parseRecord(b []byte, ipv6 bool) (r GroupRecord, rest []byte, ok bool) {
	addr := 4
	if ipv6 {
		addr = 16
	}
	if len(b) < 4+addr {
		return GroupRecord{}, nil, false
	}
	r = GroupRecord{Type: RecordType(b[0]), Group: groupNumber(b[4 : 4+addr]), Sources: int(binary.BigEndian.Uint16(b[2:4]))}
	n := 4 + addr + r.Sources*addr + 4*int(b[1])
	if len(b) < n {
		return GroupRecord{}, nil, false
	}
	return r, b[n:], true
}

// groupNumber returns the number of a group in a fabric, 0 if it has none.
func groupNumber(b []byte) uint32 {
	if len(b) == 4 {
		if ip := binary.BigEndian.Uint32(b); IsMulticast(ip) {
			return ip
		}
		return 0
	}
	if ip, ok := IPOf(netip.AddrFrom16([16]byte(b))); ok && IsMulticast(ip) {
		return ip
	}
	return 0
}

// isIGMP reports whether an IPv4 packet is IGMP, whose header has an option.
func isIGMP(b []byte) bool { return len(b) >= IPv4Len && b[0]>>4 == 4 && b[9] == protocolIGMP }

// isMLD reports whether an IPv6 packet may be MLD: sent to a multicast address, with options for
// every router.
func isMLD(h *IPv6) bool { return h.NextHeader == 0 && h.Dst.IsMulticast() }

// IsMembership reports whether the frame is IGMP, or may be MLD. Membership reads it.
func (f *Frame) IsMembership() bool {
	if f.Kind() != KindOther {
		return false
	}
	o := f.ipOff()
	if f.flags&flagIPv6 != 0 {
		return f.h[o+6] == 0 && f.h[o+24] == 0xff
	}
	return int(f.n) >= o+IPv4Len && binary.BigEndian.Uint16(f.h[o-2:o]) == EtherTypeIPv4 && isIGMP(f.h[o:f.n])
}

// Membership reads a frame for which IsMembership holds. The view lies in scratch, which is
// grown if need be and returned.
func (f *Frame) Membership(scratch []byte) (m Membership, b []byte, err error) {
	b = f.AppendTo(scratch[:0])
	if f.flags&flagIPv6 != 0 {
		m, err = parseMLD(b[f.ipOff():])
	} else {
		m, err = parseIGMP(b[f.ipOff():])
	}
	return m, b, err
}

// parseIGMP reads an IPv4 packet with IGMP. It refuses fragments and other TTLs than 1, which
// have crossed a router (RFC 3376 §4).
func parseIGMP(b []byte) (m Membership, err error) {
	head := int(b[0]&0xf) * 4
	if len(b) < IPv4Len || head < IPv4Len || len(b) < head {
		return m, ErrShort
	}
	if fold(sum16(b[:head])) != 0xffff {
		return m, ErrChecksum
	}
	n := int(binary.BigEndian.Uint16(b[2:4]))
	if n > len(b) || n < head+membershipHead {
		return m, ErrShort
	}
	if b[8] != 1 || binary.BigEndian.Uint16(b[6:8])&^0x4000 != 0 {
		return m, ErrFormat
	}
	m.Src = binary.BigEndian.Uint32(b[12:16])
	body := b[head:n]
	if fold(sum16(body)) != 0xffff {
		return m, ErrChecksum
	}
	group := groupNumber(body[4:8])
	m.setAddr(body[4:])
	switch body[0] {
	case igmpQuery:
		m.Query, m.Group = true, group
	case igmpReportV1, igmpReportV2:
		m.old = GroupRecord{Type: ChangeToExclude, Group: group}
	case igmpLeave:
		m.old = GroupRecord{Type: ChangeToInclude, Group: group}
	case igmpReport:
		return m, m.setRecords(body)
	default:
		return m, ErrFormat
	}
	return m, nil
}

// parseMLD reads an IPv6 packet with MLD. It refuses packets that a router has forwarded and those not
// from a link-local address (RFC 3810 §5).
func parseMLD(b []byte) (m Membership, err error) {
	m.IPv6 = true
	h, rest, err := ParseIPv6(b)
	if err != nil {
		return m, err
	}
	if len(rest) < hopByHopLen || len(rest) < 8*(1+int(rest[1]))+membershipHead {
		return m, ErrShort
	}
	if rest[0] != protocolICMPv6 || h.HopLimit != 1 || !h.Src.IsLinkLocalUnicast() && !h.Src.IsUnspecified() {
		return m, ErrFormat
	}
	body := rest[8*(1+int(rest[1])):]
	if icmp6Sum(body, h.Src.As16(), h.Dst.As16()) != 0xffff {
		return m, ErrChecksum
	}
	if body[0] == mldReport {
		return m, m.setRecords(body)
	}
	if len(body) < mldV1Len {
		return m, ErrShort
	}
	group := groupNumber(body[8:24])
	m.setAddr(body[8:])
	switch body[0] {
	case mldQuery:
		m.Query, m.Group = true, group
	case mldReportV1:
		m.old = GroupRecord{Type: ChangeToExclude, Group: group}
	case mldDone:
		m.old = GroupRecord{Type: ChangeToInclude, Group: group}
	default:
		return m, ErrFormat
	}
	return m, nil
}

// setRecords checks that the records of a report are all there.
func (m *Membership) setRecords(body []byte) error {
	m.records = body[membershipHead:]
	rest := m.records
	for range binary.BigEndian.Uint16(body[6:8]) {
		var ok bool
		if _, rest, ok = parseRecord(rest, m.IPv6); !ok {
			return ErrShort
		}
	}
	m.records = m.records[:len(m.records)-len(rest)]
	return nil
}
