// SPDX-License-Identifier: Apache-2.0

// Package rcpeer is a RoCEv2 endpoint for tests: one queue pair of the reliable connection service over
// IPv4 or IPv6, on the wall clock, over any carrier of whole Ethernet frames, such as a tap device. It
// shares no code with the rest of the module, so that the two agree on the protocol and not on a common
// mistake. Where the protocol leaves a choice it behaves like Linux Soft-RoCE, and it has the checks of
// Soft-RoCE.
//
// It sends SEND, RDMA WRITE and FETCH_ADD, serves the first two, resolves its peer by ARP or
// neighbor discovery and answers for its own address, and sets its connection up by
// communication management, in either role, if it is asked to. It does not know VLAN tags, READ or
// congestion control.
package rcpeer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Errors that the calls of a Peer wrap.
var (
	ErrClosed        = errors.New("the endpoint is closed")
	ErrRetryExceeded = errors.New("transport retry counter exceeded")
	ErrRNRExceeded   = errors.New("receiver-not-ready retry counter exceeded")
	ErrRemote        = errors.New("the peer refused a request")        // NAK 0x61 to 0x63 received
	ErrRefused       = errors.New("a request of the peer was refused") // NAK 0x61 or 0x62 sent
	errNoARP         = errors.New("no host answers for the peer's address")
)

// Config describes an endpoint and the one it is connected to. MAC, IP, QPN, PeerIP and
// PeerQPN are required; both addresses are of one family, QPNs are 2 to 2^24 - 2.
type Config struct {
	MAC     net.HardwareAddr
	IP      netip.Addr
	QPN     uint32
	PeerIP  netip.Addr // may stand for a group: packets from any other address are rejected
	PeerQPN uint32

	StartPSN uint32 // of the first packet sent, 24 bits
	PeerPSN  uint32 // of the first packet expected, 24 bits
	MTU      int    // bytes of payload: 256 to 4096, a power of two; default 1024
	Window   int    // packets that may be unacknowledged; default 128
	TOS      byte   // DSCP and ECN of all packets

	Timeout  time.Duration // without progress until retransmission; default 4.096 µs × 2^14, ibv timeout 14
	RetryCnt int           // retransmissions without progress before an error; default 7, and 7 means seven
	RNRRetry int           // the same after RNR NAK; default 7, and 7 means without limit

	VA     uint64 // address of Memory for the peer's RDMA WRITE
	RKey   uint32
	Memory []byte // written by the endpoint until Close; read it with ReadMemory
	// Managed is set if the connection is set up by Connect, or Listen and Accept: PeerQPN and StartPSN are the peer's to say.
	Managed bool
	PeerMAC net.HardwareAddr // of the peer, if it is not to be resolved
	// Eager resolves the peer's MAC address at once, as Linux does when a queue pair becomes
	// ready to receive. Otherwise it is resolved when the first packet is to be sent.
	Eager bool
	// RecvSize is the size of each receive buffer in bytes, default 1 MiB.
	RecvSize int
}

func (c *Config) complete() error {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.MTU, 1024)
	def(&c.Window, 128)
	def(&c.RetryCnt, 7)
	def(&c.RNRRetry, 7)
	def(&c.RecvSize, 1<<20)
	if c.Timeout == 0 {
		c.Timeout = 4096 * time.Nanosecond << 14
	}
	qpn := func(q uint32) bool { return q >= 2 && q < psnMask }
	switch {
	case len(c.MAC) != 6 || c.MAC[0]&1 != 0:
		return fmt.Errorf("%v is not a unicast MAC address", c.MAC)
	case !c.IP.IsValid() || !c.PeerIP.IsValid() || c.IP.Is4() != c.PeerIP.Is4() || c.IP.Is4In6() || c.PeerIP.Is4In6():
		return fmt.Errorf("%v and %v are not both IPv4 or both IPv6 addresses", c.IP, c.PeerIP)
	case !qpn(c.QPN) || !qpn(c.PeerQPN) && !c.Managed:
		return fmt.Errorf("QPN %#x or %#x is out of range", c.QPN, c.PeerQPN)
	case c.StartPSN > psnMask || c.PeerPSN > psnMask:
		return fmt.Errorf("PSN %#x or %#x has more than 24 bits", c.StartPSN, c.PeerPSN)
	case c.MTU < 256 || c.MTU > 4096 || bits.OnesCount(uint(c.MTU)) != 1:
		return fmt.Errorf("the path MTU %d is not 256, 512, 1024, 2048 or 4096", c.MTU)
	case c.Window < 1 || c.Window >= 1<<23:
		return fmt.Errorf("a window of %d packets is out of range", c.Window)
	case c.Timeout < 0 || c.RetryCnt < 0 || c.RNRRetry < 0 || c.RecvSize < 0:
		return errors.New("timeout, retry counts and buffer size must not be negative")
	}
	return nil
}

