// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"math/bits"
)

// HeaderCap is the most header bytes a frame holds. The longest stack in use is
// Ethernet, 802.1Q, IPv6, UDP, BTH and AtomicETH: 106.
const HeaderCap = 110

// Kind is the type of a frame; it is set when the frame is built or parsed, so that no hop parses
// EtherType and ports again.
type Kind uint8

// Kinds of frame.
const (
	KindOther Kind = iota // anything else, such as ARP or ICMP: never forwarded
	KindRoCE              // UDP port 4791: has a BTH and an ICRC
	KindPFC               // priority-based flow control
	KindMRP               // group registration
)

// Frame flags, bits 0..1 and 4..7 of Frame.flags; the kind sits in bits 2..3.
const (
	flagVLAN    = 1 << 0
	flagIPv6    = 1 << 1
	kindShift   = 2
	flagTrusted = 1 << 4 // the ICRC is not kept: right by construction unless damaged
	flagDamaged = 1 << 5 // a trusted frame that a fault has altered
	flagBlock   = 1 << 6 // block is valid; without it the payload is zeros
	flagFree    = 1 << 7 // in a pool's free list
)

// Frame is one Ethernet frame without FCS: headers in wire order, payload by
// reference, ICRC beside them. It has exactly one owner (a machine's queue, a link,
// or the handler that runs), comes from a Pool and goes back to it.
//
// The struct is two cache lines. A hop of a unicast packet or acknowledgement reads
// only the first: 6 bytes of metadata and Ethernet to AETH of an untagged IPv4 frame.
// The ICRC and the payload are in the second, and flags tell when it is needed.
//
// The fields of such a frame from the IP header on lie at multiples of their size, so that none is in two pieces of
// a copy: the processor waits for both to reach the cache when it is read.
type Frame struct {
	n     uint8  // header bytes in h
	flags uint8  // see above
	pay   uint16 // payload bytes, without pad and ICRC
	_     uint16
	h     [HeaderCap]byte
	icrc  uint32
	block *Block
}

// Kind returns the type of the frame.
func (f *Frame) Kind() Kind { return Kind(f.flags >> kindShift & 3) }

// IPv6 reports whether the frame has an IPv6 header.
func (f *Frame) IPv6() bool { return f.flags&flagIPv6 != 0 }

// Header returns the header bytes in wire order. They must not be written to.
func (f *Frame) Header() []byte { return f.h[:f.n] }

// PayloadLen returns the payload bytes, without pad and ICRC.
func (f *Frame) PayloadLen() int { return int(f.pay) }

// Payload returns the payload block, or nil when there is none or it is phantom.
func (f *Frame) Payload() *Block {
	if f.flags&flagBlock == 0 {
		return nil
	}
	return f.block
}

// PayloadBytes returns the payload, which must not be written to, or nil if it has none
// or reads as zeros.
func (f *Frame) PayloadBytes() []byte {
	if f.flags&flagBlock == 0 {
		return nil
	}
	return f.block.Bytes()
}

// Phantom reports whether the payload has a length but no bytes; it reads as zeros.
func (f *Frame) Phantom() bool { return f.pay != 0 && f.flags&flagBlock == 0 }

// Len returns the frame's bytes without FCS, padded to the Ethernet minimum.
func (f *Frame) Len() int { return max(MinFrameLen, f.unpadded()) }

// WireLen returns the size of the frame on the wire: Len, FCS, preamble and gap (GEN-6).
func (f *Frame) WireLen() int { return f.Len() + LinkOverhead }

func (f *Frame) unpadded() int {
	n := int(f.n) + int(f.pay)
	if f.flags>>kindShift&3 == uint8(KindRoCE) {
		n = int(f.n) + (int(f.pay)+3)&^3 + ICRCLen
	}
	return n
}

// Offsets of the headers. They are sums, not branches: (flags&1)*4 is the VLAN tag
// and (flags&2)*10 the 20 bytes by which an IPv6 header is longer.

func (f *Frame) ipOff() int  { return EthernetLen + int(f.flags&flagVLAN)*4 }
func (f *Frame) udpOff() int { return f.ipOff() + IPv4Len + int(f.flags&flagIPv6)*10 }
func (f *Frame) bthOff() int { return f.udpOff() + UDPLen }
func (f *Frame) dstOff() int { return f.ipOff() + 16 + int(f.flags&flagIPv6)*10 }
func (f *Frame) srcOff() int { return f.ipOff() + 12 + int(f.flags&flagIPv6)*4 }

// DstIP returns the destination address: all of an IPv4 address, the last four
// bytes of an IPv6 address of the fabric's prefix.
func (f *Frame) DstIP() uint32 { o := f.dstOff(); return binary.BigEndian.Uint32(f.h[o : o+4]) }

// SrcIP returns the source address in the form that DstIP uses.
func (f *Frame) SrcIP() uint32 { o := f.srcOff(); return binary.BigEndian.Uint32(f.h[o : o+4]) }

// Traffic returns the TOS byte or traffic class: DSCP in bits 7..2, ECN in bits 1..0.
func (f *Frame) Traffic() uint8 {
	o := f.ipOff()
	if f.flags&flagIPv6 != 0 {
		return f.h[o]<<4 | f.h[o+1]>>4
	}
	return f.h[o+1]
}

// ECN returns the explicit congestion notification code point.
func (f *Frame) ECN() uint8 { return f.Traffic() & 3 }

// PCP returns the priority of the 802.1Q tag, and whether there is a tag.
func (f *Frame) PCP() (p uint8, tagged bool) {
	return f.h[EthernetLen] >> 5, f.flags&flagVLAN != 0
}

// TTL returns the time to live or hop limit.
func (f *Frame) TTL() uint8 { return f.h[f.ttlOff()] }

