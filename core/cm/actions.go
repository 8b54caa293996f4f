// SPDX-License-Identifier: Apache-2.0

package cm

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// EventType is the type of an event; the numbers are those of enum rdma_cm_event_type.
type EventType uint32

// Events.
const (
	EventConnectRequest  EventType = 4
	EventConnectResponse EventType = 5
	EventConnectError    EventType = 6
	EventUnreachable     EventType = 7
	EventRejected        EventType = 8
	EventEstablished     EventType = 9
	EventDisconnected    EventType = 10
	EventTimewaitExit    EventType = 15
)

// Event is an event of an endpoint. The numbers of READs are named from the view of the endpoint's side.
type Event struct {
	Type         EventType
	ID           uint32
	Listener     uint32 // EventConnectRequest
	Status       int    // reason of a REJ, status of a SIDR_REP, or a negative errno
	Params       Params // the peer's parameters
	Peer         uint32
	Port, PeerTo uint16 // own port and the peer's
}

// Errnos of Event.Status.
const timedOut = -110 // ETIMEDOUT

func (m *Machine) tell(t EventType, e *Endpoint, status int, p Params) {
	m.c.Tell(Event{Type: t, ID: e.id, Listener: e.listener, Status: status, Params: p, Peer: e.peer, Port: e.port, PeerTo: e.peerPort})
}

// send sends a message that wants no answer.
func (m *Machine) send(now vtime.Time, dst uint32, msg Message) {
	var b [MADLen]byte
	m.c.Send(now, dst, msg.AppendTo(b[:0]))
}

// ask sends a message that wants an answer, and again until there is one.
func (m *Machine) ask(now vtime.Time, e *Endpoint, msg Message) {
	msg.AppendTo(e.mad[:0])
	e.tries = maxRetries
	m.arm(e, after(now, responseTimeout))
	m.c.Send(now, e.peer, e.mad[:])
}

func (m *Machine) newTID(e *Endpoint) uint64 { return uint64(e.id)<<32 | m.rng.Uint64()>>32 }

// header returns the header of rdma_cm, and the private data behind it.
func (m *Machine) header(e *Endpoint, private []byte) []byte {
	h := IPHeader{Version: 4, Port: e.port, Src: wire.AddrIn(m.c.IPv6, m.c.IP), Dst: wire.AddrIn(m.c.IPv6, e.peer)}
	if m.c.IPv6 {
		h.Version = 6
	}
	return append(h.AppendTo(make([]byte, 0, MADLen)), private...)
}

func room(a Attribute, header int, private []byte) error {
	if most := a.PrivateMax() - header; len(private) > most {
		return fmt.Errorf("send %v with %d bytes, at most %d: %w", a, len(private), most, ErrPrivate)
	}
	return nil
}

// Connect asks the peer for a connection, or for the queue pair of a datagram service.
func (m *Machine) Connect(now vtime.Time, id uint32, p Params) error {
	e, err := m.find(id, "connect", resolved)
	if err != nil {
		return err
	}
	kind := REQ
	if e.space == SpaceUDP {
		kind = SIDRReq
	}
	if err := room(kind, IPHeaderLen, p.Private); err != nil {
		return err
	}
	e.params, e.tid = p, m.newTID(e)
	private := m.header(e, p.Private)
	service := e.space.ServiceID(e.peerPort)
	if kind == SIDRReq {
		e.state = sidrSent
		m.ask(now, e, Message{Attribute: SIDRReq, TID: e.tid, LocalID: e.id, PKey: wire.PKeyDefault, ServiceID: service, Private: private})
		return nil
	}
	e.psn = wire.PSN(m.rng.Uint64()) & wire.PSNMask
	e.remote.responder, e.remote.initiator = p.ResponderResources, p.InitiatorDepth
	e.retry, e.rnrRetry = min(p.RetryCount, 7), min(p.RNRRetryCount, 7)
	ack := e.ack
	if e.chosen != 0 {
		ack = e.chosen
	}
	e.state = reqSent
	m.ask(now, e, Message{
		Attribute: REQ, TID: e.tid, LocalID: e.id, ServiceID: service, GUID: m.guid, QPN: p.QPN, PSN: e.psn, PKey: wire.PKeyDefault,
		ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth, FlowControl: p.FlowControl, SRQ: p.SRQ,
		RetryCount: e.retry, RNRRetryCount: e.rnrRetry, MTU: e.mtu, RemoteTimeout: responseTimeout, LocalTimeout: responseTimeout, MaxCMRetries: maxRetries,
		Path: Path{
			Local: wire.AddrIn(m.c.IPv6, m.c.IP).As16(), Remote: wire.AddrIn(m.c.IPv6, e.peer).As16(),
			TrafficClass: e.traffic, HopLimit: hopLimit, AckTimeout: ack,
		},
		Private: private,
	})
	return nil
}

