// SPDX-License-Identifier: Apache-2.0

package shareapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// MessageMax bounds a message in either direction, in bytes.
const MessageMax = 8 << 20

// ErrHungUp reports a connection that ended before the reply. A daemon that the Swarm restarts causes it.
var ErrHungUp = errors.New("connection closed before the reply")

// Begin opens a stream: it sends the header of a connection, and waits for the reply.
func Begin(c net.Conn, o *Open) error {
	reply := &Opened{}
	err := write(c, o)
	if err == nil {
		err = read(c, reply)
	}
	switch {
	case errors.Is(err, io.EOF):
		return ErrHungUp
	case err != nil:
		return err
	case reply.Error != "":
		return errors.New(reply.Error)
	}
	return nil
}

// Accept reads the header of a connection. The error is io.EOF if there is none.
func Accept(c net.Conn) (*Open, error) {
	o := &Open{}
	return o, read(c, o)
}

// Reply accepts a stream, or refuses it with an error.
func Reply(c net.Conn, err error) error {
	reply := &Opened{}
	if err != nil {
		reply.Error = err.Error()
	}
	return write(c, reply)
}

func write(c net.Conn, m proto.Message) error {
	var b bytes.Buffer // one write, and so one packet
	_, err := protodelim.MarshalTo(&b, m)
	if err == nil {
		_, err = c.Write(b.Bytes())
	}
	return err
}

// read reads one message, and no byte after it: the stream begins there.
func read(c net.Conn, m proto.Message) error {
	return protodelim.UnmarshalOptions{MaxSize: MessageMax}.UnmarshalFrom(single{c}, m)
}

// single reads the length of a message byte by byte.
type single struct{ net.Conn }

// ReadByte implements io.ByteReader.
func (s single) ReadByte() (byte, error) {
	var b [1]byte
	_, err := io.ReadFull(s.Conn, b[:])
	return b[0], err
}

// Ask calls the service Share over a connection, which it closes then.
func Ask(ctx context.Context, c net.Conn, f func(ShareClient) error) error {
	err := ask(ctx, c, f)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func ask(ctx context.Context, c net.Conn, f func(ShareClient) error) error {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	defer func() { _ = c.Close() }() // nothing is under way
	if err := Begin(c, &Open{Stream: Stream_STREAM_SHARE}); err != nil {
		return err
	}
	var once sync.Once
	dial := func(context.Context, string) (conn net.Conn, err error) {
		err = ErrHungUp // there is no other connection
		once.Do(func() { conn, err = c, nil })
		return conn, err
	}
	conn, err := grpc.NewClient("passthrough:///share", append(nodeapi.Plain(), grpc.WithContextDialer(dial), grpc.WithIdleTimeout(0),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MessageMax), grpc.MaxCallSendMsgSize(MessageMax)))...)
	if err != nil {
		return fmt.Errorf("call a share: %w", err)
	}
	defer func() { _ = conn.Close() }() // likewise
	if err = f(NewShareClient(conn)); status.Code(err) == codes.Unavailable {
		return ErrHungUp
	}
	return err
}

// Join passes bytes both ways between two connections, and returns when both are closed: each is when the other has no more.
func Join(near, far net.Conn) {
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0]) // the reader of the rest sees the end
			_ = way[1].Close()
		})
	}
	both.Wait()
}
