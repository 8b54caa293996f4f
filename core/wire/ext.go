// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Sizes in bytes of the extension headers that follow the BTH.
const (
	RETHLen         = 16
	AETHLen         = 4
	DETHLen         = 8
	AtomicETHLen    = 28
	AtomicAckETHLen = 8
	ImmDtLen        = 4
	IETHLen         = 4
	CNPReservedLen  = 16
)

// RETH is the RDMA extended transport header: where the first packet of a WRITE
// or READ says the data goes (InfiniBand specification, chapter 9.3.3).
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------------------------------------------------------+
//	|                      virtual address (8)                      |
//	+---------------------------------------------------------------+
//	|                             R_Key                             |
//	+---------------------------------------------------------------+
//	|                 DMA length of the whole message               |
//	+---------------------------------------------------------------+
type RETH struct {
	VA     uint64
	RKey   uint32
	DMALen uint32
}

// AppendTo appends the 16 header bytes.
func (h RETH) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.VA)
	b = binary.BigEndian.AppendUint32(b, h.RKey)
	return binary.BigEndian.AppendUint32(b, h.DMALen)
}

// ParseRETH reads the header and returns the bytes after it, or ErrShort.
func ParseRETH(b []byte) (h RETH, rest []byte, err error) {
	if len(b) < RETHLen {
		return RETH{}, nil, ErrShort
	}
	h = RETH{VA: binary.BigEndian.Uint64(b), RKey: binary.BigEndian.Uint32(b[8:]), DMALen: binary.BigEndian.Uint32(b[12:])}
	return h, b[RETHLen:], nil
}

// Syndrome is the first byte of the AETH: bits 6..5 distinguish ACK, RNR NAK and NAK, bits 4..0 hold
// the credit code, timer code or error code.
type Syndrome uint8

// Syndromes in use (InfiniBand specification, chapter 9.7.5).
const (
	SyndromeACK         Syndrome = 0x1f // plain ACK, no credit information
	SyndromeRNR         Syndrome = 0x20 // plus the RNR timer code
	SyndromePSNSequence Syndrome = 0x60 // the AETH's packet carries the expected PSN
	SyndromeInvalidReq  Syndrome = 0x61
	SyndromeRemoteAcc   Syndrome = 0x62
	SyndromeRemoteOp    Syndrome = 0x63
)

// IsACK reports whether the syndrome acknowledges. Credits are ignored: rxe sends
// 0x1f, a ConnectX was seen to send 0x00, and both mean a plain ACK here.
func (s Syndrome) IsACK() bool { return s&0xe0 == 0 }

// IsRNR reports whether the receiver had no receive work request posted.
func (s Syndrome) IsRNR() bool { return s&0xe0 == 0x20 }

// IsNAK reports whether the syndrome is a negative acknowledgement other than RNR.
func (s Syndrome) IsNAK() bool { return s&0xe0 == 0x60 }

// RNRCode returns the timer code of an RNR NAK.
func (s Syndrome) RNRCode() uint8 { return uint8(s & 0x1f) }

// String names the syndrome.
func (s Syndrome) String() string {
	switch {
	case s.IsACK():
		return "ACK"
	case s.IsRNR():
		return "RNR"
	case s == SyndromePSNSequence:
		return "NAK(sequence)"
	case s == SyndromeInvalidReq:
		return "NAK(invalid request)"
	case s == SyndromeRemoteAcc:
		return "NAK(remote access)"
	case s == SyndromeRemoteOp:
		return "NAK(remote operation)"
	}
	return "NAK(reserved)"
}

// AETH is the acknowledge extended transport header.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+-----------------------------------------------+
//	|   syndrome    |            message sequence number            |
//	+---------------+-----------------------------------------------+
type AETH struct {
	Syndrome Syndrome
	MSN      uint32 // 24 bits: messages completed by the responder
}

// AppendTo appends the 4 header bytes.
func (h AETH) AppendTo(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(h.Syndrome)<<24|h.MSN&0xffffff)
}

// ParseAETH reads the header and returns the bytes after it, or ErrShort.
func ParseAETH(b []byte) (h AETH, rest []byte, err error) {
	if len(b) < AETHLen {
		return AETH{}, nil, ErrShort
	}
	return AETH{Syndrome: Syndrome(b[0]), MSN: get24(b[1:4])}, b[AETHLen:], nil
}

// DETH is the datagram extended transport header of UD.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------------------------------------------------------+
//	|                             Q_Key                             |
//	+---------------+-----------------------------------------------+
//	|   reserved    |                  source QPN                   |
//	+---------------+-----------------------------------------------+
type DETH struct {
	QKey  uint32
	SrcQP QPN
}

