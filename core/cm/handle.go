// SPDX-License-Identifier: Apache-2.0

package cm

import (
	"net/netip"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Handle takes a datagram that has come from the queue pair 1 of a host. It reports whether it was of use: a
// datagram that is no message of communication management or comes out of turn is ignored.
func (m *Machine) Handle(now vtime.Time, src uint32, mad []byte) bool {
	msg, err := Parse(mad)
	if err != nil {
		return false
	}
	switch msg.Attribute {
	case REQ:
		m.handleREQ(now, src, mad, &msg)
	case SIDRReq:
		m.handleSIDRReq(now, src, mad, &msg)
	case SIDRRep:
		return m.handleSIDRRep(src, &msg)
	case REP:
		m.handleREP(now, src, &msg)
	case DREQ:
		m.handleDREQ(now, src, &msg)
	case MRA:
		return m.handleMRA(now, src, &msg)
	case REJ:
		return m.handleREJ(src, &msg)
	case RTU:
		e := m.ours(src, &msg)
		if e == nil || e.state != repSent {
			return false
		}
		m.becomeEstablished(e)
	case DREP:
		e := m.ours(src, &msg)
		if e == nil || e.state != dreqSent {
			return false
		}
		m.end(now, e)
	}
	return true
}

// ours returns the endpoint that a message of a connection is for, or nil.
func (m *Machine) ours(src uint32, msg *Message) *Endpoint {
	e := m.ends[msg.RemoteID]
	if e == nil || e.peer != src || e.peerID != msg.LocalID || e.space != SpaceTCP {
		return nil
	}
	return e
}

// refuse answers a message that no endpoint takes.
func (m *Machine) refuse(now vtime.Time, src uint32, msg *Message, kind uint8, why Reason) {
	m.send(now, src, Message{Attribute: REJ, TID: msg.TID, LocalID: msg.RemoteID, RemoteID: msg.LocalID, Kind: kind, Reason: why})
}

// service returns the listener of a request and the peer's fields of its header, or nil and the reason
// for refusal.
func (m *Machine) service(src uint32, msg *Message) (l *Endpoint, h IPHeader, private []byte, why Reason) {
	s, port, ok := ServiceOf(msg.ServiceID)
	if b := m.ports[portKey{s, port}]; ok && b != nil && b.listener != nil && (s == SpaceUDP) == (msg.Attribute == SIDRReq) {
		l = b.listener
	} else {
		return nil, h, nil, ReasonInvalidService
	}
	h, private, ok = ParseIPHeader(msg.Private)
	if !ok || !m.is(h.Src, src) || !m.is(h.Dst, m.c.IP) {
		return nil, h, nil, ReasonConsumer // as Linux answers a header that does not belong here
	}
	if l.waiting >= l.backlog {
		return nil, h, nil, ReasonNoResources
	}
	return l, h, private, 0
}

// is reports whether a is the address of a host.
func (m *Machine) is(a netip.Addr, ip uint32) bool {
	return a.Unmap() == wire.AddrIn(m.c.IPv6, ip).Unmap()
}

func (m *Machine) handleREQ(now vtime.Time, src uint32, mad []byte, msg *Message) {
	if e := m.peers[peerKey{src, msg.LocalID, false}]; e != nil {
		m.repeated(now, e, msg)
		return
	}
	l, h, private, why := m.service(src, msg)
	switch {
	case why == ReasonInvalidService && m.hold(now, src, mad):
		return
	case why != 0:
	case msg.Transport != 0:
		why = ReasonInvalidTransport
	case msg.MTU > m.mtu || msg.MTU == 0:
		why = ReasonInvalidMTU
	case m.stale(now, src, msg.QPN):
		why = ReasonStale
	}
	if why != 0 {
		m.refuse(now, src, msg, 0, why)
		return
	}
	e, err := m.request(l, src, h, msg)
	if err != nil {
		m.refuse(now, src, msg, 0, ReasonNoResources)
		return
	}
	e.state = reqReceived
	e.psn = wire.PSN(m.rng.Uint64()) & wire.PSNMask // before the program accepts: it brings its queue pair up first
	e.remote.psn, e.remote.qpn = msg.PSN, msg.QPN
	e.mtu, e.ack, e.retry, e.rnrRetry, e.traffic = msg.MTU, msg.Path.AckTimeout, msg.RetryCount, msg.RNRRetryCount, msg.Path.TrafficClass
	// The peer's requests to this side bound this side's answers, and the other way round.
	e.remote.responder, e.remote.initiator = msg.InitiatorDepth, msg.ResponderResources
	m.tell(EventConnectRequest, e, 0, Params{
		QPN: msg.QPN, ResponderResources: e.remote.responder, InitiatorDepth: e.remote.initiator, RetryCount: msg.RetryCount, RNRRetryCount: msg.RNRRetryCount,
		FlowControl: msg.FlowControl, SRQ: msg.SRQ, Private: private,
	})
}

// request returns an endpoint for a request of the peer.
func (m *Machine) request(l *Endpoint, src uint32, h IPHeader, msg *Message) (*Endpoint, error) {
	e, err := m.create(l.space)
	if err != nil {
		return nil, err
	}
	e.listener, e.port, e.peer, e.peerPort, e.peerID, e.tid = l.id, l.port, src, h.Port, msg.LocalID, msg.TID
	m.peers[peerKey{src, msg.LocalID, msg.Attribute == SIDRReq}] = e
	l.waiting++
	return e, nil
}

// repeated handles a REQ that has come before.
func (m *Machine) repeated(now vtime.Time, e *Endpoint, msg *Message) {
	switch e.state {
	case reqReceived: // the program takes its time
		m.send(now, e.peer, Message{Attribute: MRA, TID: msg.TID, LocalID: e.id, RemoteID: e.peerID, Timeout: mraTimeout})
	case repSent, over:
		if a := Attribute(uint16(e.mad[16])<<8 | uint16(e.mad[17])); a == REP || a == REJ { // none if the peer has given up before there was any
			m.c.Send(now, e.peer, e.mad[:])
		}
	case timeWait:
		m.refuse(now, e.peer, msg, 0, ReasonStale)
	case established:
		if msg.TID != e.tid { // the peer has started again, and its IDs as well
			m.refuse(now, e.peer, msg, 0, ReasonStale)
			m.end(now, e)
		}
	}
}

// stale reports whether a queue pair of the peer belongs to a connection: then the peer has started again meanwhile. That
// connection ends.
func (m *Machine) stale(now vtime.Time, src uint32, qpn wire.QPN) (found bool) {
	for {
		var old *Endpoint
		for _, e := range m.ends { // the lowest ID
			if e.peer == src && e.space == SpaceTCP && e.remote.qpn == qpn && e.state == established && (old == nil || e.id < old.id) {
				old = e
			}
		}
		if old == nil {
			return found
		}
		found = true
		m.end(now, old)
	}
}

func (m *Machine) handleREP(now vtime.Time, src uint32, msg *Message) {
	e := m.ends[msg.RemoteID]
	if e == nil || e.peer != src || e.space != SpaceTCP || e.state == over {
		m.refuse(now, src, msg, 1, ReasonInvalidCommID)
		return
	}
	switch e.state {
	case reqSent:
		e.state, e.deadline = repReceived, vtime.Never
		e.peerID, e.remote.qpn, e.remote.psn, e.rnrRetry = msg.LocalID, msg.QPN, msg.PSN, msg.RNRRetryCount
		e.remote.responder, e.remote.initiator = msg.InitiatorDepth, msg.ResponderResources
		m.tell(EventConnectResponse, e, 0, Params{
			QPN: msg.QPN, ResponderResources: e.remote.responder, InitiatorDepth: e.remote.initiator, RNRRetryCount: msg.RNRRetryCount,
			FlowControl: msg.FlowControl, SRQ: msg.SRQ, Private: msg.Private,
		})
	case repReceived: // again, and the program takes its time
		m.send(now, src, Message{Attribute: MRA, TID: e.tid, LocalID: e.id, RemoteID: e.peerID, Kind: 1, Timeout: mraTimeout})
	case established: // the RTU was lost
		m.send(now, src, Message{Attribute: RTU, TID: e.tid, LocalID: e.id, RemoteID: e.peerID})
	}
}

// handleMRA gives the peer's program more time.
func (m *Machine) handleMRA(now vtime.Time, src uint32, msg *Message) bool {
	e := m.ends[msg.RemoteID]
	if e == nil || e.peer != src || e.state != [...]state{reqSent, repSent, over, over}[msg.Kind] || e.state == over {
		return false
	}
	m.arm(e, after(after(now, msg.Timeout), responseTimeout))
	return true
}

func (m *Machine) handleREJ(src uint32, msg *Message) bool {
	e := m.ends[msg.RemoteID]
	if msg.RemoteID == 0 { // the peer gives up, and has received nothing from here
		e = m.peers[peerKey{src, msg.LocalID, false}]
	}
	if e == nil || e.peer != src || e.space != SpaceTCP {
		return false
	}
	switch e.state {
	case reqSent, reqReceived, repSent, repReceived, established:
	default:
		return false
	}
	m.answered(e)
	was := e.state
	e.state, e.deadline = over, vtime.Never
	switch {
	case was == established: // the RTU did not come through, and the peer has given up
		m.tell(EventDisconnected, e, 0, Params{})
	default:
		m.tell(EventRejected, e, int(msg.Reason), Params{Private: msg.Private})
	}
	return true
}

func (m *Machine) handleDREQ(now vtime.Time, src uint32, msg *Message) {
	// It is answered in any case: the endpoint may be gone, and the answer lost.
	m.send(now, src, Message{Attribute: DREP, TID: msg.TID, LocalID: msg.RemoteID, RemoteID: msg.LocalID})
	e := m.ours(src, msg)
	if e == nil {
		return
	}
	switch e.state {
	case repSent: // the RTU was lost
		m.becomeEstablished(e)
		m.end(now, e)
	case established, dreqSent, repReceived:
		m.end(now, e)
	}
}

func (m *Machine) handleSIDRReq(now vtime.Time, src uint32, mad []byte, msg *Message) {
	if e := m.peers[peerKey{src, msg.LocalID, true}]; e != nil {
		if e.state == over {
			m.c.Send(now, e.peer, e.mad[:])
		}
		return
	}
	l, h, private, why := m.service(src, msg)
	if why == ReasonInvalidService && m.hold(now, src, mad) {
		return
	}
	var e *Endpoint
	if why == 0 {
		var err error
		if e, err = m.request(l, src, h, msg); err != nil {
			why = ReasonNoResources
		}
	}
	if why != 0 {
		status := StatusRejected
		if why == ReasonInvalidService {
			status = StatusUnsupported
		}
		m.refuseSIDR(now, src, msg, status)
		return
	}
	e.state = sidrReceived
	m.tell(EventConnectRequest, e, 0, Params{Private: private})
}

func (m *Machine) refuseSIDR(now vtime.Time, src uint32, msg *Message, status Status) {
	m.send(now, src, Message{Attribute: SIDRRep, TID: msg.TID, LocalID: msg.LocalID, ServiceID: msg.ServiceID, Status: status})
}

func (m *Machine) handleSIDRRep(src uint32, msg *Message) bool {
	e := m.ends[msg.LocalID]
	if e == nil || e.state != sidrSent || e.peer != src {
		return false
	}
	e.deadline = vtime.Never
	if msg.Status != StatusValid {
		e.state = over
		m.tell(EventUnreachable, e, int(msg.Status), Params{Private: msg.Private})
		return true
	}
	e.state, e.remote.qpn, e.remote.qkey = over, msg.QPN, msg.QKey
	m.tell(EventEstablished, e, 0, Params{QPN: msg.QPN, QKey: msg.QKey, Private: msg.Private})
	return true
}
