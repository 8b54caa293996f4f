// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// AppendTo appends the bytes that are sent for the frame, without FCS: headers, payload
// (zeros if phantom), pad, ICRC, and zeros up to the Ethernet minimum.
func (f *Frame) AppendTo(b []byte) []byte {
	at := len(b)
	b = append(b, f.h[:f.n]...)
	if f.flags&flagBlock != 0 {
		b = append(b, f.block.Bytes()...)
	} else {
		b = appendZeros(b, int(f.pay))
	}
	if f.Kind() == KindRoCE {
		b = appendZeros(b, -int(f.pay)&3)
		b = binary.LittleEndian.AppendUint32(b, f.ICRC())
	}
	return appendZeros(b, MinFrameLen-(len(b)-at))
}

func appendZeros(b []byte, n int) []byte {
	for range n {
		b = append(b, 0)
	}
	return b
}

// Parse makes a frame of the bytes of one Ethernet frame without FCS. A frame that is not
// well-formed RoCE, PFC or MRP becomes KindOther if its headers are consistent, so that a
// receiver can count it; otherwise Parse returns an error. An IPv6 packet from outside the
// fabric's prefix is KindOther, and so are IGMP and MLD.
func (p *Pool) Parse(b []byte) (*Frame, error) {
	f := p.Get()
	if err := p.parse(f, b); err != nil {
		p.Put(f)
		return nil, err
	}
	return f, nil
}

func (p *Pool) parse(f *Frame, b []byte) error {
	eth, rest, err := ParseEthernet(b)
	if err != nil {
		return err
	}
	if eth.EtherType == EtherTypeVLAN {
		var tag VLAN
		if tag, rest, err = ParseVLAN(rest); err != nil {
			return err
		}
		f.flags |= flagVLAN
		eth.EtherType = tag.EtherType
	}
	head := len(b) - len(rest)
	switch eth.EtherType {
	case EtherTypeMACControl:
		if _, err := ParsePFC(b); err == nil && f.flags == 0 {
			return p.set(f, b[:PFCLen], nil, KindPFC)
		}
	case EtherTypeIPv4:
		if isIGMP(rest) {
			break // its header has an option; Membership reads it
		}
		h, dgram, err := ParseIPv4(rest)
		if err != nil {
			return err
		}
		if h.Protocol == ProtocolUDP {
			return p.parseUDP(f, b, head+IPv4Len, dgram)
		}
	case EtherTypeIPv6:
		h, dgram, err := ParseIPv6(rest)
		if err != nil {
			return err
		}
		_, src := IPOf(h.Src)
		_, dst := IPOf(h.Dst)
		if src && dst && h.NextHeader == ProtocolUDP {
			f.flags |= flagIPv6
			return p.parseUDP(f, b, head+IPv6Len, dgram)
		}
		if isMLD(&h) {
			f.flags |= flagIPv6
		}
	}
	// A RoCE packet of the largest MTU to a group of another prefix has to fit (Regroup).
	n := min(len(b), max(MinFrameLen, min(len(b)-BlockCap, HeaderCap-VLANLen)))
	return p.set(f, b[:n], b[n:], KindOther)
}

// parseUDP reads a datagram whose UDP header starts at offset u of b.
func (p *Pool) parseUDP(f *Frame, b []byte, u int, dgram []byte) error {
	udp, body, err := ParseUDP(dgram)
	if err != nil {
		return err
	}
	if int(udp.Length) != len(dgram) {
		return ErrLength
	}
	switch udp.DstPort {
	case PortMRP:
		if err := p.set(f, b[:u+UDPLen], body, KindMRP); err != nil {
			return err
		}
		if f.flags&flagIPv6 != 0 && f.udpSum6() != 0xffff {
			return ErrChecksum
		}
		return nil
	case PortRoCEv2:
		return p.parseRoCE(f, b, u+UDPLen, body)
	}
	return p.set(f, b[:u+UDPLen], body, KindOther)
}

// parseRoCE reads the packet whose BTH starts at offset o of b; body ends with the ICRC.
func (p *Pool) parseRoCE(f *Frame, b []byte, o int, body []byte) error {
	if len(body) < BTHLen+ICRCLen {
		return ErrShort
	}
	head := int(OpCode(body[0]).Info().Header)
	pad := int(body[1] >> 4 & 3)
	if len(body) > head+ICRCLen {
		head += sackOf(OpCode(body[0]), body[head:len(body)-ICRCLen])
	}
	n := len(body) - ICRCLen - head - pad
	if n < 0 {
		return ErrShort
	}
	if (n+pad)&3 != 0 {
		return ErrLength // the pad count must bring the payload to whole words
	}
	for _, z := range body[head+n : head+n+pad] {
		if z != 0 {
			return ErrFormat
		}
	}
	if err := p.set(f, b[:o+head], body[head:head+n], KindRoCE); err != nil {
		return err
	}
	f.icrc = binary.LittleEndian.Uint32(body[len(body)-ICRCLen:])
	return nil
}

// set stores headers and payload; f.flags already has the bits for VLAN and IPv6.
func (p *Pool) set(f *Frame, head, payload []byte, k Kind) error {
	if len(head) > HeaderCap || len(payload) > BlockCap {
		return ErrTooLong
	}
	f.n = uint8(copy(f.h[:], head))
	f.pay = 0
	f.flags |= uint8(k) << kindShift
	if len(payload) > 0 {
		blk := p.Block()
		copy(blk.Fill(len(payload)), payload)
		f.SetPayload(blk)
	}
	return nil
}
