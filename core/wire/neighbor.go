// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Sizes of address resolution, after the Ethernet header.
const (
	ARPLen = 28
	NDLen  = 32 // ICMPv6 header, target and one link-layer address option
)

// ARP operations.
const (
	ARPRequest uint16 = 1
	ARPReply   uint16 = 2
)

// ARP is address resolution for IPv4 over Ethernet (RFC 826).
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-------------------------------+-------------------------------+
//	|      hardware type 1          |     protocol type 0x0800      |
//	+---------------+---------------+-------------------------------+
//	|       6       |       4       |           operation           |
//	+---------------+---------------+-------------------------------+
//	|                     sender MAC (6)                            |
//	+                               +-------------------------------+
//	|                               |      sender IP (4)            |
//	+-------------------------------+-------------------------------+
//	|                               |      target MAC (6)           |
//	+-------------------------------+                               +
//	|                                                               |
//	+---------------------------------------------------------------+
//	|                      target IP (4)                            |
//	+---------------------------------------------------------------+
type ARP struct {
	Op        uint16
	SenderMAC MAC
	SenderIP  uint32
	TargetMAC MAC // zero in a request
	TargetIP  uint32
}

// AppendTo appends the 28 bytes.
func (h ARP) AppendTo(b []byte) []byte {
	b = append(b, 0, 1, 8, 0, 6, 4)
	b = binary.BigEndian.AppendUint16(b, h.Op)
	b = append(b, h.SenderMAC[:]...)
	b = binary.BigEndian.AppendUint32(b, h.SenderIP)
	b = append(b, h.TargetMAC[:]...)
	return binary.BigEndian.AppendUint32(b, h.TargetIP)
}

// ParseARP reads the 28 bytes and returns the bytes after them (padding). It refuses other hardware and
// protocols.
func ParseARP(b []byte) (h ARP, rest []byte, err error) {
	if len(b) < ARPLen {
		return ARP{}, nil, ErrShort
	}
	if binary.BigEndian.Uint32(b[0:4]) != 0x0001_0800 || b[4] != 6 || b[5] != 4 {
		return ARP{}, nil, ErrFormat
	}
	h = ARP{Op: binary.BigEndian.Uint16(b[6:8]), SenderIP: binary.BigEndian.Uint32(b[14:18]), TargetIP: binary.BigEndian.Uint32(b[24:28])}
	copy(h.SenderMAC[:], b[8:14])
	copy(h.TargetMAC[:], b[18:24])
	return h, b[ARPLen:], nil
}

// Neighbor discovery messages and their options (RFC 4861 §4.3, §4.4, §4.6.1).
const (
	NDSolicitation  uint8 = 135
	NDAdvertisement uint8 = 136

	protocolICMPv6 = 58
	ndSourceOption = 1
	ndTargetOption = 2
)

// ND is a neighbor solicitation or advertisement with its link-layer address option.
// Advertisements are solicited ones that override what the receiver knew.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+---------------+-------------------------------+
//	|   135 or 136  |       0       |           checksum            |
//	+-+-+-+---------+---------------+-------------------------------+
//	|R|S|O|                      reserved                           |
//	+-+-+-+---------------------------------------------------------+
//	|                      target address (16)                      |
//	+---------------+---------------+-------------------------------+
//	|    1 or 2     |       1       |                               |
//	+---------------+---------------+                               +
//	|                  link-layer address (6)                       |
//	+---------------------------------------------------------------+
type ND struct {
	Type   uint8
	Target [16]byte
	MAC    MAC // of the sender of a solicitation, of the target of an advertisement
}

// ndFlags of an advertisement: solicited and override.
const ndFlags = 0x6000_0000

// AppendTo appends the 32 bytes. The checksum covers the IPv6 addresses of the packet.
func (h ND) AppendTo(b []byte, src, dst [16]byte) []byte {
	at := len(b)
	flags, option := uint32(0), byte(ndSourceOption)
	if h.Type == NDAdvertisement {
		flags, option = ndFlags, ndTargetOption
	}
	b = append(b, h.Type, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, flags)
	b = append(b, h.Target[:]...)
	b = append(b, option, 1)
	b = append(b, h.MAC[:]...)
	binary.BigEndian.PutUint16(b[at+2:], ^icmp6Sum(b[at:], src, dst))
	return b
}

