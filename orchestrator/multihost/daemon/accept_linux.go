// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
)

// Protocols of a TLS connection to a daemon (ALPN, RFC 7301): gRPC, or one stream to the process of a share.
const (
	protocolCalls  = "h2"
	protocolStream = "mcastlab-share"
)

// accepted is a connection whose handshake is over. It leaves the list of open connections when it is closed.
type accepted struct {
	*tls.Conn
	end func()
}

// Close implements net.Conn.
func (c *accepted) Close() error {
	c.end()
	return c.Conn.Close()
}

// acceptor accepts connections, and is the listener of those for gRPC.
type acceptor struct {
	net.Listener
	config *tls.Config
	stream func(*accepted)
	calls  chan net.Conn
	done   chan struct{}
	once   sync.Once

	mu   sync.Mutex
	open map[*accepted]bool
	all  sync.WaitGroup
}

func newAcceptor(l net.Listener, config *tls.Config, stream func(*accepted)) *acceptor {
	config.NextProtos = []string{protocolCalls, protocolStream}
	return &acceptor{Listener: l, config: config, stream: stream, calls: make(chan net.Conn), done: make(chan struct{}), open: map[*accepted]bool{}}
}

// run accepts until the listener is closed.
func (a *acceptor) run() {
	for {
		c, err := a.Listener.Accept()
		if err != nil {
			select {
			case <-a.done:
				return
			case <-pauseAfter(): // too many open files
				continue
			}
		}
		t := &accepted{Conn: tls.Server(c, a.config)}
		t.end = func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			delete(a.open, t)
		}
		a.mu.Lock()
		a.open[t] = true
		a.mu.Unlock()
		a.all.Go(func() { a.shake(t) })
		select {
		case <-a.done:
			_ = t.NetConn().Close() // Close may not have seen it
		default:
		}
	}
}

// shake makes the handshake of a connection, and passes it on by its protocol.
func (a *acceptor) shake(t *accepted) {
	ctx, stop := context.WithTimeout(context.Background(), requestWait)
	defer stop()
	if err := t.HandshakeContext(ctx); err != nil {
		_ = t.Close() // strangers do not fill the log
		return
	}
	switch t.ConnectionState().NegotiatedProtocol {
	case protocolCalls:
		select {
		case a.calls <- t:
			return
		case <-a.done:
		}
	case protocolStream:
		a.stream(t)
	}
	_ = t.Close()
}

// Accept implements net.Listener.
func (a *acceptor) Accept() (net.Conn, error) {
	select {
	case c := <-a.calls:
		return c, nil
	case <-a.done:
		return nil, net.ErrClosed
	}
}

// Close ends the listener and all connections.
func (a *acceptor) Close() error {
	err := net.ErrClosed
	a.once.Do(func() {
		close(a.done)
		err = a.Listener.Close()
		a.mu.Lock()
		all := a.open
		a.open = map[*accepted]bool{}
		a.mu.Unlock()
		for t := range all { // independent of each other
			_ = t.Conn.NetConn().Close()
		}
	})
	return err
}
