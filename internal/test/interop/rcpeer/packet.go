// SPDX-License-Identifier: Apache-2.0

package rcpeer

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// Sizes of the headers that every packet has, in bytes, and where they begin.
const (
	ethernetLen = 14
	ipLen       = 20 // options are never used
	udpLen      = 8
	bthLen      = 12
	icrcLen     = 4
	udpAt       = ethernetLen + ipLen
	bthAt       = udpAt + udpLen

	etherIPv4 = 0x0800
	etherARP  = 0x0806
	roceport  = 4791
	pkey      = 0xffff
	psnMask   = 1<<24 - 1
)

// Opcodes of the reliable connection service that an endpoint sends.
const (
	opSendFirst  = 0x00
	opSendMiddle = 0x01
	opSendLast   = 0x02
	opSendOnly   = 0x04
	opWriteFirst = 0x06 // the others of WRITE follow in the order of SEND
	withImm      = 1    // added to last and only
	opAck        = 0x11
	opAtomicAck  = 0x12
	opFetchAdd   = 0x14
)

// op describes an opcode, in bits.
type op uint16

const (
	isSend op = 1 << iota
	isWrite
	isResponse
	isOther // a request that this endpoint knows the length of and does not serve
	begins
	ends
	hasRETH
	hasAETH
	hasImm
	has4  // 4 more bytes of headers: IETH
	has8  // AtomicAckETH
	has28 // AtomicETH
)

// operations are the opcodes of the RC service; those that are 0 are reserved.
var operations = [32]op{
	0x00: isSend | begins,
	0x01: isSend,
	0x02: isSend | ends,
	0x03: isSend | ends | hasImm,
	0x04: isSend | begins | ends,
	0x05: isSend | begins | ends | hasImm,
	0x06: isWrite | begins | hasRETH,
	0x07: isWrite,
	0x08: isWrite | ends,
	0x09: isWrite | ends | hasImm,
	0x0a: isWrite | begins | ends | hasRETH,
	0x0b: isWrite | begins | ends | hasRETH | hasImm,
	0x0c: isOther | hasRETH,
	0x0d: isResponse | hasAETH,
	0x0e: isResponse,
	0x0f: isResponse | hasAETH,
	0x10: isResponse | hasAETH,
	0x11: isResponse | hasAETH,
	0x12: isResponse | hasAETH | has8,
	0x13: isOther | has28,
	0x14: isOther | has28,
	0x16: isOther | has4,
	0x17: isOther | has4,
}

// headers returns the bytes between the BTH and the payload.
func (o op) headers() (n int) {
	for _, h := range [...]struct {
		bit op
		n   int
	}{{hasRETH, 16}, {hasAETH, 4}, {hasImm, 4}, {has4, 4}, {has8, 8}, {has28, 28}} {
		if o&h.bit != 0 {
			n += h.n
		}
	}
	return n
}

// flow holds the fields that all packets to one destination share.
type flow struct {
	srcMAC, dstMAC [6]byte
	src, dst       netip.Addr
	port           uint16 // UDP source port
	tos            byte
}

// packet is one RoCEv2 packet of the RC service.
type packet struct {
	id      uint16 // of an IPv4 header
	opcode  byte
	ackReq  bool
	qpn     uint32 // destination
	psn     uint32
	va      uint64 // RETH
	rkey    uint32
	length  uint32
	syn     byte // AETH syndrome
	msn     uint32
	imm     uint32
	add     uint64 // AtomicETH of a FETCH_ADD
	before  uint64 // AtomicAckETH: the memory's earlier value
	payload []byte
	tail    []byte // the pad of a received packet
}

// encode returns the frame of a packet, without the padding that an Ethernet port adds to
// frames of less than 60 bytes.
func encode(f flow, p packet) []byte {
	o := operations[p.opcode]
	pad := -len(p.payload) & 3
	be := binary.BigEndian
	b := make([]byte, 0, bthLen+o.headers()+len(p.payload)+pad)
	b = append(b, p.opcode, byte(pad)<<4)
	b = be.AppendUint16(b, pkey)
	b = be.AppendUint32(b, p.qpn&psnMask)
	psn := p.psn & psnMask
	if p.ackReq {
		psn |= 1 << 31
	}
	b = be.AppendUint32(b, psn)
	if o&hasRETH != 0 {
		b = be.AppendUint64(b, p.va)
		b = be.AppendUint32(b, p.rkey)
		b = be.AppendUint32(b, p.length)
	}
	if o&hasAETH != 0 {
		b = be.AppendUint32(b, uint32(p.syn)<<24|p.msn&psnMask)
	}
	if o&hasImm != 0 {
		b = be.AppendUint32(b, p.imm)
	}
	if o&has28 != 0 {
		b = be.AppendUint32(be.AppendUint64(b, p.va), p.rkey)
		b = be.AppendUint64(be.AppendUint64(b, p.add), 0)
	}
	b = append(b, p.payload...)
	return seal(f, p.id, append(b, make([]byte, pad)...))
}

