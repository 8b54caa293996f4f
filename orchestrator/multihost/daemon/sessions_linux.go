// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sessions are the probes that a daemon expects. It answers no datagram: a deployer asks over TLS what has arrived. So
// nobody can use the port to reflect datagrams.
type sessions struct {
	clock   func() time.Time
	mu      sync.Mutex
	open    map[session]*expected
	strange uint64 // datagrams of no session
}

type expected struct {
	key    []byte
	ends   time.Time
	frames []int  // sizes that have arrived
	lent   func() // ends that the daemon listens at the port of links for it; nil: it does not
}

// Limits of sessions.
const (
	sessionsMax = 4096
	sessionWait = time.Minute
)

func (s *sessions) begin() (*ExpectReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	for id, e := range s.open {
		if now.After(e.ends) { // lendMax has ended e.lent
			delete(s.open, id)
		}
	}
	if len(s.open) >= sessionsMax {
		return nil, fmt.Errorf("%d probes are expected already: ask again in a minute", len(s.open))
	}
	b := make([]byte, sessionBytes+keyBytes)
	if _, err := rand.Read(b); err != nil {
		return nil, err
	}
	id, key := session(b), b[sessionBytes:]
	s.open[id] = &expected{key: key, ends: now.Add(sessionWait)}
	return &ExpectReply{Session: id[:], Key: key}, nil
}

func (s *sessions) arrived(b []byte) ([]int, error) {
	if len(b) != sessionBytes {
		return nil, fmt.Errorf("%x is no session", b)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.open[session(b)]
	if e == nil {
		return nil, errors.New("no such session")
	}
	frames := slices.Clone(e.frames)
	slices.Sort(frames)
	return frames, nil
}

// lend has a session keep what ends its use of the port of links. No peer knows its ID yet.
func (s *sessions) lend(id session, end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[id].lent = end
}

// finish ends a session that has heard all that it will.
func (s *sessions) finish(b []byte) {
	if len(b) != sessionBytes {
		return
	}
	s.mu.Lock()
	e := s.open[session(b)]
	delete(s.open, session(b))
	s.mu.Unlock()
	if e != nil && e.lent != nil {
		e.lent()
	}
}

func (s *sessions) strangers() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.strange
}

// take looks at a datagram.
func (s *sessions) take(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, proof, frame, ok := parseProbe(b)
	e := s.open[id]
	if !ok || e == nil || !hmac.Equal(proof, proofOf(id, e.key, frame)) {
		s.strange++
		return
	}
	if !slices.Contains(e.frames, frame) && len(e.frames) < 16 {
		e.frames = append(e.frames, frame)
	}
}

// receive takes datagrams until the socket is closed.
func (s *sessions) receive(c *net.UDPConn, pass func(bytes int) bool) {
	b := make([]byte, 64<<10)
	for {
		n, _, err := c.ReadFromUDP(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && (pass == nil || pass(n)) { // an error may be an ICMP message about a probe that this daemon has sent
			s.take(b[:n])
		}
	}
}

// How often each probe is sent, since a datagram may be lost, and how long what has arrived is asked for.
const (
	probeCopies = 4
	probeEvery  = 5 * time.Millisecond
	probeWait   = 2 * time.Second
	probeLook   = 100 * time.Millisecond
)

// probeOne finds out about the way to a peer.
func (s *server) probeOne(ctx context.Context, p Peer) Seen {
	seen := Seen{From: s.o.Node, To: p.Node, Frames: []int{}}
	c := NewClient(s.c, p.Node, p.Address, s.o.Clock)
	defer c.Close()
	err := c.clock(ctx, &seen)
	if err == nil {
		seen.Frames, _, err = s.tryFrames(ctx, c, p.Address, false)
	}
	if err == nil && p.Links {
		seen.Links, seen.LinksTried, err = s.tryLinks(ctx, c, p.Address)
	}
	if err != nil {
		seen.Error, seen.Closed = err.Error(), Closed(err)
	}
	return seen
}

// tryLinks is tryFrames of the port of links.
func (s *server) tryLinks(ctx context.Context, c *Client, address string) (frames []int, tried bool, err error) {
	host, port, err := portOf(address)
	if err != nil {
		return nil, false, err
	}
	return s.tryFrames(ctx, c, At(host, port+LinksPort), true)
}

// tryFrames sends probes of all sizes, and returns those that arrive. The port of links may be in use; then none is tried.
func (s *server) tryFrames(ctx context.Context, c *Client, address string, links bool) (frames []int, tried bool, err error) {
	var e *ExpectReply
	err = c.ask(ctx, func(ctx context.Context, k DaemonClient) (err error) {
		e, err = k.Expect(ctx, &ExpectRequest{Links: links})
		return err
	})
	if err != nil || links && !e.Links {
		return nil, false, err
	}
	if len(e.Session) != sessionBytes || len(e.Key) != keyBytes {
		return nil, false, fmt.Errorf("%s expects probes of a session of %d bytes", c.node, len(e.Session))
	}
	frames, err = s.sendFrames(ctx, c, address, e)
	return frames, true, err
}

// sendFrames sends the probes of a session, and then ends it.
func (s *server) sendFrames(ctx context.Context, c *Client, address string, e *ExpectReply) (frames []int, err error) {
	d := net.Dialer{Control: fragment}
	conn, err := d.DialContext(ctx, "udp", address)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	sizes := Frames()
	for range probeCopies {
		for _, frame := range sizes {
			// What cannot be sent, or has come to a closed port, does not arrive: it is seen there.
			_, _ = conn.Write(appendProbe(nil, session(e.Session), e.Key, frame))
		}
		if err := pause(ctx, probeEvery); err != nil {
			return nil, err
		}
	}
	for until := time.Now().Add(probeWait); ; {
		if frames, err = c.arrived(ctx, e.Session, false); err != nil {
			return nil, err
		}
		if len(frames) == len(sizes) || time.Now().After(until) {
			_, err = c.arrived(ctx, e.Session, true)
			return frames, err
		}
		if err := pause(ctx, probeLook); err != nil {
			return nil, err
		}
	}
}

// arrived returns the sizes of the probes of a session that have arrived, and may end it.
func (c *Client) arrived(ctx context.Context, session []byte, end bool) (frames []int, err error) {
	err = c.ask(ctx, func(ctx context.Context, k DaemonClient) error {
		a, err := k.Arrived(ctx, &ArrivedRequest{Session: session, End: end})
		frames = append([]int{}, resized[int](a.GetFrames())...)
		return err
	})
	return frames, err
}

// pauseAfter is the pause before a listener tries again.
func pauseAfter() <-chan time.Time { return time.After(probeLook) }

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// fragment lets the kernel and routers cut datagrams up, as they do with those of VXLAN links.
func fragment(network, _ string, c syscall.RawConn) error {
	var inner error
	err := c.Control(func(fd uintptr) {
		if network == "udp6" {
			inner = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT)
			return
		}
		inner = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
	})
	return errors.Join(err, inner)
}
