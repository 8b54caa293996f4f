// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// MRPRegionLen is the number of bytes that MRPMRUpdate adds to every record of an MRP packet: a
// record then has 20.
const MRPRegionLen = 12

// MRPRegionsMax is the most records with regions in an MTU of 1500, the leader's included.
const (
	MRPRegionsMax    = (1500 - IPv4Len - UDPLen - MRPHeaderLen) / (MRPRecordLen + MRPRegionLen) // 73
	MRPRegionsMaxIP6 = (1500 - IPv6Len - UDPLen - MRPHeaderLen) / (MRPRecordLen + MRPRegionLen) // 72
)

// MRPRegion is a node's memory region, which follows its record in packets with
// MRPMRUpdate (CEP-25, with the queue pair in place of a length: the node's NIC checks
// that itself). The first record of such a packet is the leader's own, for its leaf: the
// leader receives too when another member is the source. The record's flags are the
// generation of the regions, modulo 256; an older one changes nothing.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------------------------------------------------------+
//	|                                                               |
//	+                        virtual address                        +
//	|                                                               |
//	+---------------------------------------------------------------+
//	|                             R_Key                             |
//	+---------------------------------------------------------------+
type MRPRegion struct {
	VA   uint64
	RKey uint32
}

// AppendTo appends the 12 bytes.
func (r MRPRegion) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, r.VA)
	return binary.BigEndian.AppendUint32(b, r.RKey)
}

// Region returns the region of record i, 0 <= i < Len, of a packet with MRPMRUpdate.
func (p MRPPacket) Region(i int) MRPRegion {
	b := p.records[i*p.size()+MRPRecordLen:]
	return MRPRegion{binary.BigEndian.Uint64(b[0:8]), binary.BigEndian.Uint32(b[8:12])}
}

// AppendRecord appends record i as it is, with its region if it has one.
func (p MRPPacket) AppendRecord(b []byte, i int) []byte {
	return append(b, p.records[i*p.size():(i+1)*p.size()]...)
}

// size returns the bytes of a record.
func (p MRPPacket) size() int {
	if p.Flags&MRPMRUpdate != 0 {
		return MRPRecordLen + MRPRegionLen
	}
	return MRPRecordLen
}

// MRUpdateVA is the address of a WRITE that announces to leaves the place of the next WRITE of its
// group at each member (GLE-8). No host has memory there.
const MRUpdateVA uint64 = 0xffff_ffff_4d52_0000

// MRAnnounced is set in the R_Key of a WRITE whose address comes from an announcement. The
// lower 24 bits are the PSN of that announcement, or of its first packet if it has several.
// Leaves cannot rely on the order of packets alone: packets that are reordered before a leaf,
// and back into order behind it, reach the member in order, but the WRITE then has the address
// of an earlier announcement.
const MRAnnounced uint32 = 1 << 31

// MRVersionsMax is the number of WRITEs to MRUpdateVA that a source may have outstanding: leaves keep
// the addresses of each until it is acknowledged (GLE-15).
const MRVersionsMax = 64

// MRUpdateLen is the number of bytes of one record in the payload of a WRITE to MRUpdateVA.
const MRUpdateLen = 16

// MRUpdate is one member in the payload of a WRITE to MRUpdateVA, which is nothing but
// such records.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------------------------------------------------------+
//	|                         IPv4 address                          |
//	+---------------------------------------------------------------+
//	|                             R_Key                             |
//	+---------------------------------------------------------------+
//	|                                                               |
//	+                        virtual address                        +
//	|                                                               |
//	+---------------------------------------------------------------+
type MRUpdate struct {
	IP   uint32
	RKey uint32
	VA   uint64
}

// AppendTo appends the 16 bytes.
func (u MRUpdate) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, u.IP)
	b = binary.BigEndian.AppendUint32(b, u.RKey)
	return binary.BigEndian.AppendUint64(b, u.VA)
}

// ParseMRUpdate reads one record and returns the rest.
func ParseMRUpdate(b []byte) (MRUpdate, []byte, error) {
	if len(b) < MRUpdateLen {
		return MRUpdate{}, nil, ErrShort
	}
	u := MRUpdate{binary.BigEndian.Uint32(b[0:4]), binary.BigEndian.Uint32(b[4:8]), binary.BigEndian.Uint64(b[8:16])}
	return u, b[MRUpdateLen:], nil
}
