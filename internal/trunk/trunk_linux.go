// SPDX-License-Identifier: Apache-2.0

package trunk

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Port is the end of a link whose frames go over the connection. Its calls do not block. A live.Packet is one.
type Port interface {
	FD() int // readable when a frame waits
	Receive(take func(wall int64, b []byte)) (n int, err error)
	Send(frames [][]byte) (sent int, err error)
	Drops() uint64 // frames the kernel lost for lack of room
}

// Waits. An end that has nothing to send says so every beat; one that is silent for as long as silence is gone. A batch for which the connection
// takes longer than stall is a stall.
const (
	beatEvery  = time.Second
	silenceMax = 20 * time.Second
	stallMin   = 10 * time.Millisecond
	sendAgain  = time.Millisecond // when the kernel has no room for a frame
)

// receiveMax is the most frames that one call of Receive gives.
const receiveMax = 64

// Trunk is one server's end. Its links stay; connections may follow each other.
type Trunk struct {
	ports  map[int]Port
	links  []int // sorted
	beat   time.Duration
	silent time.Duration

	lost           []uint64 // by place in links: Drops when the connection began
	sent, received count
	stalls         atomic.Uint64
}

type count struct{ frames, bytes, batches atomic.Uint64 }

func (c *count) add(frames uint32, bytes int) {
	c.frames.Add(uint64(frames))
	c.bytes.Add(uint64(bytes))
	c.batches.Add(1)
}

// New returns the end of links by number. The other end has the same.
func New(ports map[int]Port) *Trunk {
	t := &Trunk{ports: ports, beat: beatEvery, silent: silenceMax}
	for k := range ports { // sorted below
		t.links = append(t.links, k)
	}
	slices.Sort(t.links)
	return t
}

// Counters returns what has been carried since New.
func (t *Trunk) Counters() Counters {
	return Counters{
		Links: len(t.links), SentFrames: t.sent.frames.Load(), SentBytes: t.sent.bytes.Load(), SentBatches: t.sent.batches.Load(),
		ReceivedFrames: t.received.frames.Load(), ReceivedBytes: t.received.bytes.Load(), ReceivedBatches: t.received.batches.Load(), Stalls: t.stalls.Load(),
	}
}

// ErrLost says that the kernel has dropped frames before they could be sent.
var ErrLost = errors.New("the kernel had no room for frames that were to be sent")

// Carry carries frames until the connection ends, which it closes, and returns why. Only one call may be under way. What has waited in the links' sockets
// since before the connection is of a run that has ended, and is dropped.
func (t *Trunk) Carry(conn net.Conn) error {
	wake, end, err := os.Pipe()
	if err == nil {
		err = t.clear()
	}
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	var failed error // of receiving, once over is closed
	over := make(chan struct{})
	gone := &atomic.Bool{}
	go func() {
		defer close(over)
		failed = t.receive(conn, gone)
		gone.Store(true)
		_, _ = conn.Close(), end.Close() // what is sent ends by that
	}()
	err = t.send(conn, int(wake.Fd()), gone)
	first := gone.Load() // receiving has ended by itself
	gone.Store(true)
	_ = conn.Close() // err says why
	<-over
	_ = wake.Close() // nobody waits for it any more
	if first || err == nil {
		err = failed
	}
	return err
}

// clear drops what the ports hold.
func (t *Trunk) clear() error {
	t.lost = t.lost[:0]
	for _, k := range t.links {
		p := t.ports[k]
		for n := 1; n > 0; {
			var err error
			if n, err = p.Receive(func(int64, []byte) {}); err != nil {
				return fmt.Errorf("link %d: %w", k, err)
			}
		}
		t.lost = append(t.lost, p.Drops())
	}
	return nil
}

