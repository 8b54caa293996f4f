package verbs

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// Loop gives access to the NIC (live.Loop).
type Loop interface {
	// Call runs f with exclusive access to the NIC and reports whether it has; at vtime.Never
	// it does so as soon as it can.
	Call(at vtime.Time, f func(now vtime.Time)) bool
}

// Config is what a server needs.
type Config struct {
	Loop Loop
	NIC  *virtrnic.NIC
	Pool *wire.Pool // of the NIC's frames
	MTU  int        // of the port, in bytes of payload
}

// Server serves programs at one NIC. The loop's machine has to be Gate, and the loop must call
// News after each input.
type Server struct {
	loop Loop
	nic  *virtrnic.NIC
	pool *wire.Pool
	mtu  int

	// What follows is touched within Call, News or Gate only: with the loop's lock.
	qps       map[wire.QPN]*qp
	regions   map[uint32]*region // by key
	owners    map[uint32]*client // of the regions
	clients   map[*client]bool
	completed uint64 // the NIC's count at the last look

	mu       sync.Mutex
	closed   bool
	listener *net.UnixListener
	conns    map[*net.UnixConn]bool
	done     chan struct{} // closed by Close
	running  sync.WaitGroup
}

// NewServer returns a server without programs.
func NewServer(c Config) *Server {
	return &Server{
		loop: c.Loop, nic: c.NIC, pool: c.Pool, mtu: c.MTU, qps: map[wire.QPN]*qp{}, regions: map[uint32]*region{}, owners: map[uint32]*client{},
		clients: map[*client]bool{}, conns: map[*net.UnixConn]bool{},
		done: make(chan struct{}),
	}
}

// Serve takes connections until Close. The listener has to be of the kind unixpacket.
func (s *Server) Serve(l *net.UnixListener) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return l.Close()
	}
	s.listener = l
	s.mu.Unlock()
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("wait for programs: %w", err)
		}
		s.mu.Lock()
		if s.closed || len(s.conns) >= clientsMax {
			s.mu.Unlock()
			_ = conn.Close()
			continue
		}
		s.conns[conn] = true
		s.running.Add(1)
		s.mu.Unlock()
		go func() {
			defer s.running.Done()
			s.serve(conn)
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
		}()
	}
}

// clientsMax bounds how many programs a NIC has at a time.
const clientsMax = 1024

// Close ends all connections and returns when the NIC has nothing any more that was made over them. It
// does not wait for a program whose memory does not answer.
func (s *Server) Close() error {
	s.mu.Lock()
	if !s.closed {
		close(s.done)
	}
	s.closed = true
	var err error
	if s.listener != nil {
		err = s.listener.Close()
	}
	for c := range s.conns { // independent of each other
		_ = c.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
	return err
}

// call runs f with the NIC to itself. It reports whether it has, which it does unless the loop has ended.
func (s *Server) call(f func(now vtime.Time)) bool { return s.loop.Call(vtime.Never, f) }

// News hands completions and events on to the programs. The loop calls it after each input,
// with its lock. It needs no other call.
func (s *Server) News(vtime.Time) (alarm vtime.Time) {
	done := s.nic.Completions()
	if done == s.completed {
		return vtime.Never
	}
	s.completed = done
	for c := range s.clients { // independent of each other
		c.collect()
	}
	for {
		e, ok := s.nic.GetAsyncEvent()
		if !ok {
			return vtime.Never
		}
		s.hand(e)
	}
}

// hand gives an asynchronous event to the program whose object it is about.
func (s *Server) hand(e virtrnic.AsyncEvent) {
	if e.QP != nil {
		if q := s.qps[e.QP.Num()]; q != nil {
			q.client.tell(event{uint32(e.Type), uint32(e.QP.Num())})
		}
		return
	}
	for c := range s.clients { // at most one has it
		for _, q := range c.cqs {
			if q.cq == e.CQ {
				c.tell(event{uint32(e.Type), q.id})
			}
		}
	}
}
