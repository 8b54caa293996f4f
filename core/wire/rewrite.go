// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// DecTTL decrements the time to live or hop limit and updates the IPv4 checksum. It reports
// whether the packet may be forwarded; if not, the frame is unchanged.
func (f *Frame) DecTTL() bool {
	o := f.ttlOff()
	if f.h[o] <= 1 {
		return false
	}
	f.h[o]--
	if f.flags&flagIPv6 == 0 {
		// TTL is the upper byte of its word: taking 1 from it adds 0x100 to the checksum.
		c := f.h[o+2 : o+4]
		s := uint32(binary.BigEndian.Uint16(c)) + 0x100
		binary.BigEndian.PutUint16(c, uint16(s+s>>16))
	}
	return true
}

// Bridge holds the fields that a leaf changes in a packet that it hands from the connection to a group
// to the connection of one member (CEP-23, CEP-24). The change of the ICRC depends only on the
// addresses before and after and on the packet's length, so Apply remembers it from packet to packet
// (GEN-7).
type Bridge struct {
	Dst, Src       uint32
	DestQP         QPN
	DstMAC, SrcMAC MAC

	known          bool // delta is that of oldQP and shape
	oldDst, oldSrc uint32
	sum            uint32 // addition of the changed addresses to an IPv4 checksum; 0: not known
	oldQP          QPN
	shape          uint32 // header length, payload length, family: the delta depends on them
	delta          uint32
}

// Apply rewrites the packet: addresses, destination queue pair, IPv4 checksum and
// ICRC, which is updated by one XOR and thus stays wrong if it was wrong before.
// Neither the payload nor the IP identification is touched.
func (r *Bridge) Apply(f *Frame) {
	q := f.bthOff() + 5
	dst, src := f.h[f.dstOff():][:4], f.h[f.srcOff():][:4]
	oldDst, oldSrc := binary.BigEndian.Uint32(dst), binary.BigEndian.Uint32(src)
	if r.sum == 0 || oldDst != r.oldDst || oldSrc != r.oldSrc {
		r.known, r.oldDst, r.oldSrc = false, oldDst, oldSrc
		r.sum = halves(^oldSrc) + halves(r.Src) + halves(^oldDst) + halves(r.Dst)
	}
	if f.flags&flagTrusted == 0 {
		shape := uint32(f.n)<<16 | uint32(f.pay) | uint32(f.flags&(flagVLAN|flagIPv6))<<24
		if oldQP := QPN(get24(f.h[q : q+3])); !r.known || shape != r.shape || oldQP != r.oldQP {
			r.known, r.shape, r.oldQP = true, shape, oldQP
			r.delta = r.computeDelta(f)
		}
		f.icrc ^= r.delta
	}
	*(*MAC)(f.h[0:6]) = r.DstMAC
	*(*MAC)(f.h[6:12]) = r.SrcMAC
	binary.BigEndian.PutUint32(src, r.Src)
	binary.BigEndian.PutUint32(dst, r.Dst)
	put24(f.h[q:q+3], uint32(r.DestQP))
	if f.flags&flagIPv6 == 0 { // RFC 1624, equation 3
		c := f.h[f.ipOff()+10:][:2]
		binary.BigEndian.PutUint16(c, ^fold(uint32(^binary.BigEndian.Uint16(c))+r.sum))
	}
}

// halves returns the sum of both halves of a word.
func halves(v uint32) uint32 { return v>>16 + v&0xffff }

// computeDelta returns the ICRC change: one run of bytes from the source address to
// the queue pair number, XOR of old and new.
func (r *Bridge) computeDelta(f *Frame) uint32 {
	from, dst, qp := f.srcOff(), f.dstOff(), f.bthOff()+5
	var x [IPv6Len + UDPLen + 8]byte
	binary.BigEndian.PutUint32(x[0:4], r.oldSrc^r.Src)
	binary.BigEndian.PutUint32(x[dst-from:], r.oldDst^r.Dst)
	put24(x[qp-from:], uint32(r.oldQP^r.DestQP))
	return f.icrcDelta(from, x[:qp-from+3])
}

// SetDstMAC replaces the destination address.
func (f *Frame) SetDstMAC(m MAC) { *(*MAC)(f.h[0:6]) = m }

// SetRETH replaces the address and key of a WRITE's first packet, whose length field
// stays, and updates the ICRC.
func (f *Frame) SetRETH(va uint64, rkey uint32) {
	o := f.bthOff() + BTHLen
	b := f.h[o : o+12]
	var x [12]byte
	binary.BigEndian.PutUint64(x[0:8], binary.BigEndian.Uint64(b)^va)
	binary.BigEndian.PutUint32(x[8:12], binary.BigEndian.Uint32(b[8:])^rkey)
	if f.flags&flagTrusted == 0 {
		f.icrc ^= f.icrcDelta(o, x[:])
	}
	binary.BigEndian.PutUint64(b, va)
	binary.BigEndian.PutUint32(b[8:], rkey)
}

// SetECN replaces the ECN code point and updates the IPv4 checksum; the ICRC does not cover it.
func (f *Frame) SetECN(ecn uint8) {
	o := f.ipOff()
	if f.flags&flagIPv6 != 0 {
		f.h[o+1] = f.h[o+1]&^0x30 | ecn&3<<4
		return
	}
	old := f.h[o+1]
	f.h[o+1] = old&^3 | ecn&3
	c := f.h[o+10 : o+12]
	s := uint32(^binary.BigEndian.Uint16(c)) + uint32(^(0x4500 | uint16(old))) + uint32(0x4500|uint16(f.h[o+1]))
	binary.BigEndian.PutUint16(c, ^fold(s))
}

// Damage makes the frame's ICRC wrong, as a bit error on the wire would: bit counts
// from the first bit of the BTH on and wraps at the end of the payload. The caller
// owns the frame; a shared payload is copied first.
func (p *Pool) Damage(f *Frame, bit uint64) {
	if f.Kind() != KindRoCE {
		return
	}
	if f.flags&flagTrusted != 0 {
		f.flags |= flagDamaged
		return
	}
	o := f.bthOff()
	head := uint64(int(f.n)-o) * 8
	bit %= head + uint64(f.pay)*8
	if bit/8 == 4 { // the one byte the ICRC leaves out
		bit += 8
	}
	if bit < head {
		f.h[o+int(bit/8)] ^= 1 << (bit & 7)
		return
	}
	nb := p.Block()
	payload := nb.Fill(int(f.pay))
	if f.Phantom() {
		clear(payload)
	} else {
		copy(payload, f.block.Bytes())
		p.unref(f.block)
	}
	payload[(bit-head)/8] ^= 1 << (bit & 7)
	f.SetPayload(nb)
}