// AppendTo appends the 8 header bytes.
func (h DETH) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, h.QKey)
	return binary.BigEndian.AppendUint32(b, uint32(h.SrcQP&QPNMask))
}

// ParseDETH reads the header and returns the bytes after it, or ErrShort.
func ParseDETH(b []byte) (h DETH, rest []byte, err error) {
	if len(b) < DETHLen {
		return DETH{}, nil, ErrShort
	}
	return DETH{QKey: binary.BigEndian.Uint32(b), SrcQP: QPN(get24(b[5:8]))}, b[DETHLen:], nil
}

// AtomicETH is the header of COMPARE_SWAP and FETCH_ADD. FETCH_ADD puts its addend into SwapAdd
// and leaves Compare zero.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------------------------------------------------------+
//	|                      virtual address (8)                      |
//	+---------------------------------------------------------------+
//	|                             R_Key                             |
//	+---------------------------------------------------------------+
//	|                     swap or add data (8)                      |
//	+---------------------------------------------------------------+
//	|                       compare data (8)                        |
//	+---------------------------------------------------------------+
type AtomicETH struct {
	VA      uint64
	RKey    uint32
	SwapAdd uint64
	Compare uint64
}

// AppendTo appends the 28 header bytes.
func (h AtomicETH) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.VA)
	b = binary.BigEndian.AppendUint32(b, h.RKey)
	b = binary.BigEndian.AppendUint64(b, h.SwapAdd)
	return binary.BigEndian.AppendUint64(b, h.Compare)
}

// ParseAtomicETH reads the header and returns the bytes after it, or ErrShort.
func ParseAtomicETH(b []byte) (h AtomicETH, rest []byte, err error) {
	if len(b) < AtomicETHLen {
		return AtomicETH{}, nil, ErrShort
	}
	h = AtomicETH{
		VA: binary.BigEndian.Uint64(b), RKey: binary.BigEndian.Uint32(b[8:]),
		SwapAdd: binary.BigEndian.Uint64(b[12:]), Compare: binary.BigEndian.Uint64(b[20:]),
	}
	return h, b[AtomicETHLen:], nil
}

// AtomicAckETH carries the value the responder's memory held before the atomic.
//
//	+---------------------------------------------------------------+
//	|                   original remote data (8)                    |
//	+---------------------------------------------------------------+
type AtomicAckETH struct{ Original uint64 }

// AppendTo appends the 8 header bytes.
func (h AtomicAckETH) AppendTo(b []byte) []byte {
	return binary.BigEndian.AppendUint64(b, h.Original)
}

// ParseAtomicAckETH reads the header and returns the bytes after it, or ErrShort.
func ParseAtomicAckETH(b []byte) (h AtomicAckETH, rest []byte, err error) {
	if len(b) < AtomicAckETHLen {
		return AtomicAckETH{}, nil, ErrShort
	}
	return AtomicAckETH{binary.BigEndian.Uint64(b)}, b[AtomicAckETHLen:], nil
}

// ImmDt is the immediate data of SEND and WRITE with immediate: four opaque bytes
// that the verbs hand over in network order.
//
//	+---------------------------------------------------------------+
//	|                        immediate data                         |
//	+---------------------------------------------------------------+
type ImmDt uint32

// AppendTo appends the 4 header bytes.
func (h ImmDt) AppendTo(b []byte) []byte { return binary.BigEndian.AppendUint32(b, uint32(h)) }

// ParseImmDt reads the header and returns the bytes after it, or ErrShort.
func ParseImmDt(b []byte) (h ImmDt, rest []byte, err error) {
	if len(b) < ImmDtLen {
		return 0, nil, ErrShort
	}
	return ImmDt(binary.BigEndian.Uint32(b)), b[ImmDtLen:], nil
}

// IETH names the R_Key that SEND with invalidate takes back at the responder.
//
//	+---------------------------------------------------------------+
//	|                             R_Key                             |
//	+---------------------------------------------------------------+
type IETH uint32

// AppendTo appends the 4 header bytes.
func (h IETH) AppendTo(b []byte) []byte { return binary.BigEndian.AppendUint32(b, uint32(h)) }

// ParseIETH reads the header and returns the bytes after it, or ErrShort.
func ParseIETH(b []byte) (h IETH, rest []byte, err error) {
	if len(b) < IETHLen {
		return 0, nil, ErrShort
	}
	return IETH(binary.BigEndian.Uint32(b)), b[IETHLen:], nil
}
