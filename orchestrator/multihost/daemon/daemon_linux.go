// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/mcastlab/mcastlab/orchestrator/multihost/trust"
)

// Options are the settings of a daemon.
type Options struct {
	Node    string // the ID of the Swarm's node that it runs on
	Dir     string // of its credentials
	Listen  string // address and port
	Version string
	Clock   func() time.Time
	Engine  func(ctx context.Context) error // asks the server's engine whether it is that of Node
	Labs    Labs                            // nil: it keeps none
	Log     func(format string, args ...any)
	// For tests: pass reports whether a datagram of that size arrives (nil: all do), and listening, if not nil, gets the address.
	pass      func(bytes int) bool
	listening func(address string)
}

// Waits. Credentials are looked at so often; a request and all of its answers are over in that time.
const (
	lookEvery   = 250 * time.Millisecond
	requestWait = 30 * time.Second
	requestMax  = 1 << 20 // bytes
	callsMax    = 64      // at a time on one connection
)

// Serve is a server's daemon. It listens as long as it has credentials that hold, which a join brings while it runs, and
// takes new ones up without a restart. It returns when the context ends.
func Serve(ctx context.Context, o Options) error {
	var s *server
	defer func() { s.close() }()
	said := ""
	say := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); text != said {
			said = text
			o.Log("%s", text)
		}
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		c, err := usable(o)
		switch {
		case err != nil:
			s.close()
			s = nil
			say("not listening: %v", err)
		case s != nil && s.same(c):
		default:
			s.close()
			if s, err = listen(o, c); err != nil {
				s = nil
				say("not listening: %v", err) // another process may have the port for a while
				break
			}
			say("listening at %s until %s", s.address(), c.Ends().UTC().Format(time.RFC3339))
			if o.listening != nil {
				o.listening(s.address())
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// usable returns the credentials of the server, or why there are none.
func usable(o Options) (*trust.Credentials, error) {
	c, err := Load(o.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("this server has no certificate: mcastlab hosts up gives it one")
	case err != nil:
		return nil, err
	case c.Identity() != trust.Identity{Role: trust.Host, Node: o.Node}:
		return nil, fmt.Errorf("the certificate is of %s, and this is the host %s: mcastlab hosts up gives it another", c.Identity(), o.Node)
	case o.Clock().After(c.Ends()):
		return nil, fmt.Errorf("the certificate has ended on %s: mcastlab hosts up gives it another", c.Ends().UTC().Format(time.RFC3339))
	}
	return c, nil
}

// server is a daemon while it listens.
type server struct {
	o        Options
	c        *trust.Credentials
	file     []byte // of the credentials
	tcp      net.Listener
	udp      *net.UDPConn
	accepts  *acceptor
	calls    *grpc.Server
	running  sync.WaitGroup
	sessions sessions
	lent     lent
	UnimplementedDaemonServer
}

func listen(o Options, c *trust.Credentials) (*server, error) {
	file, err := c.Marshal()
	if err != nil {
		return nil, err
	}
	s := &server{o: o, c: c, file: file, sessions: sessions{clock: o.Clock, open: map[session]*expected{}}}
	if s.tcp, err = net.Listen("tcp", o.Listen); err != nil {
		return nil, err
	}
	bound := s.tcp.Addr().(*net.TCPAddr)
	if s.udp, err = net.ListenUDP("udp", &net.UDPAddr{IP: bound.IP, Port: bound.Port, Zone: bound.Zone}); err != nil {
		return nil, errors.Join(err, s.tcp.Close())
	}
	s.accepts = newAcceptor(s.tcp, c.Server(o.Clock), s.stream)
	s.calls = grpc.NewServer(grpc.Creds(shaken{}), grpc.UnaryInterceptor(guarded), grpc.MaxRecvMsgSize(requestMax), grpc.MaxHeaderListSize(16<<10),
		grpc.MaxConcurrentStreams(callsMax), grpc.ConnectionTimeout(requestWait), grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: requestWait}))
	RegisterDaemonServer(s.calls, s)
	s.running.Go(s.accepts.run)
	s.running.Go(func() { _ = s.calls.Serve(s.accepts) }) // ends when it is closed
	s.running.Go(func() { s.sessions.receive(s.udp, o.pass) })
	return s, nil
}

func (s *server) address() string { return s.tcp.Addr().String() }

func (s *server) same(c *trust.Credentials) bool {
	file, err := c.Marshal()
	return err == nil && slices.Equal(file, s.file)
}

// close ends a server; there may be none.
func (s *server) close() {
	if s == nil {
		return
	}
	_ = s.accepts.Close()
	s.calls.Stop()
	_ = s.udp.Close()
	s.lent.close()
	s.running.Wait()
	s.accepts.all.Wait()
}

// Status implements DaemonServer.
func (s *server) Status(ctx context.Context, _ *StatusRequest) (*StatusReply, error) {
	st := &StatusReply{
		Schema: statusSchema, Node: s.o.Node, Version: s.o.Version, Now: s.o.Clock().UnixNano(), Ends: s.c.Ends().Unix(), Strange: s.sessions.strangers(),
	}
	if err := s.o.Engine(ctx); err != nil {
		st.Engine = err.Error()
	}
	return st, nil
}

// Clock implements DaemonServer.
func (s *server) Clock(context.Context, *ClockRequest) (*ClockReply, error) {
	return &ClockReply{Now: s.o.Clock().UnixNano()}, nil
}

// peersMax bounds how many servers one request probes.
const peersMax = 1000

// Probe implements DaemonServer.
func (s *server) Probe(ctx context.Context, q *ProbeRequest) (*ProbeReply, error) {
	if len(q.Peers) > peersMax {
		return nil, fmt.Errorf("%d peers are more than %d", len(q.Peers), peersMax)
	}
	a := &ProbeReply{Seen: make([]*Way, len(q.Peers))}
	var all sync.WaitGroup
	gate := make(chan struct{}, 16) // at once
	for i, p := range q.Peers {
		all.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			seen := s.probeOne(ctx, Peer{Node: p.Node, Address: p.Address, Links: p.Links})
			a.Seen[i] = seen.message()
		})
	}
	all.Wait()
	return a, nil
}

// Expect implements DaemonServer.
func (s *server) Expect(_ context.Context, q *ExpectRequest) (*ExpectReply, error) {
	e, err := s.sessions.begin()
	if err != nil || !q.Links {
		return e, err
	}
	end := s.lent.open(s.tcp.Addr().(*net.TCPAddr), func(c *net.UDPConn) { s.sessions.receive(c, s.o.pass) })
	if e.Links = end != nil; e.Links {
		s.sessions.lend(session(e.Session), end)
	}
	return e, nil
}

// Arrived implements DaemonServer.
func (s *server) Arrived(_ context.Context, q *ArrivedRequest) (*ArrivedReply, error) {
	frames, err := s.sessions.arrived(q.Session)
	if q.End {
		s.sessions.finish(q.Session)
	}
	return &ArrivedReply{Frames: resized[int32](frames)}, err
}
