// SPDX-License-Identifier: Apache-2.0

package rcpeer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Errors of a connection that is set up by communication management.
var (
	ErrRejected     = errors.New("the peer rejected the connection")
	ErrNoAnswer     = errors.New("the peer does not answer")
	ErrDisconnected = errors.New("the peer has ended the connection")
)

// cmState is the state of a connection (12.9.5 and 12.9.6, without the states for alternate paths).
type cmState uint8

const (
	cmIdle cmState = iota
	cmListen
	cmReqSent
	cmReqReceived // waits for Accept or Reject
	cmRepSent
	cmEstablished
	cmDreqSent
	cmOver
)

// The exchange: a message without an answer goes out again after cmInterval, cmTries times in all. cmExponent says so to the peer: 4.096 µs
// times 2 to its power are 268 ms.
const (
	cmExponent = 16
	cmInterval = 4096 * time.Nanosecond << cmExponent
	cmTries    = 16
	cmAccept   = 24 // exponent of an MRA: a test accepts within 69 s
)

// manager sets the connection of an endpoint up and ends it. p.mu is held for all of it.
type manager struct {
	state    cmState
	service  uint64
	id, peer uint32 // communication IDs
	tid      uint64
	psn      uint32 // of the next datagram
	send     [][]byte
	last     []byte // message that is repeated until it is answered; nil: none
	tries    int
	next     time.Time
	request  message // of the peer, or its REP
}

// Asked holds the peer's parameters of its side: from its REQ or its REP.
type Asked struct {
	QPN, PSN                  uint32 // PSN is that of the first packet that this endpoint sends
	Responder, Initiator      uint8  // READs that the peer answers, and that it sends
	Retries, RNRRetries       uint8
	MTU                       int // bytes; 0 in a REP
	Port                      uint16
	Source, Target            netip.Addr // of a REQ, as its IP header has them
	Private                   []byte     // behind the IP header
	LocalGID, RemoteGID       [16]byte
	AckTimeout, TrafficClass  uint8
	HopLimit, FlowControl, SL uint8
}

// asked takes a REQ or REP apart. The addresses are those of the IP header, of which version says the family.
func (m *message) asked() Asked {
	f := m.fields
	u8 := func(name string) uint8 { return uint8(f[name]) }
	a := Asked{
		QPN: uint32(f["qpn"]), PSN: uint32(f["psn"]), Responder: u8("responder resources"), Initiator: u8("initiator depth"), Retries: u8("retries"),
		RNRRetries: u8("rnr retries"), Private: slices.Clone(m.private), AckTimeout: u8("ack timeout"), TrafficClass: u8("traffic class"), HopLimit: u8("hop limit"),
		FlowControl: u8("flow control"), SL: u8("sl"),
	}
	if m.attribute != cmREQ {
		return a
	}
	put(a.LocalGID[:], 0, 64, f["local gid"])
	put(a.LocalGID[:], 64, 64, f["local gid, rest"])
	put(a.RemoteGID[:], 0, 64, f["remote gid"])
	put(a.RemoteGID[:], 64, 64, f["remote gid, rest"])
	a.MTU, a.Port = 128<<f["mtu"], uint16(get(m.private, 16, 16))
	if m.private[1]>>4 == 4 {
		a.Source, a.Target = netip.AddrFrom4([4]byte(m.private[16:])), netip.AddrFrom4([4]byte(m.private[32:]))
	} else {
		a.Source, a.Target = netip.AddrFrom16([16]byte(m.private[4:])), netip.AddrFrom16([16]byte(m.private[20:]))
	}
	a.Private = a.Private[ipHeaderLen:]
	return a
}

