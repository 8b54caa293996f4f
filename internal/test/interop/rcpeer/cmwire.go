// SPDX-License-Identifier: Apache-2.0

package rcpeer

import (
	"encoding/binary"
	"net/netip"
)

// Attribute IDs of communication management (InfiniBand specification, volume 1, 12.6.1 and table 99).
const (
	cmREQ     = 0x10
	cmMRA     = 0x11
	cmREJ     = 0x12
	cmREP     = 0x13
	cmRTU     = 0x14
	cmDREQ    = 0x15
	cmDREP    = 0x16
	cmSIDRReq = 0x17
	cmSIDRRep = 0x18
)

const (
	madLen  = 256
	madHead = 24
	dethLen = 8

	opUDSend = 0x64
	gsiQPN   = 1
	gsiQKey  = 0x80010000
)

// span is a field of a message: its first bit behind the common header, and the number of its bits, at
// most 64.
type span struct {
	name string
	at   int
	bits int
}

// layouts are the fields of each message, by byte and bit as the tables of 12.6 and 12.11 (SIDR) have them.
var layouts = map[uint16][]span{
	cmREQ: {
		{"local id", 0 * 8, 32}, {"service", 8 * 8, 64}, {"guid", 16 * 8, 64}, {"qkey", 28 * 8, 32}, {"qpn", 32 * 8, 24}, {"responder resources", 35 * 8, 8},
		{"initiator depth", 39 * 8, 8}, {"remote timeout", 43 * 8, 5}, {"transport", 43*8 + 5, 2}, {"flow control", 43*8 + 7, 1}, {"psn", 44 * 8, 24},
		{"local timeout", 47 * 8, 5}, {"retries", 47*8 + 5, 3}, {"pkey", 48 * 8, 16}, {"mtu", 50 * 8, 4}, {"rnr retries", 50*8 + 5, 3}, {"cm retries", 51 * 8, 4},
		{"srq", 51*8 + 4, 1}, {"local lid", 52 * 8, 16}, {"remote lid", 54 * 8, 16}, {"local gid", 56 * 8, 64}, {"local gid, rest", 64 * 8, 64},
		{"remote gid", 72 * 8, 64}, {"remote gid, rest", 80 * 8, 64}, {"flow label", 88 * 8, 20}, {"rate", 91*8 + 2, 6}, {"traffic class", 92 * 8, 8},
		{"hop limit", 93 * 8, 8}, {"sl", 94 * 8, 4}, {"subnet local", 94*8 + 4, 1}, {"ack timeout", 95 * 8, 5},
	},
	cmMRA: {{"local id", 0, 32}, {"remote id", 4 * 8, 32}, {"kind", 8 * 8, 2}, {"timeout", 9 * 8, 5}},
	cmREJ: {{"local id", 0, 32}, {"remote id", 4 * 8, 32}, {"kind", 8 * 8, 2}, {"reason", 10 * 8, 16}},
	cmREP: {
		{"local id", 0, 32}, {"remote id", 4 * 8, 32}, {"qkey", 8 * 8, 32}, {"qpn", 12 * 8, 24}, {"psn", 20 * 8, 24}, {"responder resources", 24 * 8, 8},
		{"initiator depth", 25 * 8, 8}, {"ack delay", 26 * 8, 5}, {"flow control", 26*8 + 7, 1}, {"rnr retries", 27 * 8, 3}, {"srq", 27*8 + 3, 1}, {"guid", 28 * 8, 64},
	},
	cmRTU:     {{"local id", 0, 32}, {"remote id", 4 * 8, 32}},
	cmDREQ:    {{"local id", 0, 32}, {"remote id", 4 * 8, 32}, {"qpn", 8 * 8, 24}},
	cmDREP:    {{"local id", 0, 32}, {"remote id", 4 * 8, 32}},
	cmSIDRReq: {{"local id", 0, 32}, {"pkey", 4 * 8, 16}, {"service", 8 * 8, 64}},
	cmSIDRRep: {{"local id", 0, 32}, {"status", 4 * 8, 8}, {"qpn", 8 * 8, 24}, {"service", 12 * 8, 64}, {"qkey", 20 * 8, 32}},
}

// privateAt is the offset of a message's private data behind the common header. It goes to the end of the
// datagram.
var privateAt = map[uint16]int{
	cmREQ: 140, cmMRA: 10, cmREJ: 84, cmREP: 36, cmRTU: 8, cmDREQ: 12, cmDREP: 8, cmSIDRReq: 16, cmSIDRRep: 96,
}

