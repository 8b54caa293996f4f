// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Flow holds the fields below the BTH that the packets of one flow share.
type Flow struct {
	SrcMAC, DstMAC MAC
	VLAN           *VLAN // nil: untagged; its EtherType is filled in
	IPv6           bool
	Label          uint32 // flow label of IPv6, 20 bits
	Src, Dst       uint32
	Traffic        uint8 // DSCP and ECN
	TTL            uint8
	SrcPort        uint16
	DstPort        uint16
}

// Envelope is a Flow in wire order, ready to be copied in front of each packet.
//
// The checksum of its IPv4 header covers the fields that are known already; Seal adds the
// length and the identification.
type Envelope struct {
	h     [EthernetLen + VLANLen + IPv6Len + UDPLen + BTHLen]byte
	n     uint8 // bytes up to the BTH
	flags uint8
}

// NewEnvelope lays the flow out. The kind follows the destination port.
func NewEnvelope(w Flow) (e Envelope) {
	e.Lay(&w)
	return e
}

// Lay makes e the envelope of a flow, as NewEnvelope does.
func (e *Envelope) Lay(w *Flow) {
	*e = Envelope{}
	b := e.layEthernet(w)
	if w.IPv6 {
		b = w.appendIPv6(b)
	} else {
		b = w.appendIPv4(b)
	}
	b = UDP{SrcPort: w.SrcPort, DstPort: w.DstPort}.AppendTo(b)
	e.n = uint8(len(b))
	switch w.DstPort {
	case PortRoCEv2:
		e.flags |= uint8(KindRoCE) << kindShift
	case PortMRP:
		e.flags |= uint8(KindMRP) << kindShift
	}
}

// layEthernet begins the envelope and returns its bytes.
func (e *Envelope) layEthernet(w *Flow) []byte {
	ethertype := EtherTypeIPv4
	if w.IPv6 {
		ethertype = EtherTypeIPv6
		e.flags |= flagIPv6
	}
	eth := Ethernet{Dst: w.DstMAC, Src: w.SrcMAC, EtherType: ethertype}
	if w.VLAN == nil {
		return eth.AppendTo(e.h[:0])
	}
	eth.EtherType = EtherTypeVLAN
	tag := *w.VLAN
	tag.EtherType = ethertype
	e.flags |= flagVLAN
	return tag.AppendTo(eth.AppendTo(e.h[:0]))
}

func (w *Flow) appendIPv4(b []byte) []byte {
	ip := len(b)
	b = append(b, 0x45, w.Traffic, 0, 0, 0, 0, 0x40, 0, w.TTL, ProtocolUDP, 0, 0)
	b = binary.BigEndian.AppendUint32(b, w.Src)
	b = binary.BigEndian.AppendUint32(b, w.Dst)
	binary.BigEndian.PutUint16(b[ip+10:], sumIPv4(b[ip:]))
	return b
}

func (w *Flow) appendIPv6(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(w.Traffic)<<20|w.Label&0xfffff)
	b = append(b, 0, 0, ProtocolUDP, w.TTL)
	src, dst := IPv6Of(w.Src), IPv6Of(w.Dst)
	return append(append(b, src[:]...), dst[:]...)
}

// Start begins a packet of the flow: envelope, BTH and no payload. Extension headers
// and payload follow, then Seal. A payload the frame still holds must have been
// stripped (Pool.Strip).
func (f *Frame) Start(e *Envelope, h BTH) {
	if e.n == EthernetLen+IPv4Len+UDPLen {
		*(*[42]byte)(f.h[:]) = *(*[42]byte)(e.h[:])
	} else {
		copy(f.h[:], e.h[:e.n])
	}
	f.flags, f.pay = e.flags, 0
	h.put(f.h[e.n : e.n+BTHLen])
	f.n = e.n + BTHLen
}

// Connect adds a destination queue pair to the envelope, so that StartNext can start packets to
// it.
func (e *Envelope) Connect(dst QPN) {
	h := BTH{Migrated: true, PKey: PKeyDefault, DestQP: dst}
	h.put(e.h[e.n : e.n+BTHLen])
}

// BTHBits are the bits of a BTH that differ between the packets of a connection.
type BTHBits uint32

// Bits of a BTHBits. The fields AckReq, Selective and Solicited of BTH describe them.
const (
	BitAckReq    BTHBits = 1 << 31
	BitSelective BTHBits = 1 << 24
	BitSolicited BTHBits = 1 << 7 // here, not on the wire
)

// StartNext begins a packet of a connected envelope as Start does. It takes a third of the
// time, since most of the BTH is there already.
func (f *Frame) StartNext(e *Envelope, op OpCode, psn PSN, bits BTHBits) {
	const untagged = EthernetLen + IPv4Len + UDPLen
	n := e.n
	if n == untagged {
		*(*[untagged + BTHLen]byte)(f.h[:]) = *(*[untagged + BTHLen]byte)(e.h[:])
	} else {
		copy(f.h[:], e.h[:n+BTHLen])
	}
	f.flags, f.pay, f.n = e.flags, 0, n+BTHLen
	b := f.h[n : n+BTHLen]
	b[0] = byte(op)
	b[1] |= byte(bits & BitSolicited)
	binary.BigEndian.PutUint32(b[8:12], uint32(bits&^BitSolicited)|uint32(psn&PSNMask))
}