// send sends what comes in at the ports, until gone.
func (t *Trunk) send(conn net.Conn, wake int, gone *atomic.Bool) error {
	fds := []unix.PollFd{{Fd: int32(wake), Events: unix.POLLIN}}
	for _, k := range t.links {
		fds = append(fds, unix.PollFd{Fd: int32(t.ports[k].FD()), Events: unix.POLLIN})
	}
	b := newBatch()
	for last := time.Now(); ; {
		n, err := unix.Poll(fds, int(t.beat/time.Millisecond))
		switch {
		case gone.Load():
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait for frames: %w", err)
		}
		for i, k := range t.links {
			if n <= 0 || fds[1+i].Revents == 0 {
				continue
			}
			if b.room() < receiveMax*(frameHeader+frameMax) {
				if err := t.flush(conn, b); err != nil {
					return err
				}
			}
			if err := t.take(i, k, b); err != nil {
				return err
			}
		}
		if b.frames == 0 && time.Since(last) < t.beat {
			continue
		}
		if err := t.flush(conn, b); err != nil {
			return err
		}
		last = time.Now()
	}
}

// take puts what waits at a port into a batch.
func (t *Trunk) take(i, link int, b *batch) error {
	p := t.ports[link]
	_, err := p.Receive(func(_ int64, frame []byte) {
		if len(frame) > 0 && len(frame) <= frameMax {
			b.add(link, frame)
		}
	})
	if err != nil {
		return fmt.Errorf("link %d: %w", link, err)
	}
	if n := p.Drops() - t.lost[i]; n > 0 {
		return fmt.Errorf("link %d: %w: %d", link, ErrLost, n)
	}
	return nil
}

// flush sends a batch, and waits while the connection has no room.
func (t *Trunk) flush(conn net.Conn, b *batch) error {
	begin := time.Now()
	if _, err := conn.Write(b.bytes()); err != nil {
		return err
	}
	if time.Since(begin) > stallMin {
		t.stalls.Add(1)
	}
	if b.frames > 0 {
		t.sent.add(b.frames, len(b.b))
	}
	b.reset()
	return nil
}

// receive passes received frames to the ports until the connection ends.
func (t *Trunk) receive(conn net.Conn, gone *atomic.Bool) error {
	var header [headerBytes]byte
	buffer := make([]byte, batchMax)
	var frames [][]byte
	for {
		size, n, err := t.header(conn, &header)
		if err == nil {
			_, err = io.ReadFull(conn, buffer[:size])
		}
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = fmt.Errorf("nothing has come for %v", t.silent)
			}
			return err
		}
		if n > 0 {
			t.received.add(n, headerBytes+size)
		}
		if frames, err = t.deliver(buffer[:size], n, frames[:0], gone); err != nil {
			return err
		}
	}
}

func (t *Trunk) header(conn net.Conn, b *[headerBytes]byte) (size int, frames uint32, err error) {
	if err := conn.SetReadDeadline(time.Now().Add(t.silent)); err != nil {
		return 0, 0, err
	}
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return 0, 0, err
	}
	return parseHeader(b)
}

// deliver hands the frames of a batch to their ports, those of one link that follow each other at once. It returns the memory for them.
func (t *Trunk) deliver(b []byte, n uint32, run [][]byte, gone *atomic.Bool) ([][]byte, error) {
	at := -1
	for range n {
		link, frame, rest, err := parseFrame(b)
		if err != nil {
			return run, err
		}
		if t.ports[link] == nil {
			return run, fmt.Errorf("a frame of link %d, which is not between these servers", link)
		}
		if b = rest; link != at {
			if err := t.hand(at, run, gone); err != nil {
				return run, err
			}
			at, run = link, run[:0]
		}
		run = append(run, frame)
	}
	if len(b) > 0 {
		return run, errRest
	}
	return run, t.hand(at, run, gone)
}

// hand hands frames to a port, and waits while the kernel has no room. Other links wait with it.
func (t *Trunk) hand(link int, frames [][]byte, gone *atomic.Bool) error {
	for len(frames) > 0 && !gone.Load() {
		n, err := t.ports[link].Send(frames)
		if err != nil {
			return fmt.Errorf("link %d: %w", link, err)
		}
		if frames = frames[n:]; n == 0 {
			time.Sleep(sendAgain)
		}
	}
	return nil
}
