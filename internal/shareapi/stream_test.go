// SPDX-License-Identifier: Apache-2.0

package shareapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// goldenOpen is a header: its length, and fields 1 to 6 of Open.
const goldenOpen = "10" + "080b" + "12026831" + "1802" + "2003" + "284d" + "32027b7d"

// TestOpenBytes: a header has its golden bytes, is read back without a byte of the stream, and no truncation of it is one.
func TestOpenBytes(t *testing.T) {
	o := &Open{Stream: Stream_STREAM_TRUNK, Node: "h1", Port: 2, From: 3, Vni: 77, Run: []byte("{}")}
	b := sent(t, func(c net.Conn) error { return write(c, o) })
	if got := fmt.Sprintf("%x", b); got != goldenOpen {
		t.Errorf("%s, want %s", got, goldenOpen)
	}
	for n := range len(b) + 1 {
		near, far := net.Pipe()
		go func() {
			_, _ = near.Write(b[:n]) // the reader sees it
			if n == len(b) {
				_, _ = near.Write([]byte("stream"))
			}
			_ = near.Close()
		}()
		got, err := Accept(far)
		if n < len(b) {
			if err == nil || (n == 0) != errors.Is(err, io.EOF) {
				t.Errorf("%d of %d bytes: %v, %v", n, len(b), got, err)
			}
			continue
		}
		rest, rerr := io.ReadAll(far)
		if err != nil || rerr != nil || !proto.Equal(got, o) || string(rest) != "stream" {
			t.Errorf("%v and %q, %v, %v", got, rest, err, rerr)
		}
	}
	near, far := net.Pipe()
	go func() { _, _ = near.Write([]byte{0xff, 0xff, 0xff, 0x7f}) }() // 256 MiB
	if _, err := Accept(far); err == nil {
		t.Error("a header has no bound")
	}
	_ = near.Close()
}

// sent returns the bytes that a function writes.
func sent(t *testing.T, f func(net.Conn) error) []byte {
	t.Helper()
	near, far := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- errors.Join(f(near), near.Close()) }()
	b, err := io.ReadAll(far)
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBegin: the reply to a header opens the stream, or has the reason why not; without a reply the connection has hung up.
func TestBegin(t *testing.T) {
	for _, x := range []struct {
		reply func(net.Conn) error
		want  string
	}{
		{func(c net.Conn) error { return Reply(c, nil) }, ""},
		{func(c net.Conn) error { return Reply(c, errors.New("node h9 is not here")) }, "node h9 is not here"},
		{func(c net.Conn) error { return c.Close() }, ErrHungUp.Error()},
	} {
		near, far := net.Pipe()
		go func() {
			if _, err := Accept(far); err == nil {
				_ = x.reply(far) // the other end sees it
			}
		}()
		if err := Begin(near, &Open{Stream: Stream_STREAM_CLOCK}); (err == nil) != (x.want == "") || err != nil && err.Error() != x.want {
			t.Errorf("%v, want %q", err, x.want)
		}
		_, _ = near.Close(), far.Close() // nothing is under way
	}
}

// TestShareMessage: no field of a share is lost on the way.
func TestShareMessage(t *testing.T) {
	s := &Share{
		Lab: []byte("lab"), At: []int{0, 1}, Own: 1, Hosts: []string{"10.0.0.1", "10.0.0.2"}, Names: []string{"a", "b"}, VNI: 77, Port: 7942, Controllers: []int{0, 1, 0},
		Peers:  &Peers{Nodes: []string{"m1", "m2"}, Port: 7940, Credentials: []byte("key")},
		Attach: map[string]string{"h1": "eth1"}, Userspace: []Pair{{A: 0, B: 1, Why: "test"}}, Management: true,
	}
	v := reflect.ValueOf(*s)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("%s is not tested", v.Type().Field(i).Name)
		}
	}
	b, err := proto.Marshal(s.Request())
	if err != nil {
		t.Fatal(err)
	}
	q := &StartRequest{}
	if err := proto.Unmarshal(b, q); err != nil || !reflect.DeepEqual(q.Share(), s) {
		t.Errorf("%+v, %v, want %+v", q.Share(), err, s)
	}
}

// fakeShare is a service that has the log of one node.
type fakeShare struct {
	UnimplementedShareServer
	hold chan struct{}
}

// Logs implements ShareServer.
func (s *fakeShare) Logs(_ context.Context, q *LogsRequest) (*LogsReply, error) {
	switch q.Node {
	case "h1":
		return &LogsReply{Log: bytes.Repeat([]byte("x"), 5<<20)}, nil
	case "h2":
		<-s.hold
	}
	return nil, status.Error(codes.Unknown, "no node "+q.Node)
}

// TestAsk: calls of the service go over one connection, with large replies; errors are plain, and the end of the connection has an error of its own.
func TestAsk(t *testing.T) {
	s, fake := grpc.NewServer(grpc.MaxSendMsgSize(MessageMax)), &fakeShare{hold: make(chan struct{})}
	defer s.Stop()
	defer close(fake.hold)
	RegisterShareServer(s, fake)
	for _, x := range []struct{ node, want string }{{"h1", ""}, {"h9", "no node h9"}, {"h2", ErrHungUp.Error()}, {"h2", context.Canceled.Error()}} {
		near, far := net.Pipe()
		accepted := make(chan error, 1)
		go func() {
			o, err := Accept(far)
			if err == nil && o.Stream != Stream_STREAM_SHARE {
				err = fmt.Errorf("a stream %s", o.Stream)
			}
			accepted <- errors.Join(err, Reply(far, nil))
			_ = s.Serve(&once{conn: far}) // ends at once, and the connection stays
		}()
		ctx, cancel := context.WithCancel(t.Context())
		err := Ask(ctx, near, func(k ShareClient) error {
			if err := <-accepted; err != nil {
				t.Error(err)
			}
			switch x.want {
			case ErrHungUp.Error():
				_ = far.Close()
			case context.Canceled.Error():
				cancel()
			}
			a, err := k.Logs(ctx, &LogsRequest{Node: x.node})
			if err == nil && len(a.Log) != 5<<20 {
				t.Errorf("%d bytes", len(a.Log))
			}
			return err
		})
		cancel()
		if (err == nil) != (x.want == "") || err != nil && !strings.HasSuffix(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.node, err, x.want)
		}
		if _, err := near.Write([]byte{0}); err == nil {
			t.Errorf("%s: the connection is open", x.node)
		}
	}
}

// once is a listener with one connection.
type once struct {
	net.Listener
	conn net.Conn
}

// Accept implements net.Listener.
func (l *once) Accept() (c net.Conn, err error) {
	if c, l.conn = l.conn, nil; c == nil {
		return nil, io.EOF
	}
	return c, nil
}

// Close implements net.Listener.
func (l *once) Close() error { return nil }

// Addr implements net.Listener.
func (l *once) Addr() net.Addr { return &net.UnixAddr{} }
