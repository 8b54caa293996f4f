// SPDX-License-Identifier: Apache-2.0

package trunk

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pipe is one end of a link: packets of a pair of sockets, as many as the kernel keeps.
type pipe struct {
	fd    int
	drops uint64
	full  func() bool // nil: the kernel has room
	b     [frameMax + 1]byte
}

func (p *pipe) FD() int       { return p.fd }
func (p *pipe) Drops() uint64 { return p.drops }

func (p *pipe) Receive(take func(int64, []byte)) (n int, err error) {
	for n < receiveMax {
		k, err := unix.Read(p.fd, p.b[:])
		if errors.Is(err, unix.EAGAIN) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		take(0, p.b[:k])
		n++
	}
	return n, nil
}

func (p *pipe) Send(frames [][]byte) (sent int, err error) {
	for _, f := range frames {
		if p.full != nil && p.full() {
			return sent, nil
		}
		if _, err := unix.Write(p.fd, f); errors.Is(err, unix.EAGAIN) {
			return sent, nil
		} else if err != nil {
			return sent, err
		}
		sent++
	}
	return sent, nil
}

// link returns a link's end for a trunk, and the one of its node.
func link(t *testing.T) (port, node *pipe) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(unix.Close(fds[0]), unix.Close(fds[1])) })
	return &pipe{fd: fds[0]}, &pipe{fd: fds[1]}
}

// conns returns the two ends of a TCP connection.
func conns(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if a, err = net.Dial("tcp", l.Addr().String()); err == nil {
		b, err = l.Accept()
	}
	if err = errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// carried is a trunk that carries.
type carried struct {
	*Trunk
	conn net.Conn
	err  error
	over chan struct{}
}

func carry(t *testing.T, x *Trunk, c net.Conn) *carried {
	t.Helper()
	k := &carried{x, c, nil, make(chan struct{})}
	go func() { defer close(k.over); k.err = x.Carry(c) }()
	t.Cleanup(func() { _ = c.Close(); <-k.over })
	return k
}

// await waits until a socket has a frame, and returns it.
func (p *pipe) await(t *testing.T) []byte {
	t.Helper()
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, 10000); n != 1 {
		t.Error("no frame has come: ", err)
		return nil
	}
	b := make([]byte, frameMax)
	n, err := unix.Read(p.fd, b)
	if err != nil {
		t.Error(err)
		return nil
	}
	return b[:n]
}

// put sends a frame, and waits while the socket is full.
func (p *pipe) put(t *testing.T, frame []byte) {
	t.Helper()
	for {
		_, err := unix.Write(p.fd, frame)
		if !errors.Is(err, unix.EAGAIN) {
			if err != nil {
				t.Error(err)
			}
			return
		}
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLOUT}}, 10000); n != 1 {
			t.Error("the socket stays full")
			return
		}
	}
}

// started waits until the trunk has dropped what came before the connection: a frame arrives at the other end.
func started(t *testing.T, from, to *pipe) {
	t.Helper()
	for range 1000 {
		from.put(t, []byte("begin"))
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(to.fd), Events: unix.POLLIN}}, 10); n == 1 {
			break
		}
	}
	for {
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(to.fd), Events: unix.POLLIN}}, 100); n != 1 {
			return
		}
		to.await(t)
	}
}

// TestCarry: frames of several links come out at the other end in order, both ways, and are counted; a connection may follow another.
func TestCarry(t *testing.T) {
	var near, far [2]*pipe
	ends := [2]map[int]Port{{}, {}}
	for i, k := range []int{5, 900} {
		var a, b *pipe
		a, near[i] = link(t)
		b, far[i] = link(t)
		ends[0][k], ends[1][k] = a, b
	}
	x, y := New(ends[0]), New(ends[1])
	for range 2 {
		a, b := conns(t)
		one, two := carry(t, x, a), carry(t, y, b)
		started(t, near[0], far[0])
		started(t, far[1], near[1])
		before := [2]Counters{x.Counters(), y.Counters()}
		var all sync.WaitGroup
		for i := range near {
			all.Go(func() {
				for k := range 1000 {
					near[i].put(t, append([]byte{byte(i), byte(k >> 8), byte(k)}, make([]byte, k)...))
				}
			})
		}
		for i := range near { // at once: a link that nobody reads holds up the others
			all.Go(func() {
				for k := range 1000 {
					if got := far[i].await(t); len(got) != k+3 || !bytes.HasPrefix(got, []byte{byte(i), byte(k >> 8), byte(k)}) {
						t.Errorf("frame %d of link %d: %d bytes", k, i, len(got))
						return
					}
				}
			})
		}
		all.Wait()
		far[0].put(t, []byte("back"))
		if got := string(near[0].await(t)); got != "back" {
			t.Errorf("back comes %q", got)
		}
		sent, got := x.Counters(), y.Counters()
		if n := sent.SentFrames - before[0].SentFrames; n != 2000 || got.ReceivedFrames-before[1].ReceivedFrames != n || sent.Links != 2 {
			t.Errorf("%+v and %+v have carried 2000 frames", sent, got)
		}
		if sent.SentBytes-before[0].SentBytes < 2*500*1000 || sent.SentBatches-before[0].SentBatches > 2000 {
			t.Errorf("%+v", sent)
		}
		_ = a.Close()
		<-one.over
		<-two.over
		if one.err == nil || !errors.Is(two.err, io.EOF) {
			t.Errorf("the ends say %v and %v", one.err, two.err)
		}
	}
}

