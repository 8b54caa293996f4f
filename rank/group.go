// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"encoding/binary"
	"fmt"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// Group is a multicast group that all ranks of the job are members of. Each member has one
// queue pair, which is connected to the group's address (CEP-1, CEP-6, GLE-3).
type Group struct {
	r      *Rank
	name   string
	id     uint32
	qp     *virtrnic.QP
	source int
	write  *writes // nil if the group takes no WRITEs
	reduce bool    // members send to the switches that sum (Reduction)
}

// what implements target.
func (g *Group) what(send bool) string {
	if send {
		return fmt.Sprintf("send to group %v", wire.AddrOf(g.id))
	}
	return fmt.Sprintf("receive from group %v", wire.AddrOf(g.id))
}

// NewGroup registers a group in the fabric. All ranks must call it with the same name and
// leader. It returns when every member has been confirmed, so that data may flow. The leader
// is the first source.
func (r *Rank) NewGroup(name string, leader int) (*Group, error) {
	g := r.PrepareGroup(name, leader)
	if err := g.Join(); err != nil {
		return nil, err
	}
	return g, nil
}

// PrepareGroup is the first half of NewGroup; it neither sends nor blocks. Join does the rest.
// Drop ends the group at any time, also one whose Join failed.
func (r *Rank) PrepareGroup(name string, leader int) *Group {
	return &Group{r: r, name: name, source: leader}
}

// Join makes the rank a member of a prepared group. All ranks must call it; see NewGroup.
func (g *Group) Join() error { return g.join(g.source) }

// join makes this rank a member and, on the leader, installs the group.
func (g *Group) join(leader int) error {
	start, err := g.lease(leader)
	if err != nil {
		return err
	}
	if err := g.attach(start); err != nil {
		return fmt.Errorf("group %s: %w", g.name, err)
	}
	if g.r.c.ID != leader {
		return g.follow()
	}
	err = g.register(start)
	g.r.Put(g.upKey(), []byte(errText(err)))
	return err
}

// upKey returns the key under which the leader publishes that the group is registered, or the error.
func (g *Group) upKey() string { return "group/" + g.name + "/up" }

// follow makes this rank a member of a group that another one leads, once that has registered it.
func (g *Group) follow() error {
	g.enroll()
	if msg := g.r.get(g.upKey(), "group "+g.name+" to be registered"); len(msg) > 0 {
		return fmt.Errorf("%w: %s", ErrGroup, msg)
	}
	return nil
}

// enroll sends the queue pair to the leader.
func (g *Group) enroll() {
	r := g.r
	r.c.Host.Do(func(_ vtime.Time, _ *virtrnic.NIC, a *mrp.Agent) { r.joined(a, g.id, g.qp.Num()) })
	r.Put(fmt.Sprintf("group/%s/qp/%d", g.name, r.c.ID), binary.BigEndian.AppendUint32(nil, uint32(g.qp.Num())))
}

