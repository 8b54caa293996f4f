// SPDX-License-Identifier: Apache-2.0

// Package cm is the communication manager of a NIC: it sets up and ends connections between queue pairs by
// management datagrams (InfiniBand specification, volume 1, chapter 12), which RoCEv2 carries to queue pair 1. They
// name services as Linux's rdma_cm does, by ports of the Internet protocol (annex A11, the RDMA IP CM Service).
//
// Package cm is a protocol core without I/O. The owner of a Machine calls it with requests of programs, with received
// datagrams and when a deadline is over, and takes its datagrams and events by the functions of Config.
//
// A Machine keeps these invariants:
//
//   - Each endpoint is in ends by its communication ID, and that of a peer's REQ in peers by the peer's.
//   - An endpoint has a deadline exactly if it waits for an answer of the peer or for the end of its time wait.
//   - The endpoints of the binding of a port are counted in it; a listener is the only one of its port.
//   - After a DREQ was sent or received, the endpoint sends nothing but answers to the peer's DREQ.
package cm

import (
	"errors"
	"fmt"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Config describes a machine.
type Config struct {
	IP   uint32
	IPv6 bool
	MTU  int    // of the port, in bytes of payload
	Seed uint64 // of communication IDs, ports and sequence numbers

	// Send sends a datagram to the queue pair 1 of a host. It must not keep the bytes.
	Send func(now vtime.Time, dst uint32, mad []byte)
	// Tell takes an event. It must not call the machine, and must not keep the bytes of Private.
	Tell func(e Event)
}

// Machine is the communication manager of one NIC.
type Machine struct {
	c     Config
	rng   prng.Stream
	ends  map[uint32]*Endpoint
	peers map[peerKey]*Endpoint
	ports map[portKey]*binding
	last  uint32 // communication ID given last
	next  vtime.Time
	guid  uint64
	mtu   uint8 // code of Config.MTU
	held  []heldRequest
}

// heldRequest is a request to a service that no program offers. It waits a moment: a server that listens for
// one connection after another, as perftest's, may be about to.
type heldRequest struct {
	src uint32
	mad [MADLen]byte
	at  vtime.Time // when it is refused
}

// heldMax bounds the held requests; later ones are refused at once.
const heldMax = 64

// holdTime is the time that a request waits for its service. It is less than the time after which a peer
// repeats it.
const holdTime = 100 * vtime.Millisecond

// peerKey names a connection as its peer does: by the peer's communication ID, or its request ID for a datagram service.
type peerKey struct {
	ip, id uint32
	sidr   bool
}

type portKey struct {
	space Space
	port  uint16
}

// binding is a port in use.
type binding struct {
	users    int
	reuse    bool // all users allow others
	listener *Endpoint
}

// state is the state of an endpoint.
type state uint8

const (
	idle        state = iota
	bound             // to a port
	resolved          // knows its peer
	listening         // for connections or datagrams
	reqSent           // waits for the peer's REP
	repReceived       // waits for the program
	reqReceived       // waits for the program
	repSent           // waits for the peer's RTU
	established
	dreqSent
	timeWait // the connection has ended
	over     // and all about it is done
	sidrSent
	sidrReceived // waits for the program
)

// Endpoint is one side of a connection, or a listener.
type Endpoint struct {
	id      uint32
	space   Space
	state   state
	port    uint16
	bind    *binding
	waiting int // listener: requests that wait for the program
	backlog int

	listener uint32 // whose request it is
	peer     uint32 // address
	peerPort uint16
	peerID   uint32 // communication or request ID
	tid      uint64

	params   Params // parameters of this side
	remote   remote
	psn      wire.PSN // Starting PSN in this side's REQ or REP: of the first packet that the peer sends
	ack      uint8    // exponent of the queue pair's timeout
	mtu      uint8    // code of the path's
	traffic  uint8
	retry    uint8 // of the queue pair
	rnrRetry uint8
	chosen   uint8 // exponent of the timeout that the program has chosen; 0: none

	mad      [MADLen]byte // the last message that wants an answer
	tries    int          // how often it may be sent again
	deadline vtime.Time
}

// remote holds the fields of the peer's messages.
type remote struct {
	qpn                  wire.QPN
	psn                  wire.PSN // of the first packet that this side sends
	qkey                 uint32
	responder, initiator uint8 // as a limit of this side: of READs it answers, of READs it sends
}

// Params are a program's parameters for its side of a connection (struct rdma_conn_param).
type Params struct {
	QPN                wire.QPN
	QKey               uint32 // of a datagram service
	ResponderResources uint8
	InitiatorDepth     uint8
	RetryCount         uint8
	RNRRetryCount      uint8
	FlowControl, SRQ   bool
	Private            []byte
}

// Errors of programs' requests.
var (
	ErrNoEndpoint = errors.New("endpoint does not exist")
	ErrState      = errors.New("endpoint is in another state")
	ErrPortInUse  = errors.New("port is in use")
	ErrTooMany    = errors.New("NIC has no room for another endpoint")
	ErrPrivate    = errors.New("private data is longer than the message has room for")
)

// endsMax bounds the endpoints of a NIC.
const endsMax = 1 << 16

// The times of the exchange. The response timeout is shorter than Linux's exponent of 20 is, since the hosts of a lab are
// near each other, and a slow program is covered by an MRA.
const (
	responseTimeout = 16 // exponent: 268 ms
	mraTimeout      = 24 // exponent: 69 s
	maxRetries      = 15
	ackTimeout      = 17 // exponent: 537 ms, as Linux has it for RoCE
	hopLimit        = 64
)

// after returns when the time of an exponent is over, 4.096 µs * 2^e from now.
func after(now vtime.Time, e uint8) vtime.Time {
	return now.Add(4096 * vtime.Nanosecond << e)
}

// New returns a machine without endpoints.
func New(c Config) *Machine {
	m := &Machine{c: c, rng: prng.New(c.Seed), next: vtime.Never, ends: map[uint32]*Endpoint{}, peers: map[peerKey]*Endpoint{}, ports: map[portKey]*binding{}}
	m.last = uint32(m.rng.Uint64())
	g := wire.AddrIn(c.IPv6, c.IP).As16()
	for _, b := range [...]byte{2, g[12], g[13], 0xff, 0xfe, g[13], g[14], g[15]} {
		m.guid = m.guid<<8 | uint64(b)
	}
	for m.mtu = 1; m.mtu < 5 && 128<<(m.mtu+1) <= c.MTU; {
		m.mtu++
	}
	return m
}

// Len returns the number of endpoints.
func (m *Machine) Len() int { return len(m.ends) }

// Listeners returns the number of endpoints that listen.
func (m *Machine) Listeners() (n int) {
	for _, e := range m.ends { // a sum
		if e.state == listening {
			n++
		}
	}
	return n
}

// Create returns the communication ID of a new endpoint.
func (m *Machine) Create(s Space) (id uint32, err error) {
	e, err := m.create(s)
	if err != nil {
		return 0, err
	}
	return e.id, nil
}

func (m *Machine) create(s Space) (*Endpoint, error) {
	if len(m.ends) >= endsMax {
		return nil, fmt.Errorf("create endpoint: %d exist: %w", len(m.ends), ErrTooMany)
	}
	for m.last++; m.last == 0 || m.ends[m.last] != nil; {
		m.last++
	}
	e := &Endpoint{id: m.last, space: s, ack: ackTimeout, mtu: m.mtu, deadline: vtime.Never}
	m.ends[e.id] = e
	return e, nil
}

// find returns an endpoint that must be in one of the states.
func (m *Machine) find(id uint32, what string, in ...state) (*Endpoint, error) {
	e := m.ends[id]
	if e == nil {
		return nil, fmt.Errorf("%s: %w", what, ErrNoEndpoint)
	}
	for _, s := range in {
		if e.state == s {
			return e, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", what, ErrState)
}

// ephemeral is the range of ports that are given to endpoints that ask for none.
const (
	ephemeralFirst = 32768
	ephemeralPorts = 28232
)

// Bind binds an endpoint to a port of its space, 0 for any that is free. Others may have the port, too, if all
// of them allow it and none listens.
func (m *Machine) Bind(id uint32, port uint16, reuse bool) (uint16, error) {
	e, err := m.find(id, "bind", idle)
	if err != nil {
		return 0, err
	}
	if port == 0 {
		start := m.rng.Uint64() % ephemeralPorts
		for i := range uint64(ephemeralPorts) {
			p := uint16(ephemeralFirst + (start+i)%ephemeralPorts)
			if m.ports[portKey{e.space, p}] == nil {
				port = p
				break
			}
		}
	}
	k := portKey{e.space, port}
	b := m.ports[k]
	switch {
	case port == 0 || b != nil && (b.listener != nil || !b.reuse || !reuse):
		return 0, fmt.Errorf("bind to port %d: %w", port, ErrPortInUse)
	case b == nil:
		b = &binding{reuse: reuse}
		m.ports[k] = b
	}
	b.users++
	e.bind, e.port, e.state = b, port, bound
	return port, nil
}

// Listen has an endpoint take connections, of which at most backlog wait for the program; 0 stands for many.
func (m *Machine) Listen(now vtime.Time, id uint32, backlog int) error {
	e, err := m.find(id, "listen", bound)
	if err != nil {
		return err
	}
	if e.bind.users > 1 {
		return fmt.Errorf("listen at port %d: %w", e.port, ErrPortInUse)
	}
	const many = 1024
	if backlog <= 0 || backlog > many {
		backlog = many
	}
	e.bind.listener, e.backlog, e.state = e, backlog, listening
	m.release(now, e)
	return nil
}

// hold keeps a request that no program takes, and reports whether there was room.
func (m *Machine) hold(now vtime.Time, src uint32, mad []byte) bool {
	if len(m.held) >= heldMax {
		return false
	}
	h := heldRequest{src: src, at: now.Add(holdTime)}
	copy(h.mad[:], mad)
	m.held = append(m.held, h)
	m.next = min(m.next, h.at)
	return true
}

// release hands requests to a service that is offered from now on.
func (m *Machine) release(now vtime.Time, l *Endpoint) {
	all := m.held
	m.held = nil
	for i := range all {
		msg, _ := Parse(all[i].mad[:]) // it was read before
		if s, port, _ := ServiceOf(msg.ServiceID); s == l.space && port == l.port {
			m.Handle(now, all[i].src, all[i].mad[:])
		} else {
			m.held = append(m.held, all[i])
		}
	}
}

// refuseHeld refuses the requests that have waited long enough.
func (m *Machine) refuseHeld(now vtime.Time) {
	all := m.held
	m.held = nil
	for i := range all {
		if all[i].at > now {
			m.held = append(m.held, all[i])
			continue
		}
		msg, _ := Parse(all[i].mad[:]) // it was read before
		if msg.Attribute == SIDRReq {
			m.refuseSIDR(now, all[i].src, &msg, StatusUnsupported)
		} else {
			m.refuse(now, all[i].src, &msg, 0, ReasonInvalidService)
		}
	}
}

// Resolve sets the host and port to which an endpoint is to be connected.
func (m *Machine) Resolve(id, peer uint32, port uint16) error {
	e, err := m.find(id, "resolve address", idle, bound, resolved)
	if err != nil {
		return err
	}
	if e.state == idle {
		if _, err := m.Bind(id, 0, false); err != nil {
			return err
		}
	}
	e.peer, e.peerPort, e.state = peer, port, resolved
	return nil
}

// SetTraffic chooses the traffic class of the connection.
func (m *Machine) SetTraffic(id uint32, class uint8) error {
	e := m.ends[id]
	if e == nil {
		return fmt.Errorf("set traffic class: %w", ErrNoEndpoint)
	}
	e.traffic = class
	return nil
}

// SetTimeout chooses the exponent of the queue pair's timeout.
func (m *Machine) SetTimeout(id uint32, exponent uint8) error {
	e := m.ends[id]
	if e == nil {
		return fmt.Errorf("set timeout: %w", ErrNoEndpoint)
	}
	e.chosen = exponent & 31
	return nil
}

// Attributes are the attributes of a queue pair for the connection.
type Attributes struct {
	Space               Space
	Port, PeerPort      uint16
	Peer                uint32
	RemoteQPN           wire.QPN
	QKey                uint32
	SQPSN, RQPSN        wire.PSN
	MTU                 int
	Timeout, Retry, RNR uint8
	Responder           uint8 // READs and atomics that the peer may have under way
	Initiator           uint8 // those of this side
	Traffic             uint8
	Known               bool // the peer's queue pair is known
}

// Query returns the attributes of a connection.
func (m *Machine) Query(id uint32) (a Attributes, err error) {
	e := m.ends[id]
	if e == nil {
		return a, fmt.Errorf("query endpoint: %w", ErrNoEndpoint)
	}
	a = Attributes{
		Space: e.space, Port: e.port, PeerPort: e.peerPort, Peer: e.peer, RemoteQPN: e.remote.qpn, QKey: e.remote.qkey, SQPSN: e.remote.psn, RQPSN: e.psn,
		MTU: 128 << e.mtu, Timeout: e.ack, Retry: e.retry, RNR: e.rnrRetry, Responder: e.remote.responder, Initiator: e.remote.initiator, Traffic: e.traffic,
		Known: e.remote.qpn != 0,
	}
	if e.chosen != 0 {
		a.Timeout = e.chosen
	}
	return a, nil
}

// Destroy ends an endpoint. The peer of a connection gets one message.
func (m *Machine) Destroy(now vtime.Time, id uint32) error {
	e := m.ends[id]
	if e == nil {
		return fmt.Errorf("destroy endpoint: %w", ErrNoEndpoint)
	}
	switch e.state {
	case reqSent:
		m.reject(now, e, ReasonTimeout, nil)
	case reqReceived, repReceived, repSent:
		m.reject(now, e, ReasonConsumer, nil)
	case sidrReceived:
		m.answer(now, e, Message{Status: StatusRejected})
	case established:
		m.sendDREQ(now, e)
	}
	m.answered(e)
	m.forgetPeer(e)
	if b := e.bind; b != nil {
		if b.listener == e {
			b.listener = nil
		}
		if b.users--; b.users == 0 {
			delete(m.ports, portKey{e.space, e.port})
		}
	}
	delete(m.ends, id)
	return nil
}

// Reset loses all endpoints, as a NIC that starts again does. No peer gets a message.
func (m *Machine) Reset() {
	clear(m.ends)
	clear(m.peers)
	clear(m.ports)
	m.held = nil
	m.next = vtime.Never
}

// answered takes a request from its listener's count.
func (m *Machine) answered(e *Endpoint) {
	if e.state != reqReceived && e.state != sidrReceived {
		return
	}
	if l := m.ends[e.listener]; l != nil && l.waiting > 0 {
		l.waiting--
	}
}

func (m *Machine) forgetPeer(e *Endpoint) {
	k := peerKey{e.peer, e.peerID, e.space == SpaceUDP}
	if m.peers[k] == e {
		delete(m.peers, k)
	}
}

// arm sets the deadline of an endpoint.
func (m *Machine) arm(e *Endpoint, at vtime.Time) {
	e.deadline = at
	m.next = min(m.next, at)
}

// NextTimeout returns the earliest deadline, or one before it, and whether there is any.
func (m *Machine) NextTimeout() (vtime.Time, bool) { return m.next, m.next != vtime.Never }
