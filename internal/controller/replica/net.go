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

// The first byte of a connection between replicas is its use.
const (
	carriesRaft  = 'r'
	carriesCalls = 'c' // calls of clients that are passed on to the leader
)

// helloWait bounds how long a new connection may take to identify its replica.
const helloWait = 5 * time.Second

// Network is one replica's side of the control network: connections to the others over unix
// sockets, one socket for each replica. Sending to another replica can be cut off; then messages
// wait, as on a network that loses packets, until the cut ends or the sender gives up. The other
// direction belongs to the other replica's Network.
type Network struct {
	self   string
	socket func(id string) string
	l      *net.UnixListener
	queues map[byte]chan net.Conn
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

// Listen makes the socket of replica self; socket returns the path of a replica's socket. Errors
// of accepting connections are written to log.
func Listen(self string, log io.Writer, socket func(id string) string) (*Network, error) {
	path := socket(self)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	n := &Network{
		self: self, socket: socket, l: l, done: make(chan struct{}), changed: make(chan struct{}), cut: map[string]bool{}, open: map[*conn]bool{},
		queues: map[byte]chan net.Conn{carriesRaft: make(chan net.Conn), carriesCalls: make(chan net.Conn)},
	}
	n.all.Go(func() { n.accept(log) })
	return n, nil
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
		err = n.l.Close()
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

func (n *Network) accept(log io.Writer) {
	for {
		c, err := nodeapi.Accept(n.l.Accept, log)
		if err != nil {
			return // closed
		}
		n.all.Go(func() { n.greet(c) })
	}
}

// greet reads which replica has connected, and hands the connection to the listener of its
// kind.
func (n *Network) greet(c net.Conn) {
	fail := func() { _ = c.Close() }
	if err := c.SetDeadline(time.Now().Add(helloWait)); err != nil {
		fail()
		return
	}
	var head [2]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		fail()
		return
	}
	queue := n.queues[head[0]]
	id := make([]byte, head[1])
	if _, err := io.ReadFull(c, id); err != nil || queue == nil {
		fail()
		return
	}
	w := n.wrap(c, string(id))
	_, err := w.Write([]byte{1})
	if err == nil {
		err = w.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = w.Close()
		return
	}
	select {
	case queue <- w:
	case <-n.done:
		_ = w.Close()
	}
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

// dial connects to another replica. Like a handshake, it needs both directions.
func (n *Network) dial(to string, carries byte, timeout time.Duration) (net.Conn, error) {
	until := time.Now().Add(timeout)
	c, err := net.DialTimeout("unix", n.socket(to), timeout)
	if err != nil {
		return nil, fmt.Errorf("reach %s: %w", to, err)
	}
	w := n.wrap(c, to)
	err = w.SetDeadline(until)
	if err == nil {
		_, err = w.Write(append([]byte{carries, byte(len(n.self))}, n.self...))
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

// side is the Network as a listener for connections of one kind.
type side struct {
	n       *Network
	carries byte
	done    chan struct{}
	once    sync.Once
}

func (n *Network) side(carries byte) *side {
	return &side{n: n, carries: carries, done: make(chan struct{})}
}

// Accept implements net.Listener.
func (s *side) Accept() (net.Conn, error) {
	select {
	case c := <-s.n.queues[s.carries]:
		return c, nil
	case <-s.done:
	case <-s.n.done:
	}
	return nil, net.ErrClosed
}

// Close implements net.Listener. The network's own socket stays.
func (s *side) Close() error {
	s.once.Do(func() { close(s.done) })
	return nil
}

// Addr implements net.Listener: replicas are called by their names.
func (s *side) Addr() net.Addr { return address(s.n.self) }

// Dial implements raft.StreamLayer.
func (s *side) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return s.n.dial(string(to), s.carries, timeout)
}

// address is a replica's name as an address.
type address string

// Network implements net.Addr.
func (address) Network() string { return "mcastlab" }

// String implements net.Addr.
func (a address) String() string { return string(a) }
