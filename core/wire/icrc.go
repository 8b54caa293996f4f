// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// ICRCLen is the size of the invariant CRC, the last bytes of the UDP payload.
const ICRCLen = 4

// icrcSeed is the CRC state after the eight 0xff bytes that stand in for the
// InfiniBand local route header.
const icrcSeed uint32 = 0xdebb20e3

// maskICRC sets the fields that the ICRC leaves out to ones, in a copy of the headers from the IP
// header on: TOS, TTL and checksum of IPv4; traffic class, flow label and hop limit of IPv6; the UDP
// checksum; byte 4 of the BTH (InfiniBand annex A17.3.3).
func maskICRC(b []byte, v6 bool) {
	udp := IPv4Len
	if v6 {
		udp = IPv6Len
		b[0] |= 0x0f
		b[1], b[2], b[3], b[7] = 0xff, 0xff, 0xff, 0xff
	} else {
		b[1], b[8], b[10], b[11] = 0xff, 0xff, 0xff, 0xff
	}
	b[udp+6], b[udp+7] = 0xff, 0xff
	b[udp+UDPLen+4] = 0xff
}

// ICRC computes the invariant CRC of a RoCEv2 packet given as bytes from the IP header to the
// byte before the ICRC. It is the plain computation over the whole packet, with which tests
// compare the incremental ones. The result is sent least significant byte first. ip
// must hold IP, UDP and BTH.
func ICRC(ip []byte) uint32 {
	v6 := ip[0]>>4 == 6
	n := IPv4Len + UDPLen + BTHLen
	if v6 {
		n = IPv6Len + UDPLen + BTHLen
	}
	var m [IPv6Len + UDPLen + BTHLen]byte
	copy(m[:], ip[:n])
	maskICRC(m[:n], v6)
	s := crc32.Update(^icrcSeed, crc32.IEEETable, m[:n])
	return crc32.Update(s, crc32.IEEETable, ip[n:])
}

// computeICRC puts the ICRC together from the headers as they are now and the raw
// CRC of the payload, which its block computes once however often it is shared. The
// headers are masked in place and put back, which a frame's one owner may do: a copy
// would go to the heap, since hash/crc32 lets its argument escape.
func (f *Frame) computeICRC() uint32 {
	o, u := f.ipOff(), f.udpOff()
	ip, tail := *(*[12]byte)(f.h[o:]), *(*[UDPLen + 5]byte)(f.h[u:])
	maskICRC(f.h[o:f.n], f.flags&flagIPv6 != 0)
	s := crcRaw(icrcSeed, f.h[o:f.n])
	*(*[12]byte)(f.h[o:]), *(*[UDPLen + 5]byte)(f.h[u:]) = ip, tail
	if f.pay != 0 {
		s = crcShift(s, int(f.pay))
		if f.flags&flagBlock != 0 {
			s ^= f.block.rawCRC()
		}
	}
	if pad := -int(f.pay) & 3; pad != 0 {
		s = crcShift(s, pad)
	}
	return ^s
}

// ICRC returns the transmitted ICRC of the frame, which is wrong if the frame is damaged.
func (f *Frame) ICRC() uint32 {
	if f.flags&flagTrusted == 0 {
		return f.icrc
	}
	c := f.computeICRC()
	if f.flags&flagDamaged != 0 {
		c = ^c
	}
	return c
}

// Trusted reports whether the frame does not keep its ICRC, which is right unless a fault has damaged
// the frame.
func (f *Frame) Trusted() bool { return f.flags&flagTrusted != 0 }

// Trust makes a frame as it came off the wire one that does not keep its ICRC (Trusted). What was wrong with
// the ICRC is kept as damage.
func (f *Frame) Trust() {
	if f.Kind() != KindRoCE || f.Trusted() {
		return
	}
	if !f.CheckICRC() {
		f.flags |= flagDamaged
	}
	f.flags |= flagTrusted
	f.icrc = 0
}

// CheckICRC reports whether the ICRC the frame carries fits its bytes. A trusted frame
// answers from its flag; any other is computed afresh.
func (f *Frame) CheckICRC() bool {
	if f.flags&flagTrusted != 0 {
		return f.flags&flagDamaged == 0
	}
	return f.icrc == f.computeICRC()
}

// icrcDelta returns the change of the ICRC when the header bytes from offset off on are XORed with x: a
// function of x and of the number of bytes that follow.
func (f *Frame) icrcDelta(off int, x []byte) uint32 {
	after := int(f.n) - off - len(x) + (int(f.pay)+3)&^3
	return crcShift(crcSmall(x), after)
}

// putICRC writes the wire form of c.
func putICRC(b []byte, c uint32) { binary.LittleEndian.PutUint32(b, c) }