// Connect asks the peer for a connection to a port of its RDMA IP CM Service, and returns its answer once it is established.
func (p *Peer) Connect(ctx context.Context, port uint16, private []byte) (Asked, error) {
	p.mu.Lock()
	m := &p.cm
	m.state, m.id, m.tid = cmReqSent, p.cfg.QPN<<8|1, uint64(p.cfg.QPN)<<32|1
	local, remote := p.cfg.IP.As16(), p.cfg.PeerIP.As16() // of IPv4 mapped, as RoCEv2 has them
	mtu := uint64(0)
	for 128<<mtu < p.cfg.MTU {
		mtu++
	}
	m.ask(&message{attribute: cmREQ, tid: m.tid, private: append(ipHeader(0x9abc, p.cfg.IP, p.cfg.PeerIP), private...), fields: map[string]uint64{
		"local id": uint64(m.id), "service": serviceTCP | uint64(port), "guid": 0x5254_00ff_fe00_0001, "qpn": uint64(p.cfg.QPN), "psn": uint64(p.cfg.PeerPSN),
		"responder resources": 1, "initiator depth": 1, "remote timeout": cmExponent, "local timeout": cmExponent, "retries": 7, "rnr retries": 7, "pkey": pkey,
		"mtu": mtu, "cm retries": 15, "local lid": 0xffff, "remote lid": 0xffff, "hop limit": 64, "ack timeout": 18,
		"local gid": get(local[:], 0, 64), "local gid, rest": get(local[:], 64, 64), "remote gid": get(remote[:], 0, 64), "remote gid, rest": get(remote[:], 64, 64),
	}})
	p.poke()
	p.mu.Unlock()
	return p.established(ctx)
}

// Listen takes the next request for a port, and returns the peer's parameters. Accept or Reject answers
// it.
func (p *Peer) Listen(ctx context.Context, port uint16) (a Asked, err error) {
	p.mu.Lock()
	p.cm.state, p.cm.service, p.cm.id = cmListen, serviceTCP|uint64(port), p.cfg.QPN<<8|2
	p.mu.Unlock()
	err = p.wait(ctx, func() bool {
		if p.cm.state == cmReqReceived {
			a = p.cm.request.asked()
		}
		return p.cm.state == cmReqReceived
	})
	return a, err
}

// Accept takes the request, and returns once the peer is ready to use the connection.
func (p *Peer) Accept(ctx context.Context, private []byte) error {
	p.mu.Lock()
	m := &p.cm
	m.state = cmRepSent
	p.join(&m.request)
	m.ask(&message{attribute: cmREP, tid: m.tid, private: private, fields: map[string]uint64{
		"local id": uint64(m.id), "remote id": uint64(m.peer), "qpn": uint64(p.cfg.QPN), "psn": uint64(p.cfg.PeerPSN), "responder resources": 1, "initiator depth": 1,
		"ack delay": 15, "rnr retries": 7, "guid": 0x5254_00ff_fe00_0002,
	}})
	p.poke()
	p.mu.Unlock()
	_, err := p.established(ctx)
	return err
}

// Reject refuses the request: reason 28, of the program.
func (p *Peer) Reject(private []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &p.cm
	m.tell(&message{attribute: cmREJ, tid: m.tid, private: private, fields: map[string]uint64{"local id": uint64(m.id), "remote id": uint64(m.peer), "reason": 28}})
	m.state = cmListen
	p.poke()
}

// Disconnect ends the connection, and returns once the peer has confirmed it.
func (p *Peer) Disconnect(ctx context.Context) error {
	p.mu.Lock()
	m := &p.cm
	if m.state == cmEstablished {
		m.state = cmDreqSent
		m.ask(&message{attribute: cmDREQ, tid: m.tid + 1, fields: map[string]uint64{
			"local id": uint64(m.id), "remote id": uint64(m.peer), "qpn": m.request.fields["qpn"],
		}})
		p.poke()
	}
	p.mu.Unlock()
	return p.managed(ctx, func() bool { return m.state == cmOver })
}

// Disconnected waits until the peer has ended the connection.
func (p *Peer) Disconnected(ctx context.Context) error {
	return p.managed(ctx, func() bool { return p.cm.state == cmOver })
}

// managed is wait, also for an endpoint whose connection has ended.
func (p *Peer) managed(ctx context.Context, ready func() bool) error {
	err := p.wait(ctx, ready)
	if errors.Is(err, ErrDisconnected) {
		return nil
	}
	return err
}

func (p *Peer) established(ctx context.Context) (a Asked, err error) {
	err = p.wait(ctx, func() bool {
		a = p.cm.request.asked()
		return p.cm.state == cmEstablished
	})
	return a, err
}

