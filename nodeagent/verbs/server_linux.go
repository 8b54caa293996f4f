// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/cm"
	"github.com/mcastlab/mcastlab/core/igmp"
	"github.com/mcastlab/mcastlab/core/mrp"
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

// Config has the parameters of a server.
type Config struct {
	Loop Loop
	NIC  *virtrnic.NIC
	Pool *wire.Pool // of the NIC's frames
	MTU  int        // of the port, in bytes of payload
	// Agent registers groups that programs take part in. It may be nil: then there are none.
	Agent  *mrp.Agent
	Groups wire.GroupRange // of the fabric
	// Activate has registration send switches the PSN at which a group begins.
	Activate bool
	// Alias returns the fabric's number of a host that has an address elsewhere, on the management network. Programs may name
	// it so when they meet by rdma_cm. It may be nil.
	Alias func(a netip.Addr) (ip uint32, ok bool)
	// Turns has all that programs do happen in turns of virtual time; nil: as it comes. Then the loop is one whose Call runs f at once.
	Turns *Turns
}

// Server serves programs at one NIC. The loop's machine has to be Gate, and the loop must call
// News after each input.
type Server struct {
	loop Loop
	nic  *virtrnic.NIC
	// requester takes programs' requests: the NIC, and in a benchmark of the rings alone a stub that moves bytes without
	// frames.
	requester interface {
		PostSend(now vtime.Time, q *virtrnic.QP, wr virtrnic.SendWR) error
	}
	pool *wire.Pool
	mtu  int

	pieces   sync.Pool // *[]byte: data on its way to programs' memory
	quotas   [uses]quota
	accounts sync.Mutex         // of client.take
	used     [uses]atomic.Int64 // by all programs
	backlog  atomic.Int64       // client.backlog of all
	starving atomic.Bool        // a program waits for others to release memory of images

	// What follows is touched within Call, News or Gate only: with the loop's lock.
	qps       map[wire.QPN]*qp
	regions   map[uint32]*region // by key
	owners    map[uint32]*client // of the regions
	clients   map[*client]bool
	completed uint64 // the NIC's count at the last look
	most      [kinds]int
	lastID    uint64  // of clients
	told      uint64  // events that programs have been sent, in virtual time
	hungry    bool    // some client.hungry is not 0
	behind    []*pipe // that have more than their sockets hold, in virtual time
	puts      uint64  // pieces of programs' memory that have been written
	turns     *Turns  // nil: programs are served as they come
	cm        *cm.Machine
	alias     func(a netip.Addr) (ip uint32, ok bool)
	ends      map[uint32]*end // of connections, by communication ID
	agent     *mrp.Agent
	ids       wire.GroupRange
	activate  bool
	groups    map[uint32]*group // that operators have offered, by McstID
	joins     *igmp.Host        // multicast groups that queue pairs of programs are attached to

	mu       sync.Mutex
	closed   bool
	time     *timePage // nil before ShowClock, and after Close
	listener *net.UnixListener
	conns    map[*net.UnixConn]bool
	lessor   *lessor
	done     chan struct{} // closed by Close
	running  sync.WaitGroup
}

// NewServer returns a server without programs.
func NewServer(c Config) *Server {
	s := &Server{
		loop: c.Loop, nic: c.NIC, requester: c.NIC, pool: c.Pool, mtu: c.MTU, qps: map[wire.QPN]*qp{}, regions: map[uint32]*region{}, owners: map[uint32]*client{},
		clients: map[*client]bool{}, conns: map[*net.UnixConn]bool{}, quotas: quotas,
		done: make(chan struct{}), most: mostOf(), ends: map[uint32]*end{}, alias: c.Alias, turns: c.Turns,
		agent: c.Agent, ids: c.Groups, activate: c.Activate, groups: map[uint32]*group{},
	}
	if s.turns != nil {
		s.turns.s = s
	}
	s.manage()
	s.joins = igmp.New(igmp.Config{Reporter: c.NIC.Reporter(), Pool: c.Pool, Sender: c.NIC, Next: c.NIC.Stack()})
	c.NIC.SetStack(s.joins)
	c.NIC.SetReturn(gate{s}.returned)
	if s.turns == nil { // in turns the NIC's writes are in memory before time advances
		c.NIC.SetFence(s.fence)
	}
	return s
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
			if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) && !errors.Is(err, unix.ECONNABORTED) {
				return fmt.Errorf("wait for programs: %w", err)
			}
			select { // until a program closes descriptors
			case <-s.done:
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		s.Take(conn)
	}
}

// Take serves a program at a connection, which it closes in the end. It does not wait for that.
func (s *Server) Take(conn *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= clientsMax {
		_ = conn.Close()
		return
	}
	s.conns[conn] = true
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		s.serve(conn)
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
	}()
}

// clientsMax bounds the number of programs of a NIC at a time.
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
	if s.time != nil {
		s.time.close() // programs have mappings of their own
		s.time = nil
	}
	s.mu.Unlock()
	s.running.Wait()
	return err
}

// Joined returns the multicast groups that programs have joined. It is called with the loop's lock.
func (s *Server) Joined() []uint32 { return s.joins.Groups() }

// call runs f with the NIC to itself. It reports whether it has, which it does unless the loop has ended.
func (s *Server) call(f func(now vtime.Time)) bool { return s.loop.Call(vtime.Never, f) }

// News hands completions and events on to the programs. The loop calls it after each input,
// with its lock. It needs no other call.
func (s *Server) News(now vtime.Time) (alarm vtime.Time) {
	done := s.nic.Completions()
	if done == s.completed {
		return vtime.Never
	}
	s.completed = done
	for _, c := range s.inOrder() {
		c.collect(now)
	}
	if len(s.clients) > 0 {
		for _, e := range s.nic.TakeAsyncEvents(s.owns) {
			s.hand(e)
		}
	}
	return vtime.Never
}

// inOrder returns the programs in the order in which they came.
func (s *Server) inOrder() []*client {
	all := slices.Collect(maps.Keys(s.clients))
	slices.SortFunc(all, func(a, b *client) int { return cmp.Compare(a.number, b.number) })
	return all
}

// owns reports whether an event is about an object of a program. The others are of ranks, which
// share the NIC.
func (s *Server) owns(e virtrnic.AsyncEvent) bool {
	if e.QP != nil {
		return s.qps[e.QP.Num()] != nil
	}
	for c := range s.clients { // at most one has it
		for _, q := range c.cqs {
			if e.CQ != nil && q.cq == e.CQ {
				return true
			}
		}
		for _, q := range c.srqs {
			if e.SRQ != nil && q.srq == e.SRQ {
				return true
			}
		}
	}
	return false
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
		for _, q := range c.srqs {
			if q.srq == e.SRQ {
				c.tell(event{uint32(e.Type), q.id})
			}
		}
		for _, q := range c.cqs {
			if q.cq == e.CQ {
				c.tell(event{uint32(e.Type), q.id})
			}
		}
	}
}