// ParseND reads a message, checks its checksum and returns the bytes after the option. A solicitation
// without the option, which a host sends to find out whether an address is free, is refused, and so is
// every message of another type.
func ParseND(b []byte, src, dst [16]byte) (h ND, rest []byte, err error) {
	if len(b) < NDLen {
		return ND{}, nil, ErrShort
	}
	option := byte(ndSourceOption)
	switch b[0] {
	case NDSolicitation:
	case NDAdvertisement:
		option = ndTargetOption
	default:
		return ND{}, nil, ErrFormat
	}
	if b[1] != 0 || b[24] != option || b[25] != 1 {
		return ND{}, nil, ErrFormat
	}
	if icmp6Sum(b, src, dst) != 0xffff {
		return ND{}, nil, ErrChecksum
	}
	h.Type = b[0]
	copy(h.Target[:], b[8:24])
	copy(h.MAC[:], b[26:32])
	return h, b[NDLen:], nil
}

// icmp6Sum returns the ones' complement sum of a message and its pseudo header.
func icmp6Sum(b []byte, src, dst [16]byte) uint16 {
	return fold(sum16(src[:]) + sum16(dst[:]) + uint32(len(b)) + protocolICMPv6 + sum16(b))
}

// buildARP makes the frame an answer to a request: the target's address belongs to mac.
func (f *Frame) buildARP(request ARP, mac MAC) {
	b := Ethernet{Dst: request.SenderMAC, Src: mac, EtherType: EtherTypeARP}.AppendTo(f.h[:0])
	b = ARP{Op: ARPReply, SenderMAC: mac, SenderIP: request.TargetIP, TargetMAC: request.SenderMAC, TargetIP: request.SenderIP}.AppendTo(b)
	f.n, f.pay, f.flags = uint8(len(b)), 0, uint8(KindOther)<<kindShift
}

// buildND makes the frame an answer to a solicitation from src: the target belongs to mac.
func (f *Frame) buildND(request ND, src [16]byte, mac MAC) {
	b := Ethernet{Dst: request.MAC, Src: mac, EtherType: EtherTypeIPv6}.AppendTo(f.h[:0])
	b = append(b, 0x60, 0, 0, 0, 0, NDLen, protocolICMPv6, 255)
	b = append(append(b, request.Target[:]...), src[:]...)
	b = ND{Type: NDAdvertisement, Target: request.Target, MAC: mac}.AppendTo(b, request.Target, src)
	f.n, f.pay, f.flags = uint8(len(b)), 0, uint8(KindOther)<<kindShift
}

// Ask is a frame that asks for the MAC address of an address of the fabric.
type Ask struct {
	IP  uint32 // whose address is asked for
	arp ARP
	nd  ND
	src [16]byte
	v6  bool
}

// Asks returns the question of a frame that is an ARP request or a neighbor solicitation; ok is
// false for any other. Ask.Answer builds the reply.
func (f *Frame) Asks() (q Ask, ok bool) {
	var raw [neighborMax]byte
	var kind uint16
	switch q.arp, q.nd, q.src, kind = f.neighbor(&raw); kind {
	case EtherTypeARP:
		q.IP = q.arp.TargetIP
		return q, q.arp.Op == ARPRequest && q.arp.SenderIP != 0 && q.arp.SenderIP != q.IP
	case EtherTypeIPv6:
		q.v6, q.IP = true, binary.BigEndian.Uint32(q.nd.Target[12:])
		return q, q.nd.Type == NDSolicitation && [12]byte(q.nd.Target[:12]) == ipv6Prefix && q.nd.Target == IPv6Of(q.IP)
	}
	return Ask{}, false
}

// IPv6 reports whether it is a neighbor solicitation.
func (q Ask) IPv6() bool { return q.v6 }

