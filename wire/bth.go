package wire

import "encoding/binary"

// BTHLen is the size of the base transport header in bytes.
const BTHLen = 12

// PKeyDefault is the partition key of full members of the default partition.
const PKeyDefault uint16 = 0xffff

// BTH is the base transport header of every InfiniBand packet (InfiniBand
// specification, chapter 9.2). Byte 4 (FECN, BECN and reserved bits) is the only
// one the ICRC does not cover.
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
	Migrated  bool  // M: real NICs set it, rxe does not; never checked
	PadCount  uint8 // zero bytes after the payload, 0..3
	Version   uint8 // TVer, 0
	PKey      uint16
	FECN      bool
	BECN      bool
	DestQP    QPN
	AckReq    bool
	PSN       PSN
	Selective bool // S, of what the specification reserves: the sender takes SACKs; others ignore it
}

// AppendTo appends the 12 header bytes.
func (h BTH) AppendTo(b []byte) []byte {
	var v [BTHLen]byte
	h.put(v[:])
	return append(b, v[:]...)
}

func (h BTH) put(b []byte) {
	_ = b[11]
	b[0] = byte(h.OpCode)
	b[1] = h.PadCount&3<<4 | h.Version&0xf
	if h.Solicited {
		b[1] |= 0x80
	}
	if h.Migrated {
		b[1] |= 0x40
	}
	binary.BigEndian.PutUint16(b[2:4], h.PKey)
	b[4] = 0
	if h.FECN {
		b[4] |= 0x80
	}
	if h.BECN {
		b[4] |= 0x40
	}
	put24(b[5:8], uint32(h.DestQP))
	b[8] = 0
	if h.AckReq {
		b[8] = 0x80
	}
	if h.Selective {
		b[8] |= 1
	}
	put24(b[9:12], uint32(h.PSN))
}

// ParseBTH reads the header and returns what follows it, or ErrShort.
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
