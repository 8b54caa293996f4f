// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// DstAddr returns the whole destination address, that of IPv4 as ::ffff:a.b.c.d.
func (f *Frame) DstAddr() (a [16]byte) {
	o := f.ipOff()
	if f.flags&flagIPv6 != 0 {
		return [16]byte(f.h[o+24 : o+40])
	}
	a[10], a[11] = 0xff, 0xff
	copy(a[12:], f.h[o+16:o+20])
	return a
}

// SetGroup readdresses a RoCE packet to a multicast address of its family, given as DstAddr gives it: IP and MAC
// address, IPv4 checksum, and ICRC, which stays wrong if it was wrong before.
func (f *Frame) SetGroup(to [16]byte) {
	at, a := f.dstOff(), to[12:]
	if f.flags&flagIPv6 != 0 {
		at, a = f.ipOff()+24, to[:]
	}
	dst := f.h[at : at+len(a)]
	if f.flags&flagTrusted == 0 {
		var x [16]byte
		for i := range a {
			x[i] = dst[i] ^ a[i]
		}
		f.icrc ^= f.icrcDelta(at, x[:len(a)])
	}
	if f.flags&flagIPv6 == 0 { // RFC 1624, equation 3
		c := f.h[f.ipOff()+10:][:2]
		sum := halves(^binary.BigEndian.Uint32(dst)) + halves(binary.BigEndian.Uint32(a))
		binary.BigEndian.PutUint16(c, ^fold(uint32(^binary.BigEndian.Uint16(c))+sum))
	}
	copy(dst, a)
	f.SetDstMAC(MulticastMAC(f.IPv6(), binary.BigEndian.Uint32(to[12:])))
}

// Regroup makes of an untagged IPv6 RoCE packet to a group of another prefix than the fabric's, which Parse leaves as
// KindOther, the packet to the group that GroupOf gives, and puts f back. ok is false, and f still the caller's, if it
// is another kind of packet, or not from the fabric's prefix. The bytes are put together in scratch, which is grown if need be and
// returned.
func (p *Pool) Regroup(f *Frame, scratch []byte) (g *Frame, b []byte, ok bool) {
	const ip = EthernetLen
	if f.Kind() != KindOther || f.n < MinFrameLen || binary.BigEndian.Uint16(f.h[ip-2:ip]) != EtherTypeIPv6 || f.h[ip+6] != ProtocolUDP {
		return nil, scratch, false
	}
	b = f.AppendTo(scratch[:0])
	h, dgram, err := ParseIPv6(b[ip:])
	if err != nil {
		return nil, b, false
	}
	_, src := IPOf(h.Src)
	group, multicast := GroupOf(h.Dst.As16())
	if !src || !multicast {
		return nil, b, false
	}
	g = p.Get()
	g.flags |= flagIPv6
	if err := p.parseUDP(g, b, ip+IPv6Len, dgram); err != nil || g.Kind() != KindRoCE {
		p.Put(g)
		return nil, b, false
	}
	g.SetGroup(IPv6Of(group))
	p.Put(f)
	return g, b, true
}