// TestBackPressure: a far end without room holds the near end up: what is under way is bounded, and when there is room again all comes, in order.
func TestBackPressure(t *testing.T) {
	a, near := link(t)
	b, far := link(t)
	var mu sync.Mutex
	full := false
	set := func(v bool) { mu.Lock(); full = v; mu.Unlock() }
	b.full = func() bool { mu.Lock(); defer mu.Unlock(); return full }
	c, d := conns(t)
	if err := errors.Join(c.(*net.TCPConn).SetWriteBuffer(1<<16), d.(*net.TCPConn).SetReadBuffer(1<<16)); err != nil {
		t.Fatal(err)
	}
	x, y := New(map[int]Port{1: a}), New(map[int]Port{1: b})
	carry(t, x, c)
	carry(t, y, d)
	started(t, near, far)
	set(true)
	n, frame := 0, make([]byte, 4000)
	for { // until the sender has had no room for a second
		_, err := unix.Write(near.fd, append([]byte{byte(n >> 16), byte(n >> 8), byte(n)}, frame...))
		if err == nil {
			n++
			continue
		}
		if k, _ := unix.Poll([]unix.PollFd{{Fd: int32(near.fd), Events: unix.POLLOUT}}, 1000); k == 0 {
			break
		}
	}
	if bytesOf := n * len(frame); bytesOf > 16<<20 {
		t.Errorf("%d bytes are under way, and the far end takes none", bytesOf)
	}
	set(false)
	for k := range n {
		if got := far.await(t); !bytes.HasPrefix(got, []byte{byte(k >> 16), byte(k >> 8), byte(k)}) {
			t.Fatalf("frame %d of %d has %d bytes", k, n, len(got))
		}
	}
	if x.Counters().Stalls == 0 {
		t.Error("no stall was counted")
	}
}

// TestEnds: each way for a connection to end says why, and leaves nothing behind.
func TestEnds(t *testing.T) {
	for name, x := range map[string]struct {
		far  func(t *testing.T, c net.Conn, node *pipe, port *pipe)
		want string
	}{
		"closed":  {func(_ *testing.T, c net.Conn, _, _ *pipe) { _ = c.Close() }, "EOF"},
		"silent":  {func(*testing.T, net.Conn, *pipe, *pipe) {}, "nothing has come for 300ms"},
		"garbage": {func(_ *testing.T, c net.Conn, _, _ *pipe) { _, _ = c.Write(bytes.Repeat([]byte{0xff}, 64)) }, "a batch of"},
		"strange link": {func(_ *testing.T, c net.Conn, _, _ *pipe) {
			_, _ = c.Write(twoFrames().bytes())
		}, "a frame of link 3, which is not between these servers"},
		"lost": {func(t *testing.T, c net.Conn, node, port *pipe) {
			if _, err := io.ReadFull(c, make([]byte, headerBytes)); err != nil { // a beat: it has begun
				t.Error(err)
			}
			port.drops = 3
			node.put(t, []byte("after three others"))
		}, "link 7: the kernel had no room for frames that were to be sent: 3"},
	} {
		t.Run(name, func(t *testing.T) {
			a, node := link(t)
			k := New(map[int]Port{7: a})
			k.beat, k.silent = 20*time.Millisecond, 300*time.Millisecond
			c, d := conns(t)
			one := carry(t, k, c)
			x.far(t, d, node, a)
			<-one.over
			if one.err == nil || !strings.Contains(one.err.Error(), x.want) {
				t.Errorf("%v, want %s", one.err, x.want)
			}
			if _, err := c.Write([]byte{0}); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the connection is open: %v", err)
			}
			_ = d.Close()
		})
	}
}

// TestBeats: two ends without frames keep each other.
func TestBeats(t *testing.T) {
	a, near := link(t)
	b, far := link(t)
	x, y := New(map[int]Port{1: a}), New(map[int]Port{1: b})
	for _, k := range []*Trunk{x, y} {
		k.beat, k.silent = 50*time.Millisecond, 2*time.Second
	}
	c, d := conns(t)
	one, two := carry(t, x, c), carry(t, y, d)
	select {
	case <-one.over:
		t.Error(one.err)
	case <-two.over:
		t.Error(two.err)
	case <-time.After(3 * time.Second):
	}
	near.put(t, []byte("still"))
	if got := string(far.await(t)); got != "still" {
		t.Errorf("%q has come", got)
	}
	if n := y.Counters(); n.ReceivedFrames != 1 || n.ReceivedBatches != 1 {
		t.Errorf("%+v, after one frame", n)
	}
}