// Stats counts since the start. Packets are RoCEv2 packets unless said otherwise.
type Stats struct {
	DataSent      uint64 // request packets, retransmissions included
	Retransmitted uint64
	Timeouts      uint64 // expiries of the retransmission timer
	AcksReceived  uint64 // that acknowledge something new
	StaleReceived uint64 // responses that acknowledge nothing new
	NaksReceived  uint64 // sequence errors and refusals
	RNRsReceived  uint64
	DataReceived  uint64 // request packets that were executed
	Duplicates    uint64 // request packets received again
	OutOfSequence uint64 // request packets after a gap
	AcksSent      uint64
	NaksSent      uint64 // sequence errors and refusals
	RNRsSent      uint64
	Messages      uint64 // of the peer, completed
	ICRCErrors    uint64 // counted in Rejects too
	ARPRequests   uint64 // frames sent; over IPv6 neighbor solicitations
	Ignored       uint64 // frames that are neither ARP or neighbor discovery nor RoCEv2 to this endpoint

	Rejects map[string]uint64 // by reason
}

// Message is one received SEND, or RDMA WRITE with immediate data.
type Message struct {
	Data   []byte // of a SEND
	Write  bool
	Length uint32 // of the message in bytes
	Imm    uint32
	HasImm bool
}

// Peer is a running endpoint. Its methods may be called from any goroutine.
type Peer struct {
	cfg     Config
	mac     [6]byte
	port    io.ReadWriteCloser
	wake    chan struct{} // signals that there is something to transmit
	running sync.WaitGroup

	mu        sync.Mutex
	changed   chan struct{} // closed when something that a caller may wait for has changed
	err       error         // the queue pair is in the error state
	stopped   bool          // both goroutines end
	closed    bool          // the port is closed
	stats     Stats
	arp       resolver
	control   [][]byte // ARP frames to send
	responses []packet // to send
	id        uint16   // of the last IPv4 header
	req       requester
	rsp       responder
	cm        manager
}

// New starts an endpoint on a port that reads and writes one Ethernet frame per call,
// without FCS; reads block. The endpoint owns the port: Close closes it, and this has to
// end a Read that waits, as it does with an os.File whose descriptor is non-blocking.
func New(c Config, port io.ReadWriteCloser) (*Peer, error) {
	if err := c.complete(); err != nil {
		return nil, fmt.Errorf("configure RC endpoint: %w", err)
	}
	p := &Peer{cfg: c, mac: [6]byte(c.MAC), port: port, wake: make(chan struct{}, 1), changed: make(chan struct{})}
	p.stats.Rejects = map[string]uint64{}
	p.rsp.expected = c.PeerPSN
	if len(c.PeerMAC) == 6 {
		p.arp.mac, p.arp.known = [6]byte(c.PeerMAC), true
	}
	p.running.Add(2)
	go p.receive()
	go p.transmit()
	return p, nil
}

// Close stops the endpoint and closes its port. Calls that wait return ErrClosed.
func (p *Peer) Close() error {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.stop(ErrClosed)
	p.mu.Unlock()
	var err error
	if !again {
		err = p.port.Close()
	}
	p.running.Wait()
	if err != nil {
		return fmt.Errorf("close the endpoint's port: %w", err)
	}
	return nil
}

// Stats returns the counters.
func (p *Peer) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Rejects = maps.Clone(s.Rejects)
	return s
}

// SetPeerQPN sets the queue pair to which requests go from now on. It is for peers whose number
// is known only later.
func (p *Peer) SetPeerQPN(qpn uint32) {
	p.mu.Lock()
	p.cfg.PeerQPN = qpn
	p.mu.Unlock()
}

// Err returns why the queue pair is in the error state, or nil.
func (p *Peer) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// fail puts the queue pair in the error state: callers get err, packets are rejected. Queued packets
// are still sent, among them a NAK with the reason. p.mu is held.
func (p *Peer) fail(err error) {
	if p.err == nil {
		p.err = err
		p.notify()
	}
}

// stop ends both goroutines after the frame they are at; p.mu is held.
func (p *Peer) stop(err error) {
	p.fail(err)
	p.stopped = true
	p.poke()
}

