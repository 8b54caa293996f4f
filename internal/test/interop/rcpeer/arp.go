// SPDX-License-Identifier: Apache-2.0

package rcpeer

import (
	"encoding/binary"
	"net/netip"
	"time"
)

const (
	arpLen      = ethernetLen + 28
	arpRequest  = 1
	arpReply    = 2
	arpInterval = 250 * time.Millisecond
	arpTries    = 20 // 5 s, then requests fail
)

// resolver finds the peer's MAC address and answers for this endpoint's own.
type resolver struct {
	mac   [6]byte // of the peer
	known bool
	tries int
	next  time.Time // when to ask again
}

// arp returns an ARP message about IPv4 over Ethernet.
func arp(operation uint16, mac [6]byte, ip netip.Addr, toMAC [6]byte, toIP netip.Addr) []byte {
	dst := toMAC
	if operation == arpRequest {
		dst = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		toMAC = [6]byte{}
	}
	b := append(append(make([]byte, 0, arpLen), dst[:]...), mac[:]...)
	b = binary.BigEndian.AppendUint16(b, etherARP)
	b = append(b, 0, 1, 8, 0, 6, 4) // Ethernet, IPv4, lengths of their addresses
	b = binary.BigEndian.AppendUint16(b, operation)
	b = append(append(b, mac[:]...), ip.AsSlice()...)
	return append(append(b, toMAC[:]...), toIP.AsSlice()...)
}

// handleARP learns the peer's MAC address from any ARP message of the peer, and answers
// requests for this endpoint's address.
func (p *Peer) handleARP(f []byte) {
	if len(f) < arpLen || binary.BigEndian.Uint64(f[ethernetLen:])>>16 != 0x000108000604 {
		p.stats.Ignored++
		return
	}
	b := f[ethernetLen:]
	mac, from, target := [6]byte(b[8:]), netip.AddrFrom4([4]byte(b[14:])), netip.AddrFrom4([4]byte(b[24:]))
	if from == p.cfg.PeerIP && mac[0]&1 == 0 {
		p.arp.mac, p.arp.known = mac, true
	}
	if binary.BigEndian.Uint16(b[6:]) == arpRequest && target == p.cfg.IP {
		p.control = append(p.control, arp(arpReply, p.mac, p.cfg.IP, mac, from))
	}
}

// ask returns an ARP request, or a neighbor solicitation, if one is due.
func (p *Peer) ask(now time.Time) []byte {
	if now.Before(p.arp.next) {
		return nil
	}
	if p.arp.tries == arpTries {
		p.fail(errNoARP)
		return nil
	}
	p.arp.tries++
	p.arp.next = now.Add(arpInterval)
	p.stats.ARPRequests++
	if p.cfg.PeerIP.Is6() {
		return solicit(p.mac, p.cfg.IP, p.cfg.PeerIP)
	}
	return arp(arpRequest, p.mac, p.cfg.IP, [6]byte{}, p.cfg.PeerIP)
}