// message is one of communication management. Fields that are not in it are 0.
type message struct {
	attribute uint16
	tid       uint64
	fields    map[string]uint64
	private   []byte
}

// put writes bits from the most significant on.
func put(b []byte, at, bits int, v uint64) {
	for i := range bits {
		if v>>(bits-1-i)&1 != 0 {
			b[(at+i)/8] |= 0x80 >> ((at + i) % 8)
		}
	}
}

func get(b []byte, at, bits int) (v uint64) {
	for i := at; i < at+bits; i++ {
		v = v<<1 | uint64(b[i/8]>>(7-i%8)&1)
	}
	return v
}

// mad returns the datagram of a message: base version 1, class 7 of version 2, method Send.
func (m *message) mad() []byte {
	b := make([]byte, madLen)
	copy(b, []byte{1, 7, 2, 3})
	binary.BigEndian.PutUint64(b[8:], m.tid)
	binary.BigEndian.PutUint16(b[16:], m.attribute)
	for _, s := range layouts[m.attribute] {
		put(b[madHead:], s.at, s.bits, m.fields[s.name])
	}
	copy(b[madHead+privateAt[m.attribute]:], m.private)
	return b
}

// readMAD reads a datagram, and reports whether it is one of communication management that has a layout here.
func readMAD(b []byte) (m message, ok bool) {
	if len(b) != madLen || [4]byte(b) != [4]byte{1, 7, 2, 3} {
		return m, false
	}
	m = message{attribute: binary.BigEndian.Uint16(b[16:]), tid: binary.BigEndian.Uint64(b[8:]), fields: map[string]uint64{}}
	for _, s := range layouts[m.attribute] {
		m.fields[s.name] = get(b[madHead:], s.at, s.bits)
	}
	at, ok := privateAt[m.attribute]
	m.private = b[madHead+at:]
	return m, ok
}

// The RDMA IP CM Service (annex A11): the service ID names protocol and port, and 36 bytes in front of the private data of a REQ name
// addresses and the source port.
const (
	serviceTCP  = 0x01060000
	ipHeaderLen = 36
)

// ipHeader returns the bytes in front of the private data.
func ipHeader(port uint16, src, dst netip.Addr) []byte {
	b := make([]byte, ipHeaderLen)
	binary.BigEndian.PutUint16(b[2:], port)
	if b[1] = 6 << 4; src.Is4() {
		b[1] = 4 << 4
	}
	for end, a := range map[int]netip.Addr{20: src, 36: dst} { // independent of each other
		s := a.AsSlice()
		copy(b[end-len(s):], s)
	}
	return b
}

// encodeMAD returns the frame that carries a datagram to the queue pair 1 of the peer.
func encodeMAD(f flow, id uint16, psn uint32, mad []byte) []byte {
	be := binary.BigEndian
	b := []byte{opUDSend, 0}
	b = be.AppendUint16(b, pkey)
	b = be.AppendUint32(b, gsiQPN)
	b = be.AppendUint32(b, psn&psnMask)
	b = be.AppendUint32(b, gsiQKey)
	b = be.AppendUint32(b, gsiQPN)
	return seal(f, id, append(b, mad...))
}

// madOf returns the datagram of an addressed frame, nil if the frame is for another queue pair, and the reason if one for queue pair 1
// is invalid.
func madOf(f []byte, peer netip.Addr) (mad []byte, reason string) {
	be := binary.BigEndian
	udpAt := ethernetLen + ipLenOf(peer)
	b := f[udpAt+udpLen:]
	if len(b) < bthLen+dethLen || be.Uint32(b[4:])&psnMask != gsiQPN {
		return nil, ""
	}
	room, from, _, whole := ipPart(f[ethernetLen:udpAt])
	n := int(be.Uint16(f[udpAt+4:]))
	switch want := udpLen + bthLen + dethLen + madLen + icrcLen; {
	case !whole || room > len(f)-udpAt:
		return nil, badIP
	case n != room || n != want:
		return nil, badLength
	case b[0] != opUDSend || b[1]&^0x40 != 0: // MigReq may be either
		return nil, badService
	case from != peer:
		return nil, badSource
	case be.Uint16(b[2:]) != pkey:
		return nil, badPKey
	case be.Uint32(b[12:]) != gsiQKey || be.Uint32(b[16:])&psnMask != gsiQPN:
		return nil, badQKey
	case binary.LittleEndian.Uint32(f[udpAt+n-icrcLen:]) != icrc(f[ethernetLen:udpAt+n-icrcLen]):
		return nil, badICRC
	}
	return b[bthLen+dethLen:][:madLen], ""
}