// notify wakes all callers that wait; p.mu is held.
func (p *Peer) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// poke wakes the transmitter.
func (p *Peer) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// wait returns nil as soon as ready does true. ready runs with p.mu held.
func (p *Peer) wait(ctx context.Context, ready func() bool) error {
	for {
		p.mu.Lock()
		ok, err, changed := ready(), p.err, p.changed
		p.mu.Unlock()
		switch {
		case ok:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// receive takes frames from the port until it ends. It never writes, so two endpoints
// whose ports are full cannot wait for each other.
func (p *Peer) receive() {
	defer p.running.Done()
	b := make([]byte, 1<<16)
	for {
		n, err := p.port.Read(b)
		p.mu.Lock()
		if err != nil {
			p.stop(fmt.Errorf("read a frame: %w", err))
		}
		stopped := p.stopped
		if !stopped {
			p.handle(b[:n], time.Now())
		}
		p.mu.Unlock()
		if stopped {
			return
		}
		p.poke()
	}
}

func (p *Peer) handle(f []byte, now time.Time) {
	if len(f) >= ethernetLen && f[12] == etherARP>>8 && f[13] == etherARP&0xff {
		p.handleARP(f)
		return
	}
	if p.cfg.IP.Is6() && isND(f) {
		p.handleND(f)
		return
	}
	if !addressed(f, p.mac, p.cfg.IP) {
		p.stats.Ignored++
		return
	}
	if mad, reason := madOf(f, p.cfg.PeerIP); mad != nil {
		p.handleMAD(mad)
		return
	} else if reason != "" {
		p.reject(reason)
		return
	}
	k, reason := decode(f, p.cfg.PeerIP, p.cfg.QPN)
	o := op(0)
	if reason == "" {
		o = operations[k.opcode]
	}
	switch {
	case reason == badICRC:
		p.stats.ICRCErrors++
		p.reject(reason)
	case reason != "":
		p.reject(reason)
	case p.err != nil || p.cfg.Managed && p.cm.state != cmEstablished && p.cm.state != cmRepSent:
		p.reject(badState)
	case o&isResponse != 0:
		p.handleResponse(&k, now)
	default:
		p.handleRequest(&k, o)
	}
}

func (p *Peer) reject(reason string) { p.stats.Rejects[reason]++ }

// transmit is the only writer of the port. It builds a frame at a time, so that a packet
// counts as sent when the port took it.
func (p *Peer) transmit() {
	defer p.running.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		p.mu.Lock()
		f, data, at := p.frame(time.Now())
		stopped := p.stopped
		p.mu.Unlock()
		switch {
		case stopped:
			return
		case f != nil:
			_, err := p.port.Write(f)
			p.mu.Lock()
			if data {
				p.req.sent(time.Now(), p.cfg.Timeout)
			}
			if err != nil {
				p.stop(fmt.Errorf("write a frame: %w", err))
			}
			p.mu.Unlock()
			continue
		case at.IsZero():
			<-p.wake
			continue
		}
		timer.Reset(time.Until(at))
		select {
		case <-p.wake:
		case <-timer.C:
		}
	}
}

// frame returns the next frame to send: ARP, then responses, then data, which is the packets of
// requests. If there is none, at is the time to ask again, or zero. p.mu is held.
func (p *Peer) frame(now time.Time) (f []byte, data bool, at time.Time) {
	switch {
	case len(p.control) > 0:
		f, p.control = p.control[0], p.control[1:]
		return f, false, at
	case !p.arp.known:
		idle := len(p.responses) == 0 && len(p.req.queue) == 0 && len(p.cm.send) == 0 && p.cm.last == nil
		if p.err != nil || idle && !p.cfg.Eager {
			return nil, false, at
		}
		if idle {
			p.arp.tries = 0 // as long as there is nothing to send, no answer is no failure
		}
		f = p.ask(now)
		return f, false, p.arp.next
	case len(p.responses) > 0:
		f, p.responses = p.encode(p.responses[0]), p.responses[1:]
		return f, false, at
	}
	if mad, again := p.due(now); mad != nil {
		p.id++
		p.cm.psn++
		return encodeMAD(p.flow(), p.id, p.cm.psn, mad), false, at
	} else if p.err != nil || p.cfg.Managed && p.cm.state != cmEstablished {
		return nil, false, again
	}
	if k, ok := p.nextRequest(now); ok {
		return p.encode(k), true, at
	}
	if p.req.resume.IsZero() {
		return nil, false, p.req.deadline
	}
	return nil, false, p.req.resume
}

func (p *Peer) encode(k packet) []byte {
	p.id++
	k.id, k.qpn = p.id, p.cfg.PeerQPN
	return encode(p.flow(), k)
}

func (p *Peer) flow() flow {
	return flow{srcMAC: p.mac, dstMAC: p.arp.mac, src: p.cfg.IP, dst: p.cfg.PeerIP, port: 0xc000 | uint16(p.cfg.QPN&0x3fff), tos: p.cfg.TOS}
}
