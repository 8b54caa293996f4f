// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator/multihost/trust"
)

// A server's share of a lab is made by a process of its own, which the engine starts for the daemon: the daemon itself has no
// privileges. It passes bytes between a deployer and that process.

// ErrNoShare is the error of a server without a process of the lab.
var ErrNoShare = errors.New("no process here has a share of this lab")

// Labs are the shares of labs on a server.
type Labs interface {
	// Start starts the process of a share, if it does not run, and returns when it takes calls.
	Start(ctx context.Context, lab string) error
	// Dial connects to the process of a share. It returns ErrNoShare if there is none.
	Dial(ctx context.Context, lab string) (net.Conn, error)
	// DialPeers connects to the socket of that process for shares of the same lab on other servers.
	DialPeers(ctx context.Context, lab string) (net.Conn, error)
	// End ends the process, which has to have removed its part of the lab before.
	End(ctx context.Context, lab string) error
	// List returns the names of the labs with a share here.
	List(ctx context.Context) ([]string, error)
}

// keeps returns an error unless the daemon may keep a lab of this name.
func (s *server) keeps(lab string) error {
	if !trust.LabOK(lab) {
		return fmt.Errorf("%q cannot be the name of a lab", lab)
	}
	if s.o.Labs == nil {
		return errors.New("this daemon keeps no labs")
	}
	return nil
}

// StartLab implements DaemonServer.
func (s *server) StartLab(ctx context.Context, q *StartLabRequest) (*StartLabReply, error) {
	if err := s.keeps(q.Lab); err != nil {
		return nil, err
	}
	return &StartLabReply{}, s.o.Labs.Start(ctx, q.Lab)
}

// EndLab implements DaemonServer.
func (s *server) EndLab(ctx context.Context, q *EndLabRequest) (*EndLabReply, error) {
	if err := s.keeps(q.Lab); err != nil {
		return nil, err
	}
	return &EndLabReply{}, s.o.Labs.End(ctx, q.Lab)
}

// ListLabs implements DaemonServer.
func (s *server) ListLabs(ctx context.Context, _ *ListLabsRequest) (*ListLabsReply, error) {
	if s.o.Labs == nil {
		return &ListLabsReply{}, nil
	}
	all, err := s.o.Labs.List(ctx)
	return &ListLabsReply{Labs: all}, err
}

// stream passes bytes between a caller and the process of a share, until one of them has no more.
func (s *server) stream(near *accepted) {
	ctx, stop := context.WithTimeout(context.Background(), requestWait)
	defer stop()
	far, err := s.open(ctx, near)
	if far != nil {
		defer func() { _ = far.Close() }() // it has ended, or nothing was sent
	}
	if rerr := shareapi.Reply(near, err); err != nil || rerr != nil || near.SetDeadline(time.Time{}) != nil {
		return
	}
	defer guard(near.Conn, aliveIdle, aliveCount*aliveIdle)()
	shareapi.Join(near, far)
}

// open reads the header of a stream, and connects to the share that it names if the caller may.
func (s *server) open(ctx context.Context, near *accepted) (net.Conn, error) {
	until, _ := ctx.Deadline()
	if err := near.SetDeadline(until); err != nil {
		return nil, err
	}
	if c, ok := near.NetConn().(*net.TCPConn); ok {
		if err := c.SetKeepAliveConfig(alive()); err != nil {
			return nil, err
		}
	}
	q, err := shareapi.Accept(near)
	if err != nil {
		return nil, err
	}
	state := near.ConnectionState()
	who, err := trust.Peer(&state)
	if err != nil {
		return nil, err
	}
	method := shareStream
	if q.Stream == shareapi.Stream_STREAM_TO_PEERS {
		method = peersStream
	}
	if err := allowed(who, method, q.Lab); err != nil {
		return nil, err
	}
	if err := s.keeps(q.Lab); err != nil {
		return nil, err
	}
	if method == peersStream {
		return s.o.Labs.DialPeers(ctx, q.Lab)
	}
	return s.o.Labs.Dial(ctx, q.Lab)
}

// StartLab has a server start the process of its share of a lab.
func (c *Client) StartLab(ctx context.Context, lab string) error {
	return c.ask(ctx, func(ctx context.Context, k DaemonClient) error {
		_, err := k.StartLab(ctx, &StartLabRequest{Lab: lab})
		return err
	})
}

// EndLab ends it.
func (c *Client) EndLab(ctx context.Context, lab string) error {
	return c.ask(ctx, func(ctx context.Context, k DaemonClient) error {
		_, err := k.EndLab(ctx, &EndLabRequest{Lab: lab})
		return err
	})
}

// Labs lists the labs that have a share on a server.
func (c *Client) Labs(ctx context.Context) (labs []string, err error) {
	err = c.ask(ctx, func(ctx context.Context, k DaemonClient) error {
		a, err := k.ListLabs(ctx, &ListLabsRequest{})
		labs = a.GetLabs()
		return err
	})
	return labs, err
}

// DialShare connects to the process of a server's share of a lab.
func (c *Client) DialShare(ctx context.Context, lab string) (net.Conn, error) {
	return c.open(ctx, shareapi.Stream_STREAM_TO_SHARE, lab)
}

// DialPeers connects to it as a share of the same lab on another server.
func (c *Client) DialPeers(ctx context.Context, lab string) (net.Conn, error) {
	return c.open(ctx, shareapi.Stream_STREAM_TO_PEERS, lab)
}

// open opens a stream. It has a TLS connection of its own, so that the daemon passes its bytes on as they are.
func (c *Client) open(ctx context.Context, to shareapi.Stream, lab string) (net.Conn, error) {
	conn, err := c.dial(ctx, protocolStream)
	if err != nil {
		return nil, err
	}
	unguard := guard(conn, aliveIdle, aliveCount*aliveIdle)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err = shareapi.Begin(conn, &shareapi.Open{Stream: to, Lab: lab}); err == nil {
		return &shareConn{conn, unguard}, nil
	}
	unguard()
	_ = conn.Close() // the first error is the one that counts
	if err.Error() == ErrNoShare.Error() {
		err = ErrNoShare
	}
	return nil, err
}

// shareConn is a guarded connection.
type shareConn struct {
	net.Conn
	unguard func()
}

// Close implements net.Conn.
func (c *shareConn) Close() error {
	c.unguard()
	return c.Conn.Close()
}