// attach makes the rank's queue pair of the group and, if the group has WRITEs, the state that they
// need.
func (g *Group) attach(start wire.PSN) (err error) {
	if g.write != nil {
		if err := g.write.prepare(g); err != nil {
			return err
		}
	}
	if g.reduce {
		g.qp, err = g.r.datagramQP()
		return err
	}
	if g.qp, err = g.r.createQP(); err != nil {
		return err
	}
	return g.r.bringUp(g.qp, remote{ip: g.id, qpn: wire.QPNGSI, sqPSN: start, rqPSN: start})
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// lease agrees with the other ranks on the McstID and the start PSN.
func (g *Group) lease(leader int) (start wire.PSN, err error) {
	r, key := g.r, "group/"+g.name+"/id"
	if r.c.ID == leader {
		return g.lead(key)
	}
	v := r.get(key, "leader of group "+g.name)
	if len(v) != 8 {
		return 0, fmt.Errorf("%w: its leader has no McstID", ErrGroup)
	}
	g.id = binary.BigEndian.Uint32(v)
	return wire.PSN(binary.BigEndian.Uint32(v[4:])), nil
}

// lead leases a McstID and publishes it with the start PSN under a key, for the other ranks.
func (g *Group) lead(key string) (start wire.PSN, err error) {
	r := g.r
	if g.id, err = r.c.Board.LeaseGroup(); err != nil {
		r.Put(key, nil)
		return 0, fmt.Errorf("group %s: %w", g.name, err)
	}
	if r.c.Params.Activate {
		start = r.startPSN("psn/group/" + g.name)
	}
	for i := range r.c.Size {
		if p := r.peer(i); p != nil {
			start = p.SendPSN // all external members start at this PSN, for sending and for receiving
		}
	}
	v := binary.BigEndian.AppendUint32(nil, g.id)
	r.Put(key, binary.BigEndian.AppendUint32(v, uint32(start)))
	return start, nil
}

// register collects the members' queue pairs and installs the group.
func (g *Group) register(start wire.PSN) error {
	r := g.r
	m := mrp.Group{McstID: g.id, LeaderQPN: g.qp.Num(), StartPSN: start, Activate: r.c.Params.Activate, Reduce: g.reduce}
	for i := range r.c.Size {
		if i == r.c.ID {
			continue
		}
		if p := r.peer(i); p != nil {
			m.Members = append(m.Members, mrp.Member{IP: r.ip(i), QPN: p.QPN})
			r.tellConnect(fmt.Sprintf("%s/%d", g.name, i), i, rankhost.Step{
				Address: r.addr(g.id).String(),
				Text:    fmt.Sprintf("%s: group %v starts at PSN %v: connect QP %d to any QP at %v", r.NameOf(i), wire.AddrOf(g.id), start, p.QPN, r.addr(g.id)),
			})
			continue
		}
		v := r.get(fmt.Sprintf("group/%s/qp/%d", g.name, i), fmt.Sprintf("rank %d to join group %s", i, g.name))
		m.Members = append(m.Members, mrp.Member{IP: r.ip(i), QPN: wire.QPN(binary.BigEndian.Uint32(v))})
	}
	if g.write != nil {
		g.write.list(&m)
	}
	var err error
	r.c.Host.Do(func(now vtime.Time, _ *virtrnic.NIC, a *mrp.Agent) {
		r.joined(a, g.id, g.qp.Num())
		a.Forget(g.id) // a lab file may name a group, which is then the same in every run
		err = a.Register(now, m)
	})
	if err != nil {
		return err
	}
	return g.await(mrp.Active, "registration of group "+g.name)
}

// await blocks until the leader's registration has reached a phase, or has failed.
func (g *Group) await(want mrp.Phase, why string) error {
	for {
		var p mrp.Phase
		var err error
		g.r.c.Host.Do(func(_ vtime.Time, nic *virtrnic.NIC, a *mrp.Agent) {
			p, err = a.Status(g.id)
			g.r.health.look(nic)
		})
		switch p {
		case want:
			return nil
		case mrp.Failed:
			return fmt.Errorf("%w: %w", ErrGroup, err)
		case mrp.Deleting, mrp.Deleted, mrp.Unknown:
			switch {
			case want == mrp.Active:
				return fmt.Errorf("%w: it was dropped before it was registered", ErrGroup)
			case p == mrp.Unknown:
				return nil // deleted, and left
			}
		}
		g.r.park(vtime.Never, why)
	}
}

// McstID returns the group's address.
func (g *Group) McstID() uint32 { return g.id }

// Source returns the rank that may send.
func (g *Group) Source() int { return g.source }

// SetSource makes another rank the source. All ranks call it between messages, when the old
// source has everything acknowledged and the new one has received it. It changes only the PSN
// counters of these two (CEP-7, CEP-40, GLE-11). The new source may send only after the old
// one has returned from SetSource; a Sync, for example, ensures that.
func (g *Group) SetSource(rank int) error {
	old := g.source
	g.source = rank
	if rank == old || g.r.c.ID != old && g.r.c.ID != rank {
		return nil
	}
	from := virtrnic.SendFromRecv
	if g.r.c.ID == old {
		from = virtrnic.RecvFromSend
	}
	var err error
	g.r.c.Host.Do(func(now vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) { err = nic.SyncPSN(now, g.qp, from) })
	if err != nil {
		return fmt.Errorf("group %s: change of source: %w", g.name, err)
	}
	return nil
}

// Send starts to send n bytes of the buffer from off to all other members. Only the source may
// call it.
func (g *Group) Send(b *Buffer, off, n int) (*Request, error) {
	if g.source != g.r.c.ID {
		return nil, fmt.Errorf("%w: rank %d is not the source of %s, rank %d is", ErrGroup, g.r.c.ID, g.name, g.source)
	}
	g.r.spend(g.r.c.Params.Cost.Post)
	g.r.spend(g.r.c.Params.Cost.Stack)
	return g.r.postSend(&Request{to: g, send: true}, g.qp, &virtrnic.SendWR{Opcode: virtrnic.WRSend, SGE: b.sge(off, n)})
}

// Recv posts a receive: the next message of the group lands in n bytes of the buffer at off.
func (g *Group) Recv(b *Buffer, off, n int) (*Request, error) {
	g.r.spend(g.r.c.Params.Cost.Post)
	return g.r.postRecv(g, g.qp, b.sge(off, n))
}

// Delete takes the group out of the fabric. All ranks call it.
func (g *Group) Delete() error {
	r := g.r
	if g.leads() {
		var err error
		r.c.Host.Do(func(now vtime.Time, _ *virtrnic.NIC, a *mrp.Agent) { err = a.Delete(now, g.id) })
		if err != nil {
			return err
		}
		if err := g.await(mrp.Deleted, "deletion of group "+g.name); err != nil {
			return err
		}
		r.Put("group/"+g.name+"/down", nil)
	} else {
		r.get("group/"+g.name+"/down", "group "+g.name+" to be deleted")
	}
	r.c.Host.Do(func(_ vtime.Time, _ *virtrnic.NIC, a *mrp.Agent) { r.left(a, g.id) })
	err := r.destroy(g.qp)
	if err == nil && g.write != nil {
		err = g.write.free()
	}
	return err
}

// leads reports whether this rank registered the group.
func (g *Group) leads() (yes bool) {
	g.r.c.Host.Do(func(_ vtime.Time, _ *virtrnic.NIC, a *mrp.Agent) {
		p, _ := a.Status(g.id)
		yes = p != mrp.Unknown
	})
	return yes
}