// seal returns the frame of a packet that begins at its BTH.
func seal(f flow, id uint16, bth []byte) []byte {
	udp := udpLen + len(bth) + icrcLen
	b := make([]byte, 0, ethernetLen+ipLenOf(f.dst)+udp)
	be := binary.BigEndian
	b = append(append(b, f.dstMAC[:]...), f.srcMAC[:]...)
	if f.dst.Is6() {
		b = appendIPv6(be.AppendUint16(b, etherIPv6), f.tos, 17, 64, f.src, f.dst, udp)
	} else {
		b = appendIPv4(be.AppendUint16(b, etherIPv4), f, id, udp)
	}
	b = be.AppendUint16(b, f.port)
	b = be.AppendUint16(b, roceport)
	b = be.AppendUint16(b, uint16(udp))
	b = append(b, 0, 0) // RoCEv2 sends no UDP checksum
	b = append(b, bth...)
	return binary.LittleEndian.AppendUint32(b, icrc(b[ethernetLen:]))
}

// appendIPv4 appends the header in front of n bytes of a flow.
func appendIPv4(b []byte, f flow, id uint16, n int) []byte {
	at := len(b)
	b = append(b, 0x45, f.tos)
	b = binary.BigEndian.AppendUint16(b, uint16(ipLen+n))
	b = binary.BigEndian.AppendUint16(b, id)
	b = append(b, 0x40, 0, 64, 17, 0, 0) // DF, TTL, UDP, checksum
	b = append(append(b, f.src.AsSlice()...), f.dst.AsSlice()...)
	binary.BigEndian.PutUint16(b[at+10:], ^sum(b[at:], 0))
	return b
}

// icrc returns the invariant CRC of a packet that begins at its IP header and ends before
// the ICRC: CRC-32 over 8 bytes of ones in place of a local route header, then the packet,
// with the fields that may change on the way set to ones.
func icrc(ip []byte) uint32 {
	n, masked := ipLen, []int{1, 8, 10, 11} // TOS, TTL, checksum
	if ip[0]>>4 == 6 {
		n, masked = ipv6Len, []int{1, 2, 3, 7} // traffic class and flow label, hop limit
	}
	head := bytes.Repeat([]byte{0xff}, 8)
	head = append(head, ip[:n+udpLen+bthLen]...)
	if n == ipv6Len {
		head[8] |= 0x0f
	}
	for _, i := range append(masked, n+6, n+7, n+udpLen+4) { // UDP checksum, FECN to resv6
		head[8+i] = 0xff
	}
	return crc32.Update(crc32.ChecksumIEEE(head), crc32.IEEETable, ip[len(head)-8:])
}

