// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"slices"
)

// PortMRP is the UDP destination port of the MFT registration protocol. The papers
// name none; this one is unassigned and spells MC.
const PortMRP uint16 = 0x4d43

// MRP sizes (CEP-9, CEP-10): 28 bytes of IPv4 and UDP, 8 of metadata and 183 records of 8 fill an MTU
// of 1500 exactly, which fixes the layout.
const (
	MRPHeaderLen     = 8
	MRPRecordLen     = 8
	mrpAttemptLen    = 4
	MRPRecordsMax    = (1500 - IPv4Len - UDPLen - MRPHeaderLen) / MRPRecordLen // 183
	MRPRecordsMaxIP6 = (1500 - IPv6Len - UDPLen - MRPHeaderLen) / MRPRecordLen // 180
)

// MRPFlags are the kind of an MRP packet; none set means "register these nodes".
type MRPFlags uint8

// MRP flags (CEP-11; Confirm is mcastlab's own, the papers give confirmations no layout).
const (
	MRPDelete   MRPFlags = 1 << 0 // delete the group from every table of its tree
	MRPMRUpdate MRPFlags = 1 << 1 // register these nodes, whose records carry memory regions (MRPRegion)
	MRPError    MRPFlags = 1 << 2 // from a switch to the leader: it cannot install the group
	MRPActivate MRPFlags = 1 << 3 // one record, whose QPN field is the start PSN
	MRPConfirm  MRPFlags = 1 << 4 // from a member to the leader; combined with the flag that it confirms
	MRPReduce   MRPFlags = 1 << 5 // register these nodes, of a group that adds up their numbers (ReduceImm)
	mrpAgain    MRPFlags = 1 << 6 // the metadata end with the attempt
)

// MRPHeader is the 8 bytes of metadata in front of the records. Registration is
// addressed to the McstID and keeps the leader's IP address as its source all the
// way, so members know whom to answer (CEP-11).
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-------------------------------+-------------------------------+
//	|      sequence, from 0         |            total              |
//	+---------------+---------------+-------------------------------+
//	|     flags     |                leader QPN                     |
//	+---------------+-----------------------------------------------+
//	|           attempt, with flag 0x40 and from 1 on               |
//	+---------------------------------------------------------------+
//
// The attempt counts how often a registration was started again because routes had changed: switches'
// entries of an earlier one are void (the papers have no attempts). All packets about the group have
// it, but those of the first attempt, 0, which are as in the papers.
type MRPHeader struct {
	Seq, Total uint16
	Flags      MRPFlags
	LeaderQPN  QPN
	Attempt    uint32
}

// AppendTo appends the 8 header bytes, and 4 of the attempt if it is not the first.
func (h MRPHeader) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, h.Seq)
	b = binary.BigEndian.AppendUint16(b, h.Total)
	if h.Attempt == 0 {
		return binary.BigEndian.AppendUint32(b, uint32(h.Flags)<<24|uint32(h.LeaderQPN&QPNMask))
	}
	b = binary.BigEndian.AppendUint32(b, uint32(h.Flags|mrpAgain)<<24|uint32(h.LeaderQPN&QPNMask))
	return binary.BigEndian.AppendUint32(b, h.Attempt)
}

// MRPRecord is one node of a group. In a confirmation and in an error report IP is
// the McstID the message is about, and in an error report Flags holds the reason. A
// host confirms a deletion also if it is not, or no longer, in the group; QPN is 0 then.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------------------------------------------------------+
//	|                         IPv4 address                          |
//	+---------------+-----------------------------------------------+
//	|     flags     |                     QPN                       |
//	+---------------+-----------------------------------------------+
type MRPRecord struct {
	IP    uint32
	Flags uint8
	QPN   QPN
}

// AppendTo appends the 8 record bytes.
func (r MRPRecord) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, r.IP)
	return binary.BigEndian.AppendUint32(b, uint32(r.Flags)<<24|uint32(r.QPN&QPNMask))
}

// MRPErrorReason is the reason why a switch could not install a group.
type MRPErrorReason uint8

// Reasons a switch gives in an MRPError record.
const (
	MRPErrNoMemory MRPErrorReason = 1 // the table holds no further group
	MRPErrFanOut   MRPErrorReason = 2 // more outgoing paths than the switch can feed
	MRPErrNoRoute  MRPErrorReason = 3 // a member's address is not reachable
	MRPErrRoutes   MRPErrorReason = 4 // routes have changed in this attempt, whose paths would be no tree
)

// String names the reason.
func (r MRPErrorReason) String() string {
	switch r {
	case MRPErrNoMemory:
		return "no room in the multicast forwarding table"
	case MRPErrFanOut:
		return "fan-out limit exceeded"
	case MRPErrNoRoute:
		return "no route to a member"
	case MRPErrRoutes:
		return "routes changed meanwhile"
	}
	return "unknown reason"
}

// MRPPacket is a view of an MRP payload whose lengths have been checked.
type MRPPacket struct {
	MRPHeader
	records []byte
}

// ParseMRP reads the metadata and checks that whole records follow it: at least one
// and at most MRPRecordsMax, or MRPRegionsMax with regions, of which an attempt may take
// the room of one. seq must be below total.
func ParseMRP(b []byte) (MRPPacket, error) {
	if len(b) < MRPHeaderLen {
		return MRPPacket{}, ErrShort
	}
	w := binary.BigEndian.Uint32(b[4:8])
	p := MRPPacket{
		MRPHeader: MRPHeader{
			Seq: binary.BigEndian.Uint16(b[0:2]), Total: binary.BigEndian.Uint16(b[2:4]),
			Flags: MRPFlags(w >> 24), LeaderQPN: QPN(w) & QPNMask,
		},
		records: slices.Clip(b[MRPHeaderLen:]), // no record is read beyond the packet
	}
	size, room := p.size(), MRPRecordsMax*MRPRecordLen
	if p.Flags&mrpAgain != 0 {
		if len(p.records) < mrpAttemptLen {
			return MRPPacket{}, ErrShort
		}
		p.Attempt = binary.BigEndian.Uint32(p.records)
		if p.Attempt == 0 { // which is said by not saying so
			return MRPPacket{}, ErrFormat
		}
		p.Flags &^= mrpAgain
		p.records, room = p.records[mrpAttemptLen:], room-mrpAttemptLen
	}
	n, most := len(p.records)/size, room/size
	if len(p.records)%size != 0 || n == 0 || n > most {
		return MRPPacket{}, ErrLength
	}
	if p.Seq >= p.Total {
		return MRPPacket{}, ErrFormat
	}
	return p, nil
}

// Len returns the number of records.
func (p MRPPacket) Len() int { return len(p.records) / p.size() }

// Record returns record i, 0 <= i < Len.
func (p MRPPacket) Record(i int) MRPRecord {
	b := p.records[i*p.size():][:MRPRecordLen]
	w := binary.BigEndian.Uint32(b[4:8])
	return MRPRecord{IP: binary.BigEndian.Uint32(b[0:4]), Flags: uint8(w >> 24), QPN: QPN(w) & QPNMask}
}
