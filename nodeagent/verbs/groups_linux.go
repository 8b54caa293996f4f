// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// group is an in-network group that programs at this NIC may take part in (CEP-47), because an operator has offered it. It has
// one life: the first queue pair that is connected to its address is the NIC's member, and when that leaves there is no other.
// All its PSNs begin at 0. Everything here is used with the loop's lock.
type group struct {
	id      uint32
	owner   *operator
	bound   bool // the operator registers it, and it stays in the fabric until the operator goes
	held    bool // requests of its source wait until the operator reports that it is registered
	qp      *qp  // the member here; nil: there is none yet, or it has left
	used    bool
	members []mrp.Member // the others, if it is to be registered here
}

// groupMembersMax bounds the members that a program may name. A fabric of as many hosts is far beyond one server.
const groupMembersMax = 4096

// toGroup returns the address of the group that a queue pair is being connected to.
func (s *Server) toGroup(q *qp, a *virtrnic.QPAttr, mask virtrnic.AttrMask) (id uint32, ok bool) {
	ok = s.agent != nil && mask&virtrnic.AttrAV != 0 && q.reliable && s.ids.Has(a.AV.DGID)
	return a.AV.DGID, ok
}

// mayJoin returns the reason why a queue pair may not be modified like that, if groups forbid it: a program that could
// connect to any group would disturb those of other programs and of runs.
func (s *Server) mayJoin(q *qp, a *virtrnic.QPAttr, mask virtrnic.AttrMask) error {
	if id, ok := s.toGroup(q, a, mask); ok {
		g := s.groups[id]
		switch {
		case g == nil:
			return fmt.Errorf("connect queue pair %d to group %v: it is not offered here: %w", q.qp.Num(), wire.AddrOf(id), unix.EINVAL)
		case g.used:
			return fmt.Errorf("connect queue pair %d to group %v: it has had a member here: %w", q.qp.Num(), wire.AddrOf(id), unix.EBUSY)
		case mask&virtrnic.AttrRQPSN != 0 && a.RQPSN != 0:
			return fmt.Errorf("connect queue pair %d to group %v: it begins at PSN 0: %w", q.qp.Num(), wire.AddrOf(id), unix.EINVAL)
		}
	}
	if q.group != nil && mask&virtrnic.AttrSQPSN != 0 && a.SQPSN != 0 {
		return fmt.Errorf("queue pair %d sends to group %v: it begins at PSN 0: %w", q.qp.Num(), wire.AddrOf(q.group.id), unix.EINVAL)
	}
	return nil
}

// joined records the effect of a change of a queue pair on its group.
func (s *Server) joined(now vtime.Time, q *qp, a *virtrnic.QPAttr, mask virtrnic.AttrMask) {
	switch state := q.qp.State(); {
	case state == virtrnic.StateReset:
		s.leave(now, q)
	case state == virtrnic.StateErr:
		q.waits.Store(false) // its posted requests are flushed
	}
	if id, ok := s.toGroup(q, a, mask); ok {
		g := s.groups[id]
		g.qp, g.used, q.group = q, true, g
		q.waits.Store(g.held)
		s.agent.Join(id, q.qp.Num())
	}
}

// leave takes a queue pair out of its group. A bound group stays: others may still need data that the member has
// acknowledged.
func (s *Server) leave(now vtime.Time, q *qp) {
	g := q.group
	if g == nil {
		return
	}
	g.qp, g.members, q.group = nil, nil, nil
	q.waits.Store(false)
	if !g.bound {
		s.drop(now, g)
	}
}

// drop takes a group out of the fabric, if this host has registered it.
func (s *Server) drop(now vtime.Time, g *group) {
	if p, _ := s.agent.Status(g.id); p != mrp.Unknown {
		_ = s.agent.Delete(now, g.id) // this host leads it
	}
	s.agent.Leave(g.id)
}

// groupOf returns a group by its address, if the caller may use it: the program of its member here or its operator.
func (s *Server) groupOf(gid [16]byte, c *client, by *operator) (*group, error) {
	id, err := addressOf(gid)
	if err != nil {
		return nil, err
	}
	g := s.groups[id]
	if g == nil || (by == nil || g.owner != by) && (g.qp == nil || g.qp.client != c) {
		return nil, fmt.Errorf("look for group %v: %w", netip.AddrFrom16(gid).Unmap(), unix.ENOENT)
	}
	return g, nil
}

// change does a request about a group for its program or its operator.
func (s *Server) change(now vtime.Time, m any, c *client, by *operator, o op) (r reply, err error) {
	switch m := m.(type) {
	case *groupMember:
		g, err := s.groupOf(m.Group, c, by)
		if err != nil {
			return r, err
		}
		ip, err := addressOf(m.GID)
		if err != nil || len(g.members) == groupMembersMax {
			return r, errors.Join(err, fmt.Errorf("add a member to group %v: %w", wire.AddrOf(g.id), unix.EINVAL))
		}
		g.members = append(g.members, mrp.Member{IP: ip, QPN: wire.QPN(m.QPN) & wire.QPNMask})
	case *groupID:
		g, err := s.groupOf(m.GID, c, by)
		if err != nil {
			return r, err
		}
		switch o {
		case opGroupRegister:
			return r, s.register(now, g)
		case opGroupRun:
			g.held = false
			if g.qp != nil {
				g.qp.waits.Store(false)
				g.qp.client.work.wake()
			}
		default:
			p, _ := s.agent.Status(g.id)
			r.ID = uint32(p)
			if g.qp != nil {
				r.Send = uint32(g.qp.qp.Num())
			}
		}
	}
	return r, nil
}

// register starts to install a group, of which this host's member is the leader.
func (s *Server) register(now vtime.Time, g *group) error {
	if g.qp == nil {
		return fmt.Errorf("register group %v: it has no member here: %w", wire.AddrOf(g.id), unix.EINVAL)
	}
	return s.agent.Register(now, mrp.Group{McstID: g.id, LeaderQPN: g.qp.qp.Num(), Members: g.members, Activate: s.activate})
}

// doGroup carries out a program's request about groups.
func (c *client) doGroup(o op, m any) []byte {
	if o == opGroupWant {
		return encode(c.s.want())
	}
	r, err := reply{}, error(unix.EIO)
	c.s.call(func(now vtime.Time) {
		if m, ok := m.(*groupSource); ok {
			err = c.source(now, m)
			return
		}
		r, err = c.s.change(now, m, c, nil, o)
	})
	if err != nil {
		r = reply{Status: errno(err)}
	}
	return encode(r)
}

// source has a queue pair's PSN counters follow a change of its group's source.
func (c *client) source(now vtime.Time, m *groupSource) error {
	q := c.qps[wire.QPN(m.QPN)]
	if q == nil || q.group == nil {
		return fmt.Errorf("change the source at queue pair %d: it is in no group: %w", m.QPN, unix.EINVAL)
	}
	from := virtrnic.RecvFromSend
	if m.New != 0 {
		from = virtrnic.SendFromRecv
	}
	return c.s.nic.SyncPSN(now, q.qp, from)
}
