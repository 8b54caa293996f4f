// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// helloWait bounds how long a new connection may take to identify its replica.
const helloWait = 5 * time.Second

// Network is one replica's side of the control network: connections to the others over unix
// sockets. A replica has two: one for raft, and one for the calls of clients that a follower passes
// on to the leader. Sending to another replica can be cut off; then messages
// wait, as on a network that loses packets, until the cut ends or the sender gives up. The other
// direction belongs to the other replica's Network.
type Network struct {
	self   string
	socket Socket
	raft   *port
	calls  *port
	done   chan struct{}
	ends   sync.Once
	all    sync.WaitGroup

	mu      sync.Mutex
	cut     map[string]bool // replicas that nothing is sent to
	frozen  bool            // nothing is sent or read at all
	muted   int             // nothing is sent, if it is not 0
	changed chan struct{}   // closed when cut or frozen change
	held    uint64          // messages that had to wait
	open    map[*conn]bool
}

// Socket returns the path of a socket of a replica: nodeapi.PeerSocket or nodeapi.CallsSocket.
type Socket func(id, name string) string

// port is one of the two sockets of a replica.
type port struct {
	n     *Network
	name  string
	l     *net.UnixListener
	queue chan net.Conn // connections whose replica is known
}

// Listen makes the sockets of replica self. Errors of accepting connections are written to log.
func Listen(self string, log io.Writer, socket Socket) (*Network, error) {
	n := &Network{self: self, socket: socket, done: make(chan struct{}), changed: make(chan struct{}), cut: map[string]bool{}, open: map[*conn]bool{}}
	var err error
	if n.raft, err = n.listen(nodeapi.PeerSocket); err != nil {
		return nil, err
	}
	if n.calls, err = n.listen(nodeapi.CallsSocket); err != nil {
		return nil, errors.Join(err, n.raft.l.Close())
	}
	n.all.Go(func() { n.raft.accept(log) })
	n.all.Go(func() { n.calls.accept(log) })
	return n, nil
}

func (n *Network) listen(name string) (*port, error) {
	path := n.socket(n.self, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	return &port{n: n, name: name, l: l, queue: make(chan net.Conn)}, nil
}

// Cut sets the replicas to which nothing gets through; all others are reached.
func (n *Network) Cut(to []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
	for _, id := range to {
		n.cut[id] = true
	}
	n.signal()
}

// Freeze stops all traffic of the replica, as if its process were stopped, or resumes it.
func (n *Network) Freeze(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frozen = on
	n.signal()
}

// mute silences the replica, once more or once less.
func (n *Network) mute(by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.muted += by
	n.signal()
}

func (n *Network) signal() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// Held returns the number of messages that could not be sent without delay.
func (n *Network) Held() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.held
}

// Close ends all connections.
func (n *Network) Close() error {
	var err error
	n.ends.Do(func() {
		close(n.done)
		err = errors.Join(n.raft.l.Close(), n.calls.l.Close())
		n.mu.Lock()
		for c := range n.open { // independent of each other
			_ = c.Conn.Close()
		}
		n.mu.Unlock()
		n.all.Wait()
	})
	return err
}

// gate returns whether a message may pass now. If it may not, news is closed when that may have
// changed.
func (n *Network) gate(to string, sending bool) (open bool, news <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.frozen || sending && (n.cut[to] || n.muted > 0) {
		return false, n.changed
	}
	return true, nil
}

// pass waits until a message may pass.
func (n *Network) pass(c *conn, sending bool) error {
	for first := true; ; first = false {
		open, news := n.gate(c.to, sending)
		if open {
			return nil
		}
		if first {
			n.mu.Lock()
			n.held++
			n.mu.Unlock()
		}
		wait := time.NewTimer(deadlineLook)
		select {
		case <-news:
		case <-wait.C: // the deadline may have been changed in the meantime
		case <-c.closed:
			wait.Stop()
			return net.ErrClosed
		case <-n.done:
			wait.Stop()
			return net.ErrClosed
		}
		wait.Stop()
		if d := c.deadline(sending); !d.IsZero() && time.Now().After(d) {
			return os.ErrDeadlineExceeded
		}
	}
}

// deadlineLook is the interval at which a read or write that waits checks its deadline.
const deadlineLook = 20 * time.Millisecond

