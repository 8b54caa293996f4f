// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// BTHLen is the size of the base transport header in bytes.
const BTHLen = 12

// PKeyDefault is the partition key of full members of the default partition.
const PKeyDefault uint16 = 0xffff

// BTH is the base transport header of every InfiniBand packet (InfiniBand
// specification, chapter 9.2). Byte 4 (FECN, BECN and reserved bits) is the only
// one the ICRC does not cover. M is MigReq, which adapters and switches set in all but CNPs, as ConnectX adapters
// do; no receiver looks at it, since Linux's rxe never sets it.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+-+-+---+-------+-------------------------------+
//	|    OpCode     |S|M|Pad| TVer  |             P_Key             |
//	+-+-+-----------+-+-+---+-------+-------------------------------+
//	|F|B|  reserved |            destination QPN                    |
//	+-+-+-----------+-----------------------------------------------+
//	|A| reserved  |S|                     PSN                       |
//	+-+-----------+-+-----------------------------------------------+
type BTH struct {
	OpCode    OpCode
	Solicited bool  // SE: raise an event on a CQ armed for solicited ones only
	Migrated  bool  // M, MigReq: set in the normal state of a path, never checked
	PadCount  uint8 // zero bytes after the payload, 0..3
	Version   uint8 // TVer, 0
	PKey      uint16
	FECN      bool
	BECN      bool
	DestQP    QPN
	AckReq    bool
	PSN       PSN
	Selective bool // S, one of the bits that the specification reserves: the sender takes SACKs; others ignore it
}

// AppendTo appends the 12 header bytes.
func (h BTH) AppendTo(b []byte) []byte {
	var v [BTHLen]byte
	h.put(v[:])
	return append(b, v[:]...)
}

// put writes the header as three words, which is twice as fast as byte by byte.
func (h *BTH) put(b []byte) {
	_ = b[11]
	w := uint32(h.OpCode)<<24 | bit(h.Solicited)<<23 | bit(h.Migrated)<<22 | uint32(h.PadCount&3)<<20 | uint32(h.Version&0xf)<<16 | uint32(h.PKey)
	binary.BigEndian.PutUint32(b[0:4], w)
	binary.BigEndian.PutUint32(b[4:8], bit(h.FECN)<<31|bit(h.BECN)<<30|uint32(h.DestQP&QPNMask))
	binary.BigEndian.PutUint32(b[8:12], bit(h.AckReq)<<31|bit(h.Selective)<<24|uint32(h.PSN&PSNMask))
}

// bit returns 1 for true. The compiler makes a move of it, without a branch.
func bit(b bool) (v uint32) {
	if b {
		v = 1
	}
	return v
}

// ParseBTH reads the header and returns the bytes after it, or ErrShort.
func ParseBTH(b []byte) (h BTH, rest []byte, err error) {
	if len(b) < BTHLen {
		return BTH{}, nil, ErrShort
	}
	h = BTH{
		OpCode: OpCode(b[0]), Solicited: b[1]&0x80 != 0, Migrated: b[1]&0x40 != 0,
		PadCount: b[1] >> 4 & 3, Version: b[1] & 0xf, PKey: binary.BigEndian.Uint16(b[2:4]),
		FECN: b[4]&0x80 != 0, BECN: b[4]&0x40 != 0, DestQP: QPN(get24(b[5:8])),
		AckReq: b[8]&0x80 != 0, PSN: PSN(get24(b[9:12])), Selective: b[8]&1 != 0,
	}
	return h, b[BTHLen:], nil
}