// Accept takes a request: the peer gets the program's parameters. At the side that has asked, it confirms the
// peer's answer, after which the connection is established.
func (m *Machine) Accept(now vtime.Time, id uint32, p Params) error {
	e, err := m.find(id, "accept", reqReceived, sidrReceived, repReceived)
	if err != nil {
		return err
	}
	switch e.state {
	case repReceived:
		e.state = established
		m.send(now, e.peer, Message{Attribute: RTU, TID: e.tid, LocalID: e.id, RemoteID: e.peerID})
		return nil
	case sidrReceived:
		if err := room(SIDRRep, 0, p.Private); err != nil {
			return err
		}
		m.answer(now, e, Message{Status: StatusValid, QPN: p.QPN, QKey: p.QKey, Private: p.Private})
		return nil
	}
	if err := room(REP, 0, p.Private); err != nil {
		return err
	}
	m.answered(e)
	e.params = p
	e.remote.responder, e.remote.initiator = p.ResponderResources, p.InitiatorDepth
	e.state = repSent
	m.ask(now, e, Message{
		Attribute: REP, TID: e.tid, LocalID: e.id, RemoteID: e.peerID, GUID: m.guid, QPN: p.QPN, PSN: e.psn,
		ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth, FlowControl: p.FlowControl, SRQ: p.SRQ,
		RNRRetryCount: min(p.RNRRetryCount, 7), Private: p.Private,
	})
	return nil
}

// answer ends the request for a datagram service.
func (m *Machine) answer(now vtime.Time, e *Endpoint, msg Message) {
	m.answered(e)
	msg.Attribute, msg.TID, msg.LocalID, msg.ServiceID = SIDRRep, e.tid, e.peerID, e.space.ServiceID(e.port)
	msg.AppendTo(e.mad[:0]) // which answers the peer's repeats
	e.state = over
	m.c.Send(now, e.peer, e.mad[:])
}

// Reject refuses a request, or the peer's answer to one.
func (m *Machine) Reject(now vtime.Time, id uint32, private []byte) error {
	e, err := m.find(id, "reject", reqReceived, sidrReceived, repReceived)
	if err != nil {
		return err
	}
	if e.state == sidrReceived {
		if err := room(SIDRRep, 0, private); err != nil {
			return err
		}
		m.answer(now, e, Message{Status: StatusRejected, Private: private})
		return nil
	}
	if err := room(REJ, 0, private); err != nil {
		return err
	}
	m.reject(now, e, ReasonConsumer, private)
	return nil
}

// reject sends a REJ, after which the endpoint is over.
func (m *Machine) reject(now vtime.Time, e *Endpoint, why Reason, private []byte) {
	kind := uint8(2)
	switch e.state {
	case reqReceived:
		kind = 0
	case repReceived:
		kind = 1
	}
	m.answered(e)
	Message{Attribute: REJ, TID: e.tid, LocalID: e.id, RemoteID: e.peerID, Kind: kind, Reason: why, Private: private}.into(&e.mad)
	e.state, e.deadline = over, vtime.Never
	m.c.Send(now, e.peer, e.mad[:])
}

func (m Message) into(b *[MADLen]byte) { m.AppendTo(b[:0]) }

// Establish reports that the peer has used the connection, which is as good as its RTU.
func (m *Machine) Establish(id uint32) error {
	e, err := m.find(id, "establish", repSent, established)
	if err != nil {
		return err
	}
	if e.state == repSent {
		m.becomeEstablished(e)
	}
	return nil
}

func (m *Machine) becomeEstablished(e *Endpoint) {
	e.state, e.deadline = established, vtime.Never
	m.tell(EventEstablished, e, 0, Params{})
}

// Disconnect ends a connection.
func (m *Machine) Disconnect(now vtime.Time, id uint32) error {
	e, err := m.find(id, "disconnect", established, repSent, repReceived, dreqSent, timeWait, over)
	if err != nil {
		return err
	}
	switch e.state {
	case repReceived:
		m.reject(now, e, ReasonConsumer, nil)
	case established, repSent:
		m.sendDREQ(now, e)
	}
	return nil // it has ended, or is about to
}

func (m *Machine) sendDREQ(now vtime.Time, e *Endpoint) {
	e.state = dreqSent
	m.ask(now, e, Message{Attribute: DREQ, TID: m.newTID(e), LocalID: e.id, RemoteID: e.peerID, QPN: e.remote.qpn})
}

// end has a connection that has ended wait until no packet of it can be on its way any more.
func (m *Machine) end(now vtime.Time, e *Endpoint) {
	e.state = timeWait
	m.arm(e, after(now, e.ack))
	m.tell(EventDisconnected, e, 0, Params{})
}

// HandleTimeout carries out the actions that are due.
func (m *Machine) HandleTimeout(now vtime.Time) {
	var due []uint32
	for id, e := range m.ends { // sorted below
		if e.deadline <= now {
			due = append(due, id)
		}
	}
	slices.Sort(due)
	for _, id := range due {
		m.expire(now, m.ends[id])
	}
	m.refuseHeld(now)
	m.next = vtime.Never
	for i := range m.held {
		m.next = min(m.next, m.held[i].at)
	}
	for _, e := range m.ends { // a minimum
		m.next = min(m.next, e.deadline)
	}
}

func (m *Machine) expire(now vtime.Time, e *Endpoint) {
	if e.state == timeWait {
		e.state, e.deadline = over, vtime.Never
		m.forgetPeer(e)
		m.tell(EventTimewaitExit, e, 0, Params{})
		return
	}
	if e.tries > 0 {
		e.tries--
		e.deadline = after(now, responseTimeout)
		m.c.Send(now, e.peer, e.mad[:])
		return
	}
	e.deadline = vtime.Never
	switch e.state {
	case reqSent, repSent:
		m.reject(now, e, ReasonTimeout, nil)
		m.tell(EventUnreachable, e, timedOut, Params{})
	case sidrSent:
		e.state = over
		m.tell(EventUnreachable, e, timedOut, Params{})
	case dreqSent:
		m.end(now, e)
	}
}