// sum is the Internet checksum of b before its complement, added to start.
func sum(b []byte, start uint32) uint16 {
	s := start
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(b[i])<<8 | uint32(b[i+1])
	}
	if len(b)%2 == 1 {
		s += uint32(b[len(b)-1]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// Reasons for which a packet to UDP port 4791 at this endpoint's address is rejected.
const (
	badIP        = "IP header: length, checksum or fragment"
	badUDP       = "UDP length or checksum"
	badSource    = "source address is not the peer's"
	badTVer      = "transport version is not 0"
	badPKey      = "P_Key is not 0xffff"
	badQPN       = "destination QPN is not this endpoint's"
	badService   = "opcode of another service, or a reserved one"
	badLength    = "shorter than its headers"
	badPad       = "pad count, or pad bytes that are not 0"
	badICRC      = "ICRC"
	badState     = "the queue pair is in the error state"
	badResponse  = "response to a request that was not made"
	badSequence  = "opcode out of sequence in its message"
	badOpcode    = "request that this endpoint does not serve"
	badSize      = "payload does not fit MTU, message or buffer"
	badAccess    = "R_Key or memory range"
	badQKey      = "Q_Key or source queue pair of a management datagram"
	badMAD       = "management datagram of another kind or connection"
	badDuplicate = "duplicate of a request that this endpoint does not serve"
)

// addressed reports whether a frame is a UDP datagram to port 4791 at this MAC and IP address.
// Other frames are ignored.
func addressed(f []byte, mac [6]byte, ip netip.Addr) bool {
	if ip.Is6() {
		const u = ethernetLen + ipv6Len
		return len(f) >= u+udpLen && [6]byte(f) == mac && binary.BigEndian.Uint16(f[12:]) == etherIPv6 &&
			f[ethernetLen]>>4 == 6 && f[ethernetLen+6] == 17 &&
			netip.AddrFrom16([16]byte(f[ethernetLen+24:])) == ip && binary.BigEndian.Uint16(f[u+2:]) == roceport
	}
	return len(f) >= bthAt && [6]byte(f) == mac && binary.BigEndian.Uint16(f[12:]) == etherIPv4 &&
		f[ethernetLen]>>4 == 4 && f[ethernetLen+9] == 17 &&
		netip.AddrFrom4([4]byte(f[ethernetLen+16:])) == ip && binary.BigEndian.Uint16(f[udpAt+2:]) == roceport
}

// decode takes an addressed frame apart in the order in which Linux and its Soft-RoCE check
// it, and returns the first reason to reject it, or "".
func decode(f []byte, peer netip.Addr, qpn uint32) (p packet, reason string) {
	be := binary.BigEndian
	udpAt := ethernetLen + ipLenOf(peer)
	ip, udp := f[ethernetLen:udpAt], f[udpAt:udpAt+udpLen]
	room, from, id, whole := ipPart(ip)
	n := int(be.Uint16(udp[4:]))
	switch {
	case !whole || room > len(f)-udpAt:
		return p, badIP
	case n != room || n < udpLen || be.Uint16(udp[6:]) != 0 && sum(f[udpAt:udpAt+n], pseudo(ip, n)) != 0xffff:
		return p, badUDP
	}
	b := f[udpAt+udpLen : udpAt+n] // an Ethernet trailer may follow
	if len(b) < bthLen+icrcLen {
		return p, badLength
	}
	p.opcode, p.ackReq = b[0], b[8]&0x80 != 0
	p.qpn, p.psn, p.id = be.Uint32(b[4:])&psnMask, be.Uint32(b[8:])&psnMask, id
	var o op
	if int(p.opcode) < len(operations) {
		o = operations[p.opcode]
	}
	body, pad := b[bthLen:len(b)-icrcLen], int(b[1]>>4&3)
	switch {
	case o == 0:
		return p, badService
	case len(body) < o.headers()+pad:
		return p, badLength
	case b[1]&0xf != 0:
		return p, badTVer
	case p.qpn != qpn:
		return p, badQPN
	case from != peer:
		return p, badSource
	case be.Uint16(b[2:]) != pkey:
		return p, badPKey
	case binary.LittleEndian.Uint32(b[len(b)-icrcLen:]) != icrc(f[ethernetLen:udpAt+n-icrcLen]):
		return p, badICRC
	}
	p.extend(o, body, pad)
	return p, ""
}

// padded reports whether the pad has the length that the payload needs, and zero bytes only.
func (p *packet) padded() bool {
	for _, x := range p.tail {
		if x != 0 {
			return false
		}
	}
	return len(p.tail) == -len(p.payload)&3
}

// extend reads the extension headers, the payload and the pad.
func (p *packet) extend(o op, body []byte, pad int) {
	be, rest := binary.BigEndian, body
	if o&hasRETH != 0 {
		p.va, p.rkey, p.length = be.Uint64(rest), be.Uint32(rest[8:]), be.Uint32(rest[12:])
		rest = rest[16:]
	}
	if o&hasAETH != 0 {
		p.syn, p.msn = rest[0], be.Uint32(rest)&psnMask
		rest = rest[4:]
	}
	if o&hasImm != 0 {
		p.imm = be.Uint32(rest)
	}
	if o&has8 != 0 {
		p.before = be.Uint64(rest)
	}
	p.payload, p.tail = body[o.headers():len(body)-pad], body[len(body)-pad:]
}

// ipPart reads an IP header. It returns the number of bytes that follow it, its source and
// identification, and whether it is valid.
func ipPart(ip []byte) (room int, from netip.Addr, id uint16, ok bool) {
	be := binary.BigEndian
	if len(ip) == ipv6Len {
		return int(be.Uint16(ip[4:])), netip.AddrFrom16([16]byte(ip[8:])), 0, true
	}
	ok = ip[0] == 0x45 && be.Uint16(ip[6:])&^uint16(0x4000) == 0 && sum(ip, 0) == 0xffff
	return int(be.Uint16(ip[2:])) - ipLen, netip.AddrFrom4([4]byte(ip[12:])), be.Uint16(ip[4:]), ok
}

// pseudo starts the sum over a UDP datagram with the pseudo-header of its family.
func pseudo(ip []byte, n int) uint32 {
	if ip[0]>>4 == 6 {
		return uint32(sum(ip[8:40], 17+uint32(n)))
	}
	return uint32(sum(ip[12:20], 17+uint32(n)))
}
