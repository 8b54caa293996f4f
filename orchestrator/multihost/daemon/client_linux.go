// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/orchestrator/multihost/trust"
)

// Client calls the daemon of one server.
type Client struct {
	node, address string
	now           func() time.Time
	tls           *tls.Config

	mu   sync.Mutex
	conn *grpc.ClientConn // nil: none yet
}

// dialWait is the time limit for a server to accept a connection.
const dialWait = 3 * time.Second

// NewClient returns a client of the daemon of a node; nothing is sent yet.
func NewClient(c *trust.Credentials, node, address string, clock func() time.Time) *Client {
	return &Client{node: node, address: address, now: clock, tls: c.Client(node, clock)}
}

// Close ends its connection.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		_ = c.conn.Close() // nothing is under way
	}
	c.conn = nil
}

// Status asks a daemon about itself, as a deployer, and for the time: ahead is by how much its clock is.
func (c *Client) Status(ctx context.Context) (st *Status, ahead time.Duration, err error) {
	err = c.ask(ctx, func(ctx context.Context, k DaemonClient) (err error) {
		st, err = k.Status(ctx, &StatusRequest{})
		return err
	})
	if err != nil {
		return st, 0, err
	}
	if st.Node != c.node {
		return st, 0, fmt.Errorf("it is the daemon of the node %s", st.Node)
	}
	var seen Seen
	err = c.clock(ctx, &seen)
	return st, seen.Ahead, err
}

// Probe has a server probe the ways to others.
func (c *Client) Probe(ctx context.Context, peers []Peer) (seen []Seen, err error) {
	q := &ProbeRequest{}
	for _, p := range peers {
		q.Peers = append(q.Peers, &ProbedPeer{Node: p.Node, Address: p.Address, Links: p.Links})
	}
	err = c.ask(ctx, func(ctx context.Context, k DaemonClient) error {
		a, err := k.Probe(ctx, q)
		for _, w := range a.GetSeen() {
			seen = append(seen, seenOf(w))
		}
		return err
	})
	if err == nil && len(seen) != len(peers) {
		err = fmt.Errorf("it has probed %d of %d servers", len(seen), len(peers))
	}
	return seen, err
}

// clock asks for the time a few times, and believes the answer that took the shortest.
func (c *Client) clock(ctx context.Context, seen *Seen) error {
	for i := range 4 {
		var now int64
		before := c.now()
		err := c.ask(ctx, func(ctx context.Context, k DaemonClient) error {
			a, err := k.Clock(ctx, &ClockRequest{})
			now = a.GetNow()
			return err
		})
		if err != nil {
			return err
		}
		after := c.now()
		if trip := after.Sub(before); i == 0 || trip < seen.RoundTrip {
			seen.RoundTrip, seen.Ahead = trip, trust.Ahead(before, after, now)
		}
	}
	return nil
}

// ask makes a call. A connection of an earlier call may have ended meanwhile: then the call is made once more, over another.
func (c *Client) ask(ctx context.Context, f func(context.Context, DaemonClient) error) error {
	ctx, stop := context.WithTimeout(ctx, requestWait)
	defer stop()
	for {
		k, fresh, err := c.connect(ctx)
		if err != nil {
			return err
		}
		err = f(ctx, k)
		if ctx.Err() != nil && err != nil {
			return ctx.Err()
		}
		if status.Code(err) != codes.Unavailable {
			return err
		}
		if c.Close(); fresh {
			return err
		}
	}
}

// connect returns the service over the connection that there is, or over another. It makes that itself, so that errors say whether the port
// answers (Closed); gRPC would only have their text.
func (c *Client) connect(ctx context.Context) (k DaemonClient, fresh bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		return NewDaemonClient(c.conn), false, nil
	}
	first, err := c.dial(ctx, protocolCalls)
	if err != nil {
		return nil, true, err
	}
	var once sync.Once
	dial := func(context.Context, string) (conn net.Conn, err error) {
		err = net.ErrClosed // another connection has another ClientConn
		once.Do(func() { conn, err = first, nil })
		return conn, err
	}
	c.conn, err = grpc.NewClient("passthrough:///"+c.address, append(nodeapi.Plain(), grpc.WithContextDialer(dial), grpc.WithIdleTimeout(0),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // of first, TLS is done
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(requestMax)))...)
	if err != nil {
		c.conn = nil
		return nil, true, errors.Join(err, first.Close())
	}
	return NewDaemonClient(c.conn), true, nil
}

// dial makes a TLS connection for a protocol.
func (c *Client) dial(ctx context.Context, protocol string) (net.Conn, error) {
	config := c.tls.Clone()
	config.NextProtos = []string{protocol}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: dialWait, KeepAliveConfig: alive()}, Config: config}
	return d.DialContext(ctx, "tcp", c.address)
}

// Closed reports whether an error says that nothing answers at a port: not even a refusal by what should listen there.
func Closed(err error) bool {
	var n net.Error
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) ||
		errors.As(err, &n) && n.Timeout()
}
