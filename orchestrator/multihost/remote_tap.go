// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator"
)

// A capture at a node of another server has its socket there. Frames come as they are, each after its length and the instant at which
// it was seen, in CLOCK_MONOTONIC of that server. A byte from here ends it: what was seen until then comes, and then a length of 0.

// tappedFrame is a frame of a capture on another server.
type tappedFrame struct {
	mono int64
	b    []byte
}

// remoteTap is a source on another server.
type remoteTap struct {
	c       net.Conn
	frames  chan tappedFrame
	err     error        // why there are no more, after frames is closed
	first   *tappedFrame // what wait has found
	stopped bool
}

// errEnded is the error of a capture that nobody here has ended.
var errEnded = errors.New("the share of its server has ended the capture")

// tapInterval bounds how long a capture waits for frames before it looks whether it is to end.
const tapInterval = 100 * time.Millisecond

// remoteFrames bounds how many frames wait here.
const remoteFrames = 256

// Tap opens a capture at a node of another server.
func (s *serverNodes) Tap(ctx context.Context, e topo.End) (orchestrator.FrameSource, error) {
	node := s.d.Graph.Nodes[e.Node].Name
	m := &s.placement.Servers[s.placement.At[e.Node]]
	c, err := s.callShare(ctx, m, &shareapi.Open{Stream: shareapi.Stream_STREAM_TAP, Node: node, Port: int32(e.Port)})
	if err != nil {
		return nil, err
	}
	t := &remoteTap{c: c, frames: make(chan tappedFrame, remoteFrames)}
	go func() {
		defer close(t.frames)
		in := bufio.NewReaderSize(c, 64<<10)
		for {
			var head [12]byte
			if _, t.err = io.ReadFull(in, head[:]); t.err != nil {
				t.err = fmt.Errorf("server %s: capture at %s: %w", m, node, t.err)
				return
			}
			n := binary.BigEndian.Uint32(head[:])
			if n > frameMax {
				t.err = fmt.Errorf("server %s: capture at %s: a frame of %d bytes", m, node, n)
			}
			if n == 0 || t.err != nil {
				return
			}
			b := make([]byte, n)
			if _, t.err = io.ReadFull(in, b); t.err != nil {
				t.err = fmt.Errorf("server %s: capture at %s: %w", m, node, t.err)
				return
			}
			t.frames <- tappedFrame{int64(binary.BigEndian.Uint64(head[4:])) - s.Ahead(node), b}
		}
	}()
	return t, nil
}

// frameMax is the largest frame of a capture, in bytes.
const frameMax = 1 << 16

// Receive takes the frames that have come over the connection.
func (t *remoteTap) Receive(take func(mono int64, b []byte)) (n int, err error) {
	if t.first != nil {
		take(t.first.mono, t.first.b)
		t.first, n = nil, 1
	}
	for n < remoteFrames {
		if t.stopped && n == 0 {
			f, ok := <-t.frames
			if !ok {
				return 0, t.err
			}
			take(f.mono, f.b)
			n++
			continue
		}
		select {
		case f, ok := <-t.frames:
			if !ok && t.err == nil && !t.stopped {
				return n, errEnded
			}
			if !ok {
				return n, t.err
			}
			take(f.mono, f.b)
			n++
		default:
			return n, nil
		}
	}
	return n, nil
}

// Wait waits for a frame.
func (t *remoteTap) Wait() {
	select {
	case f, ok := <-t.frames:
		if ok {
			t.first = &f
		}
	case <-time.After(tapInterval):
	}
}

// Stop asks the share to send what it has seen, and no more.
func (t *remoteTap) Stop() error {
	if t.stopped {
		return nil
	}
	t.stopped = true
	_, err := t.c.Write([]byte{0})
	return errors.Join(err, t.c.SetReadDeadline(time.Now().Add(peerWait)))
}

// Close ends the connection.
func (t *remoteTap) Close() error {
	err := t.c.Close()
	for range t.frames { // until what reads it has ended
	}
	return err
}

// tap sends the frames of a port here to the caller, until the caller ends the connection.
func (x *worker) tap(ctx context.Context, c net.Conn, q *shareapi.Open) error {
	t, err := x.openTap(ctx, q)
	if err := shareapi.Reply(c, err); err != nil || t == nil {
		return err
	}
	defer func() { _ = t.Close() }() // it was only read
	over := make(chan bool, 1)
	go func() {
		_, err := io.ReadFull(c, make([]byte, 1))
		over <- err == nil
	}()
	out := bufio.NewWriterSize(c, 64<<10)
	for last := false; ; {
		var sent error
		n, err := t.Receive(func(mono int64, b []byte) {
			head := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, uint32(len(b))), uint64(mono))
			if _, sent = out.Write(head); sent == nil {
				_, sent = out.Write(b)
			}
		})
		if err == nil && n == 0 && sent == nil {
			sent = out.Flush()
		}
		switch {
		case err != nil:
			return fmt.Errorf("capture at %s: %w", q.Node, err)
		case sent != nil:
			return nil // he has hung up
		case last && n == 0:
			_, _ = out.Write(make([]byte, 12)) // likewise
			_ = out.Flush()
			return nil
		}
		if n == 0 {
			t.Wait()
		}
		select {
		case asked := <-over:
			if !asked {
				return nil
			}
			last = true
		default:
		}
	}
}

// openTap opens a capture at a node of this share.
func (x *worker) openTap(ctx context.Context, q *shareapi.Open) (orchestrator.FrameSource, error) {
	p, i, err := x.nodeHere(q.Node)
	if err != nil {
		return nil, err
	}
	if i < 0 || q.Port < 0 || int(q.Port) >= len(p.Graph.Nodes[i].Links) {
		return nil, fmt.Errorf("node %s has no port %d", q.Node, q.Port)
	}
	return p.Access.Tap(ctx, topo.End{Node: i, Port: int(q.Port)})
}
