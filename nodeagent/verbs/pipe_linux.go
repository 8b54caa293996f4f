// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// pipe carries events to a program, which may take its time. What the socket has no room for waits here, in order.
//
// Invariant: no lock is held over a write that can wait, and a message is written only by who has taken it from the front of
// the queue under mu, so that none overtakes another.
type pipe struct {
	c    *client
	raw  syscall.RawConn
	end  *os.File
	mu   sync.Mutex
	some sync.Cond // of mu: queue is not empty, or it is over; no goroutine waits in virtual time
	// queue is not empty only if the socket was full when it was last tried.
	queue []unread
	over  bool
}

// unread is an event that waits in a pipe.
type unread struct {
	b      []byte
	queued *bool // not nil: set while the event waits, so that it need not wait twice
}

// size returns the number of bytes that a waiting event counts: its own, and those of its place in the
// queue.
func (u *unread) size() int64 { return int64(len(u.b)) + 64 }

// newPipe returns a pipe and the descriptor of the program's end, which the caller closes.
func (c *client) newPipe() (*pipe, int, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, 0, err
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, 0, errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
	}
	p := &pipe{c: c, end: os.NewFile(uintptr(fds[0]), "events")}
	p.some.L = &p.mu
	if p.raw, err = p.end.SyscallConn(); err != nil {
		return nil, 0, errors.Join(err, p.end.Close(), unix.Close(fds[1]))
	}
	if c.s.turns == nil {
		go p.run()
	}
	return p, fds[1], nil
}

// send hands over an event. One whose queued is set waits already, and nothing is done. A program that leaves too much unread loses its
// connection to the NIC, without effect on others. send does not wait.
func (p *pipe) send(b []byte, queued *bool) {
	u := unread{b, queued}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || queued != nil && *queued {
		return
	}
	if len(p.queue) == 0 && p.try(b) {
		return
	}
	if err := p.c.take(useEvents, u.size()); err != nil {
		p.c.cut()
		return
	}
	if queued != nil {
		*queued = true
	}
	p.queue = append(p.queue, u)
	p.some.Signal()
	if s := p.c.s; s.turns != nil && len(p.queue) == 1 {
		s.behind = append(s.behind, p)
	}
}

// try writes a message if there is room for it, and reports whether it is done with. It is called with mu.
func (p *pipe) try(b []byte) (written bool) {
	err := p.raw.Control(func(fd uintptr) { written = p.write(fd, b) })
	return written || err != nil
}

// write writes a message if there is room for it, and reports whether it is done with: a program that has closed its end gets
// no messages.
func (p *pipe) write(fd uintptr, b []byte) bool {
	var err error = unix.EINTR
	for errors.Is(err, unix.EINTR) {
		_, err = unix.Write(int(fd), b)
	}
	if errors.Is(err, unix.EAGAIN) {
		return false
	}
	if p.c.s.turns != nil {
		p.c.s.told++
	}
	return true
}

// flush writes waiting messages, as far as there is room, and reports whether none waits any more.
func (p *pipe) flush(fd uintptr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) > 0 && !p.over {
		u := p.queue[0]
		if !p.write(fd, u.b) {
			return false
		}
		if u.queued != nil {
			*u.queued = false
		}
		p.c.give(useEvents, u.size())
		p.queue[0] = unread{}
		p.queue = p.queue[1:]
	}
	p.queue = nil
	return true
}

// run writes waiting messages as soon as there is room, until the pipe is closed.
func (p *pipe) run() {
	for {
		p.mu.Lock()
		for len(p.queue) == 0 && !p.over {
			p.some.Wait()
		}
		over := p.over
		p.mu.Unlock()
		if over || p.raw.Write(p.flush) != nil { // which waits for room between two calls of flush
			return
		}
	}
}

// flushBehind is run in virtual time: programs have had turns, in which they may have read.
func (s *Server) flushBehind() {
	if len(s.behind) == 0 {
		return
	}
	all := s.behind
	s.behind = nil
	for _, p := range all {
		done := true
		if err := p.raw.Control(func(fd uintptr) { done = p.flush(fd) }); err == nil && !done {
			s.behind = append(s.behind, p)
		}
	}
}

func (p *pipe) close() {
	p.mu.Lock()
	p.over = true
	for i := range p.queue {
		p.c.give(useEvents, p.queue[i].size())
	}
	p.queue = nil
	p.some.Signal()
	p.mu.Unlock()
	_ = p.end.Close() // which ends a write that waits
}

// tell hands the program an asynchronous event.
func (c *client) tell(e event) { c.pipe.send(encode(e), nil) }

// mayAsk returns an error if the program has left so many events unread that another request with an event would cost it its
// connection.
func (c *client) mayAsk() error {
	n := (&unread{b: make([]byte, eventMax)}).size()
	if err := c.take(useEvents, n); err != nil {
		return fmt.Errorf("ask for an event: %w", err)
	}
	c.give(useEvents, n)
	return nil
}

// eventMax is longer than any event.
const eventMax = 512

// cut ends the connection of a program, as if the NIC were removed. Its goroutine releases the program's objects. Any goroutine may call
// it.
func (c *client) cut() {
	_ = c.conn.CloseRead() // an error means that it is closed
	_ = c.conn.CloseWrite()
	if c.s.turns != nil {
		c.s.told++ // its program gets a turn, in which the connection is noticed to have ended
	}
}
