// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// operator is a connection of root's that offers groups to the programs at this NIC. Its offers end with it.
type operator struct{ s *Server }

// operates reports whether a request is an operator's.
func (o op) operates() bool { return o >= opGroupOffer && o < opGroupEnd }

// byOwner reports whether root is at the other end of a connection, or the user of this process, who has no programs on nodes.
func byOwner(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	own := false
	err = raw.Control(func(fd uintptr) {
		who, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		own = err == nil && (who.Uid == 0 || int(who.Uid) == os.Geteuid())
	})
	return err == nil && own
}

// operate serves an operator until its connection ends.
func (s *Server) operate(conn *net.UnixConn, o op, m any) {
	if s.agent == nil || !byOwner(conn) {
		_, _ = conn.Write(encode(reply{Status: errno(unix.EPERM)})) // it is over in any case
		return
	}
	if o == opGroupServe {
		s.serveLessor(conn)
		return
	}
	x := &operator{s}
	defer x.close()
	for {
		if _, err := conn.Write(encode(x.do(o, m))); err != nil {
			return
		}
		b, fds, err := receive(conn)
		closeAll(fds)
		if err != nil {
			return
		}
		if o, m, err = decode(b); err != nil || o < opGroupMember || o == opGroupSource || o >= opGroupServe {
			return
		}
	}
}

// do does one of its requests.
func (x *operator) do(o op, m any) (r reply) {
	err := error(unix.EIO)
	x.s.call(func(now vtime.Time) {
		offer, ok := m.(*groupOffer)
		if !ok {
			r, err = x.s.change(now, m, nil, x, o)
			return
		}
		var id uint32
		if id, err = addressOf(offer.GID); err == nil && (!x.s.ids.Has(id) || x.s.groups[id] != nil) {
			err = unix.EINVAL
		}
		if err == nil {
			x.s.groups[id] = &group{id: id, owner: x, bound: offer.Bound != 0, held: offer.Bound != 0}
		}
	})
	if err != nil {
		r = reply{Status: errno(err)}
	}
	return r
}

// close withdraws its offers: queue pairs that are in such a group fail.
func (x *operator) close() {
	x.s.call(func(now vtime.Time) {
		for id, g := range x.s.groups { // independent of each other
			if g.owner != x {
				continue
			}
			if q := g.qp; q != nil {
				x.s.leave(now, q)
				if q.qp.State() != virtrnic.StateReset {
					_ = x.s.nic.ModifyQP(now, q.qp, virtrnic.QPAttr{State: virtrnic.StateErr}, virtrnic.AttrState) // any state but RESET may go there
				}
				q.client.work.wake()
			}
			x.s.drop(now, g)
			delete(x.s.groups, id)
		}
	})
}

// lessor is a connection of root's that gives programs at this NIC groups when they want one.
type lessor struct {
	wants chan chan groupGrant
	gone  chan struct{}
}

// want has the lessor give a group.
func (s *Server) want() groupGrant {
	s.mu.Lock()
	l := s.lessor
	s.mu.Unlock()
	none := groupGrant{Reply: reply{Status: errno(unix.EOPNOTSUPP)}}
	if l == nil {
		return none
	}
	got := make(chan groupGrant, 1)
	select {
	case l.wants <- got:
	case <-l.gone:
		return none
	case <-s.done:
		return none
	}
	select {
	case g := <-got:
		return g
	case <-l.gone:
	case <-s.done:
	}
	return none
}

// serveLessor asks a lessor whenever a program wants a group. A later lessor takes the place of an earlier one.
func (s *Server) serveLessor(conn *net.UnixConn) {
	l := &lessor{wants: make(chan chan groupGrant), gone: make(chan struct{})}
	s.mu.Lock()
	s.lessor = l
	s.mu.Unlock()
	said := make(chan groupGrant)
	go func() { // until the connection ends
		defer close(l.gone)
		for {
			b, fds, err := receive(conn)
			closeAll(fds)
			if err != nil {
				return
			}
			_, m, err := decode(b)
			g, ok := m.(*groupGrant)
			if err != nil || !ok {
				return
			}
			select {
			case said <- *g:
			case <-s.done:
				return
			}
		}
	}()
	_, err := conn.Write(encode(reply{})) // it may continue: it is asked from now on
	for err == nil {
		select {
		case got := <-l.wants:
			if _, err = conn.Write(encode(reply{ID: 1})); err != nil {
				break
			}
			select {
			case g := <-said:
				got <- g
			case <-l.gone:
				err = net.ErrClosed
			}
		case <-l.gone:
			err = net.ErrClosed
		}
	}
	_ = conn.Close() // which ends who reads it
	<-l.gone
	s.mu.Lock()
	if s.lessor == l {
		s.lessor = nil
	}
	s.mu.Unlock()
}