// StartDatagram begins a UDP datagram of the flow that is not RoCE.
func (f *Frame) StartDatagram(e *Envelope) {
	copy(f.h[:], e.h[:e.n])
	f.flags, f.pay, f.n = e.flags, 0, e.n
}

// AddRETH appends the header to a started packet.
func (f *Frame) AddRETH(h RETH) {
	b := f.h[f.n : f.n+RETHLen]
	binary.BigEndian.PutUint64(b, h.VA)
	binary.BigEndian.PutUint32(b[8:], h.RKey)
	binary.BigEndian.PutUint32(b[12:], h.DMALen)
	f.n += RETHLen
}

// AddAETH appends the header to a started packet.
func (f *Frame) AddAETH(h AETH) {
	binary.BigEndian.PutUint32(f.h[f.n:f.n+AETHLen], uint32(h.Syndrome)<<24|h.MSN&0xffffff)
	f.n += AETHLen
}

// AddImm appends immediate data (or an IETH, which has the same shape).
func (f *Frame) AddImm(v ImmDt) {
	binary.BigEndian.PutUint32(f.h[f.n:f.n+ImmDtLen], uint32(v))
	f.n += ImmDtLen
}

// AddCNP appends the 16 reserved bytes of a CNP to a started packet.
func (f *Frame) AddCNP() {
	clear(f.h[f.n : f.n+CNPReservedLen])
	f.n += CNPReservedLen
}

// AddDETH appends the header to a started packet.
func (f *Frame) AddDETH(h DETH) {
	b := f.h[f.n : f.n+DETHLen]
	binary.BigEndian.PutUint32(b, h.QKey)
	binary.BigEndian.PutUint32(b[4:], uint32(h.SrcQP&QPNMask))
	f.n += DETHLen
}

// AddAtomicETH appends the header to a started packet.
func (f *Frame) AddAtomicETH(h AtomicETH) {
	h.AppendTo(f.h[:f.n])
	f.n += AtomicETHLen
}

// AddAtomicAckETH appends the header to a started packet, after its AETH.
func (f *Frame) AddAtomicAckETH(h AtomicAckETH) {
	binary.BigEndian.PutUint64(f.h[f.n:f.n+AtomicAckETHLen], h.Original)
	f.n += AtomicAckETHLen
}

// SetPhantom gives the frame n payload bytes that read as zeros.
func (f *Frame) SetPhantom(n int) { f.pay = uint16(n) }

// SetPayload attaches a filled block, whose reference passes to the frame.
func (f *Frame) SetPayload(b *Block) {
	f.block, f.pay = b, b.n
	f.flags |= flagBlock
}

// Seal completes a started packet: pad count, lengths and checksums. id is the IPv4
// identification. A RoCE packet gets its ICRC, or, if trusted, a flag in its place; any
// other over IPv6 a UDP checksum, which is not optional there (RFC 8200 §8.1).
func (f *Frame) Seal(id uint16, trusted bool) {
	if trusted && f.flags == uint8(KindRoCE)<<kindShift {
		f.sealPlain(id)
		return
	}
	o, u := f.ipOff(), f.udpOff()
	end := int(f.n) + int(f.pay)
	roce := f.Kind() == KindRoCE
	if roce {
		pad := -int(f.pay) & 3
		f.h[u+UDPLen+1] |= byte(pad << 4)
		end += pad + ICRCLen
	}
	binary.BigEndian.PutUint16(f.h[u+4:u+6], uint16(end-u))
	if f.flags&flagIPv6 != 0 {
		binary.BigEndian.PutUint16(f.h[o+4:o+6], uint16(end-u))
	} else {
		f.sealIPv4(o, uint16(end-o), id)
	}
	if roce {
		if trusted {
			f.flags |= flagTrusted
		} else {
			f.icrc = f.computeICRC()
		}
	} else if f.flags&flagIPv6 != 0 {
		c := ^f.udpSum6()
		if c == 0 {
			c = 0xffff // 0 says that there is none
		}
		binary.BigEndian.PutUint16(f.h[u+6:u+8], c)
	}
}

// sealPlain is Seal of a trusted RoCE packet over IPv4 without a tag, which most are. All offsets are constants.
func (f *Frame) sealPlain(id uint16) {
	const o, u = EthernetLen, EthernetLen + IPv4Len
	pad := -int(f.pay) & 3
	f.h[u+UDPLen+1] |= byte(pad << 4)
	end := int(f.n) + int(f.pay) + pad + ICRCLen
	binary.BigEndian.PutUint16(f.h[u+4:u+6], uint16(end-u))
	f.sealIPv4(o, uint16(end-o), id)
	f.flags |= flagTrusted
}

// sealIPv4 adds length and identification to the sum the envelope has of all the rest.
func (f *Frame) sealIPv4(o int, total, id uint16) {
	h := f.h[o : o+IPv4Len]
	binary.BigEndian.PutUint32(h[2:6], uint32(total)<<16|uint32(id))
	sum := uint32(binary.BigEndian.Uint16(h[10:12])) + uint32(total) + uint32(id)
	binary.BigEndian.PutUint16(h[10:12], ^fold(sum))
}

// BuildPFC makes the frame a pause frame.
func (f *Frame) BuildPFC(p PFC) {
	p.AppendTo(f.h[:0])
	f.n, f.pay, f.flags = PFCLen, 0, uint8(KindPFC)<<kindShift
}