// join takes the peer's queue pair and the path from a REQ or REP: the Starting PSN is that of the first packet sent from here.
func (p *Peer) join(m *message) {
	p.cfg.PeerQPN, p.cfg.StartPSN = uint32(m.fields["qpn"]), uint32(m.fields["psn"])
	p.cm.peer = uint32(m.fields["local id"])
	if m.attribute == cmREQ {
		p.cfg.MTU = 128 << m.fields["mtu"] // of the path, which who asks decides
	}
}

func (m *manager) tell(x *message) { m.send = append(m.send, x.mad()) }

func (m *manager) ask(x *message) {
	m.last, m.tries, m.next = x.mad(), 0, time.Time{}
}

// due returns the next datagram to send, or nil and when to look again.
func (p *Peer) due(now time.Time) (mad []byte, at time.Time) {
	m := &p.cm
	switch {
	case len(m.send) > 0:
		mad, m.send = m.send[0], m.send[1:]
		return mad, at
	case m.last == nil:
		return nil, at
	case now.Before(m.next):
		return nil, m.next
	case m.tries == cmTries:
		m.last = nil
		p.over(ErrNoAnswer)
		return nil, at
	}
	m.tries++
	m.next = now.Add(cmInterval)
	return m.last, at
}

// over ends the connection.
func (p *Peer) over(why error) {
	p.cm.state, p.cm.last = cmOver, nil
	p.fail(why)
}

// handleMAD handles a message from the peer.
func (p *Peer) handleMAD(b []byte) {
	x, ok := readMAD(b)
	m := &p.cm
	if !ok || x.attribute != cmREQ && uint32(x.fields["remote id"]) != m.id {
		p.reject(badMAD)
		return
	}
	answer := func(attribute uint16, more map[string]uint64) {
		f := map[string]uint64{"local id": uint64(m.id), "remote id": x.fields["local id"]}
		for k, v := range more { // independent of each other
			f[k] = v
		}
		m.tell(&message{attribute: attribute, tid: x.tid, fields: f})
	}
	switch x.attribute {
	case cmREQ:
		p.handleREQ(x, answer)
	case cmREP:
		switch m.state {
		case cmReqSent:
			m.state, m.last, m.request = cmEstablished, nil, clone(x)
			p.join(&x)
			answer(cmRTU, nil)
		case cmEstablished: // the RTU was lost
			answer(cmRTU, nil)
		}
	case cmRTU:
		if m.state == cmRepSent {
			m.state, m.last = cmEstablished, nil
		}
	case cmMRA:
		if m.last != nil {
			m.next = time.Now().Add(4096*time.Nanosecond<<x.fields["timeout"] + cmInterval)
		}
	case cmREJ:
		if m.state == cmReqSent || m.state == cmRepSent {
			p.over(fmt.Errorf("%w: reason %d", ErrRejected, x.fields["reason"]))
		}
	case cmDREQ:
		answer(cmDREP, nil)
		if m.state == cmEstablished || m.state == cmRepSent || m.state == cmDreqSent {
			p.over(ErrDisconnected)
		}
	case cmDREP:
		if m.state == cmDreqSent {
			p.over(ErrDisconnected)
		}
	}
	p.notify()
}

func (p *Peer) handleREQ(x message, answer func(uint16, map[string]uint64)) {
	m := &p.cm
	switch {
	case m.state == cmListen && x.fields["service"] == m.service:
		m.state, m.request, m.tid, m.peer = cmReqReceived, clone(x), x.tid, uint32(x.fields["local id"])
	case m.state == cmReqReceived && x.fields["local id"] == uint64(m.peer):
		answer(cmMRA, map[string]uint64{"timeout": cmAccept})
	case m.state == cmRepSent, m.state == cmIdle: // the REP goes out again by itself; or Listen is about to be called, and the REQ comes again
	default:
		answer(cmREJ, map[string]uint64{"reason": 8}) // no such service
	}
}

func clone(m message) message {
	m.private = slices.Clone(m.private)
	return m
}