func (p *port) accept(log io.Writer) {
	for {
		c, err := nodeapi.Accept(p.l.Accept, log)
		if err != nil {
			return // closed
		}
		p.n.all.Go(func() { p.greet(c) })
	}
}

// greet reads which replica has connected, and hands the connection to the port's listener.
func (p *port) greet(c net.Conn) {
	id, err := hello(c)
	if err != nil {
		_ = c.Close() // no replica
		return
	}
	w := p.n.wrap(c, id)
	_, err = w.Write([]byte{1})
	if err == nil {
		err = w.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = w.Close()
		return
	}
	select {
	case p.queue <- w:
	case <-p.n.done:
		_ = w.Close()
	}
}

// hello reads the ID with which a connection begins, after one byte with its length.
func hello(c net.Conn) (id string, err error) {
	if err := c.SetDeadline(time.Now().Add(helloWait)); err != nil {
		return "", err
	}
	b := make([]byte, 1, 256)
	if _, err := io.ReadFull(c, b); err != nil {
		return "", err
	}
	b = b[:b[0]]
	_, err = io.ReadFull(c, b)
	return string(b), err
}

func (n *Network) wrap(c net.Conn, to string) *conn {
	w := &conn{Conn: c, n: n, to: to, closed: make(chan struct{})}
	n.mu.Lock()
	n.open[w] = true
	n.mu.Unlock()
	select {
	case <-n.done:
		_ = c.Close()
	default:
	}
	return w
}

// dial connects to the same port of another replica. Like a handshake, it needs both directions.
func (p *port) dial(to string, timeout time.Duration) (net.Conn, error) {
	n, until := p.n, time.Now().Add(timeout)
	c, err := net.DialTimeout("unix", n.socket(to, p.name), timeout)
	if err != nil {
		return nil, fmt.Errorf("reach %s: %w", to, err)
	}
	w := n.wrap(c, to)
	err = w.SetDeadline(until)
	if err == nil {
		_, err = w.Write(append([]byte{byte(len(n.self))}, n.self...))
	}
	var ack [1]byte
	if err == nil {
		_, err = io.ReadFull(w, ack[:])
	}
	if err == nil {
		err = w.SetDeadline(time.Time{})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reach %s: %w", to, err), w.Close())
	}
	return w, nil
}

// conn is a connection whose traffic the Network can hold back.
type conn struct {
	net.Conn
	n      *Network
	to     string
	closed chan struct{}
	once   sync.Once

	mu          sync.Mutex
	read, write time.Time // deadlines
}

func (c *conn) deadline(sending bool) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sending {
		return c.write
	}
	return c.read
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.n.pass(c, true); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	k, err := c.Conn.Read(b)
	if gate := c.n.pass(c, false); gate != nil && err == nil {
		return 0, gate // the bytes read are lost, and so is the connection
	}
	return k, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		close(c.closed)
		c.n.mu.Lock()
		delete(c.n.open, c)
		c.n.mu.Unlock()
		err = c.Conn.Close()
	})
	return err
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.read = t
	c.mu.Unlock()
	return c.Conn.SetReadDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	c.write = t
	c.mu.Unlock()
	return c.Conn.SetWriteDeadline(t)
}

// side is a port as a listener, and as raft.StreamLayer. A replica that crashes and starts again has another.
type side struct {
	*port
	done chan struct{}
	once sync.Once
}

func (p *port) side() *side { return &side{port: p, done: make(chan struct{})} }

// Accept implements net.Listener.
func (s *side) Accept() (net.Conn, error) {
	select {
	case c := <-s.queue:
		return c, nil
	case <-s.done:
	case <-s.n.done:
	}
	return nil, net.ErrClosed
}

// Close implements net.Listener. The port's own socket stays.
func (s *side) Close() error {
	s.once.Do(func() { close(s.done) })
	return nil
}

// Addr implements net.Listener: replicas are called by their names.
func (s *side) Addr() net.Addr { return address(s.n.self) }

// Dial implements raft.StreamLayer.
func (s *side) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return s.dial(string(to), timeout)
}

// address is a replica's name as an address.
type address string

// Network implements net.Addr.
func (address) Network() string { return "mcastlab" }

// String implements net.Addr.
func (a address) String() string { return string(a) }