// Sender returns the address of the host that asks, or 0 if that is not an address of the
// fabric's family.
func (q Ask) Sender() uint32 {
	if !q.v6 {
		return q.arp.SenderIP
	}
	if ip := binary.BigEndian.Uint32(q.src[12:]); q.src == IPv6Of(ip) {
		return ip
	}
	return 0
}

// Answer makes f the reply that says mac.
func (q Ask) Answer(f *Frame, mac MAC) {
	if q.v6 {
		f.buildND(q.nd, q.src, mac)
	} else {
		f.buildARP(q.arp, mac)
	}
}

// SrcMAC returns the source address.
func (f *Frame) SrcMAC() MAC { return *(*MAC)(f.h[6:12]) }

// BuildAsk makes the frame a question of sender's for the MAC address of target: an ARP
// request, or a neighbor solicitation to the target's solicited-node group.
func (f *Frame) BuildAsk(ipv6 bool, mac MAC, sender, target uint32) {
	var b []byte
	if ipv6 {
		src, dst, node := IPv6Of(sender), IPv6Of(target), [16]byte{0xff, 0x02, 11: 1, 12: 0xff}
		copy(node[13:], dst[13:])
		b = Ethernet{Dst: MAC{0x33, 0x33, 0xff, dst[13], dst[14], dst[15]}, Src: mac, EtherType: EtherTypeIPv6}.AppendTo(f.h[:0])
		b = append(b, 0x60, 0, 0, 0, 0, NDLen, protocolICMPv6, 255)
		b = append(append(b, src[:]...), node[:]...)
		b = ND{Type: NDSolicitation, Target: dst, MAC: mac}.AppendTo(b, src, node)
	} else {
		all := MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		b = Ethernet{Dst: all, Src: mac, EtherType: EtherTypeARP}.AppendTo(f.h[:0])
		b = ARP{Op: ARPRequest, SenderMAC: mac, SenderIP: sender, TargetIP: target}.AppendTo(b)
	}
	f.n, f.pay, f.flags = uint8(len(b)), 0, uint8(KindOther)<<kindShift
}

// Tells returns the MAC address that an ARP packet or a neighbor solicitation or advertisement
// gives for ip.
func (f *Frame) Tells(ip uint32) (mac MAC, ok bool) {
	var raw [neighborMax]byte
	arp, nd, src, kind := f.neighbor(&raw)
	switch kind {
	case EtherTypeARP:
		return arp.SenderMAC, arp.SenderIP == ip
	case EtherTypeIPv6:
		who := nd.Target
		if nd.Type == NDSolicitation {
			who = src
		}
		return nd.MAC, who == IPv6Of(ip)
	}
	return MAC{}, false
}

// neighborMax is the longest frame of address resolution.
const neighborMax = EthernetLen + IPv6Len + NDLen

// neighbor reads a frame of address resolution; kind is the EtherType, 0 if it is none.
func (f *Frame) neighbor(raw *[neighborMax]byte) (arp ARP, nd ND, src [16]byte, kind uint16) {
	if f.Kind() != KindOther || f.flags&flagVLAN != 0 {
		return arp, nd, src, 0
	}
	b := raw[:copy(raw[:], f.h[:f.n])]
	if p := f.Payload(); p != nil {
		b = raw[:len(b)+copy(raw[len(b):], p.Bytes())]
	}
	eth, rest, err := ParseEthernet(b)
	if err != nil {
		return arp, nd, src, 0
	}
	switch eth.EtherType {
	case EtherTypeARP:
		arp, _, err = ParseARP(rest)
	case EtherTypeIPv6:
		h, body, e := ParseIPv6(rest)
		if e != nil || h.NextHeader != protocolICMPv6 || h.HopLimit != 255 {
			return arp, nd, src, 0
		}
		src = h.Src.As16()
		nd, _, err = ParseND(body, src, h.Dst.As16())
	default:
		return arp, nd, src, 0
	}
	if err != nil {
		return arp, nd, src, 0
	}
	return arp, nd, src, eth.EtherType
}
