// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// UC messages have as many packets as they need. They go to one host, or to all hosts that a
// multicast group's address leads to, and nothing is sent back. A message of which a packet is
// lost never arrives.

// SetBranches fills the switches' multicast tables with these entries, which replace all
// entries of the previous call.
func (r inside) SetBranches(entries []wire.MulticastEntry) error {
	s, ok := r.c.Board.(rankhost.Subnet)
	if !ok {
		return rankhost.ErrSubnet
	}
	s.SetBranches(entries)
	return nil
}

// outlet sends UC messages to one address.
type outlet struct {
	r  *Rank
	qp *virtrnic.QP
	to uint32
}

// NewOutlet returns an outlet to a host's address and the queue pair of an inlet there. If the
// address is that of an IPv4 multicast group, messages go to all inlets attached to the group.
func (r inside) NewOutlet(ip uint32, qpn wire.QPN) (any, error) {
	if wire.IsMulticast(ip) {
		qpn = wire.QPNMulticast
	}
	q, err := r.newUC(ip, qpn)
	if err != nil {
		return nil, fmt.Errorf("outlet to %v: %w", wire.AddrOf(ip), err)
	}
	return &outlet{r.Rank, q, ip}, nil
}

// newUC makes a UC queue pair and connects it.
func (r *Rank) newUC(ip uint32, qpn wire.QPN) (q *virtrnic.QP, err error) {
	p := r.c.Params
	a := virtrnic.QPAttr{
		Port: 1, Access: virtrnic.AccessLocalWrite, AV: virtrnic.AH{DGID: ip, TrafficClass: p.TrafficClass, HopLimit: 64},
		PathMTU: p.MTU, DestQPN: qpn,
	}
	masks := []virtrnic.AttrMask{
		virtrnic.AttrPKeyIndex | virtrnic.AttrPort | virtrnic.AttrAccessFlags,
		virtrnic.AttrAV | virtrnic.AttrPathMTU | virtrnic.AttrDestQPN | virtrnic.AttrRQPSN,
		virtrnic.AttrSQPSN,
	}
	r.c.Host.Do(func(now vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
		q, err = r.newQP(nic, virtrnic.QPInit{
			Type: virtrnic.TypeUC, PD: r.pd, SendCQ: r.cq, RecvCQ: r.cq, MaxSendWR: ucDepth, MaxRecvWR: ucDepth, SQSigAll: true,
		})
		for i, to := range []virtrnic.QPState{virtrnic.StateInit, virtrnic.StateRTR, virtrnic.StateRTS} {
			if a.State = to; err == nil {
				err = nic.ModifyQP(now, q, a, masks[i]|virtrnic.AttrState)
			}
		}
	})
	return q, err
}

// ucDepth is the number of messages that a UC queue pair may have outstanding.
const ucDepth = 64

// Send starts to send n bytes of the buffer from off as one message. The request completes
// when its last packet starts on the wire.
func (o *outlet) Send(b *Buffer, off, n int) (*Request, error) {
	o.r.spend(o.r.c.Params.Cost.Post)
	o.r.spend(o.r.c.Params.Cost.Stack)
	return o.r.postSend(&Request{to: o, send: true}, o.qp, &virtrnic.SendWR{Opcode: virtrnic.WRSend, SGE: b.sge(off, n)})
}

// what implements target.
func (o *outlet) what(bool) string { return fmt.Sprintf("send to %v", wire.AddrOf(o.to)) }

// Close destroys the outlet; messages that have not been sent yet are lost.
func (o *outlet) Close() error { return o.r.destroy(o.qp) }

// inlet receives the UC messages of another rank.
type inlet struct {
	r      *Rank
	qp     *virtrnic.QP
	peer   int
	groups []uint32
}

// NewInlet returns an inlet for messages of a rank.
func (r inside) NewInlet(peer int) (any, error) {
	// An inlet sends nothing, so the queue pair that it is connected to does not matter.
	q, err := r.newUC(r.ip(peer), wire.QPNMulticast)
	if err != nil {
		return nil, fmt.Errorf("inlet from rank %d: %w", peer, err)
	}
	return &inlet{r: r.Rank, qp: q, peer: peer}, nil
}

// QPN returns the queue pair number that outlets send to.
func (i *inlet) QPN() wire.QPN { return i.qp.Num() }

// Attach makes the inlet receive the peer's messages to a multicast group.
func (i *inlet) Attach(group uint32) (err error) {
	i.r.c.Host.Do(func(_ vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) { err = nic.AttachUC(i.qp, group) })
	if err != nil {
		return fmt.Errorf("inlet from rank %d: %w", i.peer, err)
	}
	i.r.attached(i.qp, group)
	i.groups = append(i.groups, group)
	return nil
}

// Recv posts a receive: the next message lands in n bytes of the buffer at off.
func (i *inlet) Recv(b *Buffer, off, n int) (*Request, error) {
	i.r.spend(i.r.c.Params.Cost.Post)
	return i.r.postRecv(i, i.qp, b.sge(off, n))
}

// what implements target.
func (i *inlet) what(bool) string { return fmt.Sprintf("receive from rank %d", i.peer) }

// Close destroys the inlet.
func (i *inlet) Close() (err error) {
	for _, g := range i.groups {
		i.r.c.Host.Do(func(_ vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) { err = errors.Join(err, nic.DetachMcast(i.qp, g)) })
	}
	return errors.Join(err, i.r.destroy(i.qp))
}

// Unwanted returns the number of packets that this host's NIC has dropped because no queue pair took
// them: duplicates, or copies to hosts that are not members.
func (r inside) Unwanted() (n uint64) {
	r.c.Host.Do(func(_ vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
		d := &nic.Stats().Drops
		n = d[virtrnic.DropNoReceive] + d[virtrnic.DropNoGroup] + d[virtrnic.DropPeer] + d[virtrnic.DropSequence]
	})
	return n
}

// pairQKey is the Q_Key of datagrams between two ranks.
const pairQKey = 0x5ed

// NewPair returns datagrams between the rank and another one (BAS-15): a message of one lands in the next receive
// of the other, at most once. Both must call it with the same name.
func (r inside) NewPair(name string, peer, depth int) (*Multicast, error) {
	m := &Multicast{r: r.Rank, name: name, kind: Datagrams, pair: true, ip: r.ip(peer)}
	if err := m.attach(depth); err != nil {
		return nil, fmt.Errorf("datagrams %s to rank %d: %w", name, peer, err)
	}
	key := func(from, to int) string { return fmt.Sprintf("pair/%s/%d/%d", name, from, to) }
	r.Put(key(r.c.ID, peer), binary.BigEndian.AppendUint32(nil, uint32(m.qp.Num())))
	v := r.get(key(peer, r.c.ID), fmt.Sprintf("rank %d to make datagrams %s", peer, name))
	if len(v) != 4 {
		return nil, fmt.Errorf("datagrams %s: rank %d has published %d bytes for a queue pair number", name, peer, len(v))
	}
	m.to = wire.QPN(binary.BigEndian.Uint32(v))
	return m, nil
}