func (f *Frame) ttlOff() int { return f.ipOff() + 8 - int(f.flags&flagIPv6)/2 }

// SrcPort returns the UDP source port.
func (f *Frame) SrcPort() uint16 { o := f.udpOff(); return binary.BigEndian.Uint16(f.h[o : o+2]) }

// OpCode returns the BTH's opcode.
func (f *Frame) OpCode() OpCode { return OpCode(f.h[f.bthOff()]) }

// PadCount returns the BTH's pad count.
func (f *Frame) PadCount() int { return int(f.h[f.bthOff()+1] >> 4 & 3) }

// Solicited reports whether the BTH's solicited event bit is set.
func (f *Frame) Solicited() bool { return f.h[f.bthOff()+1]&0x80 != 0 }

// Version returns the BTH's transport version, which is 0.
func (f *Frame) Version() uint8 { return f.h[f.bthOff()+1] & 0xf }

// PKey returns the BTH's partition key.
func (f *Frame) PKey() uint16 { o := f.bthOff() + 2; return binary.BigEndian.Uint16(f.h[o : o+2]) }

// DestQP returns the BTH's destination queue pair.
func (f *Frame) DestQP() QPN {
	o := f.bthOff() + 4
	return QPN(binary.BigEndian.Uint32(f.h[o:o+4])) & QPNMask
}

// Transport returns the fields of the BTH that a receiver checks first, read together: opcode,
// transport version, partition key and destination queue pair.
func (f *Frame) Transport() (op OpCode, version uint8, pkey uint16, dst QPN) {
	o := f.bthOff()
	v := binary.BigEndian.Uint64(f.h[o : o+8])
	return OpCode(v >> 56), uint8(v>>48) & 0xf, uint16(v >> 32), QPN(v) & QPNMask
}

// AckReq reports whether the BTH's acknowledge request bit is set.
func (f *Frame) AckReq() bool { return f.h[f.bthOff()+8]&0x80 != 0 }

// PSN returns the BTH's packet sequence number.
func (f *Frame) PSN() PSN {
	o := f.bthOff() + 8
	return PSN(binary.BigEndian.Uint32(f.h[o:o+4])) & PSNMask
}

// ext returns the extension headers, which follow the BTH.
func (f *Frame) ext() []byte { return f.h[f.bthOff()+BTHLen : f.n] }

// AETH returns the acknowledge header that follows the BTH of a response.
func (f *Frame) AETH() AETH {
	o := f.bthOff() + BTHLen
	v := binary.BigEndian.Uint32(f.h[o : o+4])
	return AETH{Syndrome: Syndrome(v >> 24), MSN: v & 0xffffff}
}

// RETH returns the RDMA header of a WRITE or READ request.
func (f *Frame) RETH() RETH {
	h, _, _ := ParseRETH(f.ext())
	return h
}

// DETH returns the datagram header of a UD packet.
func (f *Frame) DETH() DETH {
	h, _, _ := ParseDETH(f.ext())
	return h
}

// AtomicETH returns the header of COMPARE_SWAP and FETCH_ADD.
func (f *Frame) AtomicETH() AtomicETH {
	h, _, _ := ParseAtomicETH(f.ext())
	return h
}

// AtomicAckETH returns the header of ATOMIC_ACKNOWLEDGE, which ends its headers.
func (f *Frame) AtomicAckETH() AtomicAckETH {
	return AtomicAckETH{binary.BigEndian.Uint64(f.h[f.n-AtomicAckETHLen : f.n])}
}

// IPHeader returns the bytes of the IP header: 20 or 40.
func (f *Frame) IPHeader() []byte { return f.h[f.ipOff():f.udpOff()] }

// Imm returns the immediate data (or the R_Key of an IETH), which always ends the headers.
func (f *Frame) Imm() ImmDt { return ImmDt(binary.BigEndian.Uint32(f.h[f.n-4 : f.n])) }

// PFC returns the contents of a pause frame.
func (f *Frame) PFC() PFC {
	h, _ := ParsePFC(f.h[:PFCLen])
	return h
}

// Mix folds the frame as it is (headers, payload, fate of its ICRC) into a running
// 64-bit digest.
func (f *Frame) Mix(d uint64) uint64 {
	d = mum(d^mixA, f.mixState()^mixB)
	n := int(f.n)
	i := 0
	for ; i+16 <= n; i += 16 {
		w := f.h[i : i+16]
		d = mum(binary.LittleEndian.Uint64(w)^mixA, binary.LittleEndian.Uint64(w[8:])^d)
	}
	if i < n {
		var last [16]byte
		copy(last[:], f.h[i:n])
		d = mum(binary.LittleEndian.Uint64(last[:])^mixA, binary.LittleEndian.Uint64(last[8:])^d)
	}
	if f.flags&flagBlock != 0 {
		if h := f.block.Hash(); h != 0 { // zeros are the same with a block and without
			d = mum(d^mixA, h^mixB)
		}
	}
	if f.flags&flagTrusted == 0 && f.Kind() == KindRoCE {
		d = mum(d^mixA, uint64(f.icrc)^mixB)
	}
	return d
}

// mixState returns the state of a frame outside its bytes, with which Mix begins.
func (f *Frame) mixState() uint64 {
	return uint64(f.n)<<32 | uint64(f.pay)<<8 | uint64(f.flags&(flagDamaged|flagTrusted))
}

// MixWord folds one more number into a digest.
func MixWord(d, v uint64) uint64 { return mum(d^mixA, v^mixB) }

const mixA, mixB = 0xa0761d6478bd642f, 0xe7037ed1a0b428db

// mum multiplies to 128 bits and folds: fast, dependent on order, not cryptographic.
func mum(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
