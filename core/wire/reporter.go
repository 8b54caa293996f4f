// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Reporter sends reports to 224.0.0.22 or ff02::16, and queries to 224.0.0.1 or ff02::1. The IP header has TTL 1, DSCP 48 and a
// router alert; over IPv6 the source is the link-local address of the MAC address (RFC 4291, appendix A). Over IPv4 the alert is an option
// of the header (RFC 2113), which is 24 bytes long.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+---------------+-------------------------------+
//	|     0x94      |       4       |               0               |
//	+---------------+---------------+-------------------------------+
//
// Over IPv6 it is in a hop-by-hop header (RFC 2711), with ICMPv6 (58) behind it.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+---------------+---------------+---------------+
//	|      58       |       0       |       5       |       2       |
//	+---------------+---------------+---------------+---------------+
//	|               0               |       1       |       0       |
//	+-------------------------------+---------------+---------------+
type Reporter struct {
	IP   uint32
	IPv6 bool
	VLAN *VLAN // nil: untagged; its EtherType is filled in
}

// Report returns a frame with records without sources, GroupRecordsMax of them at most.
func (w *Reporter) Report(p *Pool, records []GroupRecord) *Frame {
	var raw [membershipMax]byte
	if len(records) > GroupRecordsMax {
		panic("wire: a report of more than GroupRecordsMax records")
	}
	if !w.IPv6 {
		b := append(w.begin(raw[:0], 22), igmpReport, 0, 0, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(len(records)))
		for _, r := range records {
			b = binary.BigEndian.AppendUint32(append(b, byte(r.Type), 0, 0, 0), r.Group)
		}
		return w.finish(p, b)
	}
	b := append(w.begin(raw[:0], 22), mldReport, 0, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(records)))
	for _, r := range records {
		a := IPv6Of(r.Group)
		b = append(append(b, byte(r.Type), 0, 0, 0), a[:]...)
	}
	return w.finish(p, b)
}

// Query returns a frame with a general query.
func (w *Reporter) Query(p *Pool) *Frame {
	var raw [membershipMax]byte
	b := w.begin(raw[:0], 1)
	if w.IPv6 {
		const ms = QueryResponse * 1000
		b = append(b, mldQuery, 0, 0, 0, ms>>8, ms&0xff, 0, 0)
		b = appendZeros(b, 16)
	} else {
		b = append(b, igmpQuery, QueryResponse*10, 0, 0, 0, 0, 0, 0)
	}
	return w.finish(p, append(b, MembershipRobustness, QueryInterval, 0, 0))
}

// begin appends the headers of a message to 224.0.0.to or ff02::to, without lengths and sums.
func (w *Reporter) begin(b []byte, to byte) []byte {
	eth := Ethernet{Dst: MulticastMAC(w.IPv6, 0xe0000000|uint32(to)), Src: HostMAC(w.IP), EtherType: EtherTypeIPv4}
	if w.IPv6 {
		eth.Dst, eth.EtherType = MulticastMAC(true, uint32(to)), EtherTypeIPv6
	}
	if w.VLAN != nil {
		tag := *w.VLAN
		tag.EtherType, eth.EtherType = eth.EtherType, EtherTypeVLAN
		b = tag.AppendTo(eth.AppendTo(b))
	} else {
		b = eth.AppendTo(b)
	}
	if !w.IPv6 {
		b = append(b, 0x46, MembershipTraffic, 0, 0, 0, 0, 0x40, 0, 1, protocolIGMP, 0, 0)
		b = binary.BigEndian.AppendUint32(b, w.IP)
		return append(append(b, 224, 0, 0, to), routerAlert[:]...)
	}
	mac := HostMAC(w.IP)
	b = append(b, 0x60|MembershipTraffic>>4, MembershipTraffic<<4&0xff, 0, 0, 0, 0, 0, 1)
	b = append(b, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, mac[0]^2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]) // RFC 4291, appendix A
	b = append(b, 0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, to)
	return append(b, hopByHop[:]...)
}

// finish fills in lengths and sums. The frame is that which a receiver makes of its bytes.
func (w *Reporter) finish(p *Pool, b []byte) *Frame {
	ip := b[EthernetLen:]
	if w.VLAN != nil {
		ip = ip[VLANLen:]
	}
	if w.IPv6 {
		binary.BigEndian.PutUint16(ip[4:6], uint16(len(ip)-IPv6Len))
		m := ip[IPv6Len+hopByHopLen:]
		binary.BigEndian.PutUint16(m[2:4], ^icmp6Sum(m, [16]byte(ip[8:24]), [16]byte(ip[24:40])))
	} else {
		const head = IPv4Len + alertLen
		binary.BigEndian.PutUint16(ip[2:4], uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[10:12], ^fold(sum16(ip[:head])))
		m := ip[head:]
		binary.BigEndian.PutUint16(m[2:4], ^fold(sum16(m)))
	}
	f, err := p.Parse(appendZeros(b, MinFrameLen-len(b)))
	if err != nil {
		panic(err) // it is well-formed
	}
	return f
}
