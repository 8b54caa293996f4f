// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"encoding/binary"
	"fmt"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// MulticastKind is the transport service of a plain multicast group.
type MulticastKind uint8

// Kinds of multicast groups.
const (
	// Datagrams are UD: a message is one packet and lands in the next receive of each member.
	Datagrams MulticastKind = iota
	// Writes are UC: a WRITE with immediate data lands in the window of each member. The
	// window has the same address and key at all members.
	Writes
)

// DatagramHeader is the number of bytes that a receive of a datagram holds before the data.
const DatagramHeader = 40

// Multicast is a plain IP multicast group that all ranks of the job are attached to. A rank's messages
// reach each other member at most once, unacknowledged and in no guaranteed order.
type Multicast struct {
	r       *Rank
	name    string
	kind    MulticastKind
	ip      uint32
	qp      *virtrnic.QP
	cq      *virtrnic.CQ // completions of receives
	ah      *virtrnic.AddressHandle
	window  *virtrnic.MR // Writes: the window that they land in; nil: none is open
	arrived []Arrival
	pair    bool     // between two ranks (NewPair), and not a group
	to      wire.QPN // queue pair that datagrams are sent to
}

// Arrival is a completed receive of a group.
type Arrival struct {
	Slot int    // slot of the receive that the message took
	Imm  uint32 // its immediate data
	Len  int    // length in bytes
	Err  error  // why the receive ended without a message, or nil
}

// Piece is a message to send: part of a buffer, with immediate data.
type Piece struct {
	Off, Len int
	Imm      uint32
}

// multicastVA is the address of the windows at every member.
const multicastVA = 1 << 40

// NewMulticast attaches the rank to a group (AG-2). All ranks must call it with the same name and kind,
// and no rank may send before all have returned. depth is the number of receives that the group holds,
// from 1 to QueueDepth.
func (r *Rank) NewMulticast(name string, kind MulticastKind, depth int) (*Multicast, error) {
	m := &Multicast{r: r, name: name, kind: kind, to: wire.QPNMulticast}
	err := m.lease()
	if err == nil {
		err = m.attach(depth)
	}
	if err != nil {
		return nil, fmt.Errorf("multicast group %s: %w", name, err)
	}
	return m, nil
}

// what implements target.
func (m *Multicast) what(bool) string { return fmt.Sprintf("multicast to %v", wire.AddrOf(m.ip)) }

// lease agrees on the group's address; the first rank has the switches forward it.
func (m *Multicast) lease() (err error) {
	r, key := m.r, "multicast/"+m.name
	if r.c.ID != 0 {
		v := r.get(key, "the first rank to make multicast group "+m.name)
		if len(v) != 4 {
			return fmt.Errorf("%w: the first rank has none", ErrGroup)
		}
		m.ip = binary.BigEndian.Uint32(v)
		return nil
	}
	if m.ip, err = r.c.Board.Multicast(r.ips()); err != nil {
		r.Put(key, nil)
		return err
	}
	r.Put(key, binary.BigEndian.AppendUint32(nil, m.ip))
	return nil
}

// attach makes the queue pair and attaches it to the group.
func (m *Multicast) attach(depth int) (err error) {
	r := m.r
	init := virtrnic.QPInit{PD: r.pd, SendCQ: r.cq, MaxSendWR: QueueDepth, MaxRecvWR: depth, Type: virtrnic.TypeUD}
	if m.kind == Writes {
		init.Type = virtrnic.TypeUC
	}
	r.c.Host.Do(func(now vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
		if m.cq, err = r.newCQ(nic, depth); err != nil {
			return
		}
		init.RecvCQ = m.cq
		if m.qp, err = r.newQP(nic, init); err != nil {
			return
		}
		if err = m.bringUp(now, nic); err != nil {
			return
		}
		if m.kind == Writes {
			err = nic.AttachUC(m.qp, m.ip)
		} else if m.ah, err = r.newAH(nic, m.path()); err == nil && !m.pair {
			err = nic.AttachMcast(m.qp, m.ip)
		}
		if err == nil && !m.pair {
			r.attached(m.qp, m.ip)
		}
	})
	return err
}

// path returns the destination of the group's messages.
func (m *Multicast) path() virtrnic.AH {
	return virtrnic.AH{DGID: m.ip, TrafficClass: m.r.c.Params.TrafficClass, HopLimit: 64}
}

// bringUp takes the queue pair from RESET to RTS.
func (m *Multicast) bringUp(now vtime.Time, nic *virtrnic.NIC) error {
	r := m.r
	a := virtrnic.QPAttr{
		Port: 1, Access: bufferAccess, AV: m.path(), PathMTU: r.c.Params.MTU, DestQPN: wire.QPNMulticast,
		SQPSN: r.startPSN("psn/multicast/" + m.name), QKey: m.qkey(),
	}
	masks := []virtrnic.AttrMask{virtrnic.AttrPKeyIndex | virtrnic.AttrPort | virtrnic.AttrQKey, 0, virtrnic.AttrSQPSN}
	if m.kind == Writes {
		masks[0] = virtrnic.AttrPKeyIndex | virtrnic.AttrPort | virtrnic.AttrAccessFlags
		masks[1] = virtrnic.AttrAV | virtrnic.AttrPathMTU | virtrnic.AttrDestQPN | virtrnic.AttrRQPSN
	}
	for i, to := range []virtrnic.QPState{virtrnic.StateInit, virtrnic.StateRTR, virtrnic.StateRTS} {
		a.State = to
		if err := nic.ModifyQP(now, m.qp, a, masks[i]|virtrnic.AttrState); err != nil {
			return err
		}
	}
	return nil
}

// qkey returns the Q_Key that all members use. Its top bit is clear because Q_Keys with it set
// are privileged.
func (m *Multicast) qkey() uint32 {
	if m.pair {
		return pairQKey
	}
	return m.ip & 0x7fff_ffff
}

// IP returns the group's address.
func (m *Multicast) IP() uint32 { return m.ip }

// Open makes a buffer this rank's window for Writes. round, which must be the same at all ranks,
// distinguishes this window from earlier ones; Writes for another round are dropped.
func (m *Multicast) Open(b *Buffer, round uint8) (err error) {
	// The lower half of the address belongs to this group alone, and so do the keys made of
	// it.
	key := virtrnic.ChosenKeys | m.ip&0xffff<<8 | uint32(round)
	m.r.c.Host.Do(func(_ vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
		m.window, err = m.r.newMR(nic.RegMRAs(m.r.pd, b.memory(), bufferAccess, multicastVA, key))
	})
	return err
}

// Shut closes the window: nothing lands in the buffer any more.
func (m *Multicast) Shut() (err error) {
	if m.window == nil {
		return nil
	}
	m.r.c.Host.Do(func(_ vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) { err = m.r.deregister(nic, m.window) })
	m.window = nil
	return err
}

// Receive is the place that a message may land in: part of a buffer, where the data follow
// DatagramHeader bytes. For Writes only the slot counts.
type Receive struct {
	Slot     int // number that its Arrival carries
	B        *Buffer
	Off, Len int
}

// Post gives the group receives.
func (m *Multicast) Post(all ...Receive) (err error) {
	m.r.c.Host.Do(func(now vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
		for _, v := range all {
			wr := virtrnic.RecvWR{WRID: uint64(v.Slot)}
			if m.kind == Datagrams {
				wr.SGE = v.B.sge(v.Off, v.Len)
			}
			if err = nic.PostRecv(now, m.qp, wr); err != nil {
				return
			}
		}
	})
	if err != nil {
		return fmt.Errorf("multicast group %s: %w", m.name, err)
	}
	return nil
}

// Clear withdraws posted receives and drops arrivals. No message may be under way.
func (m *Multicast) Clear() (err error) {
	m.r.c.Host.Do(func(now vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
		m.take(nic)
		err = nic.ModifyQP(now, m.qp, virtrnic.QPAttr{State: virtrnic.StateReset}, virtrnic.AttrState)
		if err == nil {
			err = m.bringUp(now, nic)
		}
	})
	m.arrived = m.arrived[:0]
	return err
}

// Arrivals returns the arrivals since the last call, as far as the rank has polled (Rank.Look). The
// slice is valid until the next call of Arrivals.
func (m *Multicast) Arrivals() []Arrival {
	a := m.arrived
	m.arrived = m.arrived[:0]
	return a
}

// Arrived returns the number of arrivals that Arrivals would return.
func (m *Multicast) Arrived() int { return len(m.arrived) }

// take polls the completion queue and records each arrival.
func (m *Multicast) take(nic *virtrnic.NIC) {
	for {
		w, ok := nic.PollCQ(m.cq)
		if !ok {
			return
		}
		a := Arrival{Slot: int(w.WRID), Imm: w.Imm, Len: int(w.ByteLen)}
		if w.GRH {
			a.Len -= DatagramHeader
		}
		if w.Status != virtrnic.WCSuccess {
			a.Err = statusError(w.Status)
		}
		m.arrived = append(m.arrived, a)
	}
}

// Send starts to send pieces of a buffer, all posted at once. The request ends when the
// last one starts on the wire. Writes go to the same offset of all windows.
func (m *Multicast) Send(b *Buffer, pieces []Piece) (*Request, error) {
	r, q := m.r, &Request{to: m, send: true}
	r.spend(r.c.Params.Cost.Post)
	var err error
	r.c.Host.Do(func(now vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
		number := r.reqs.add(q)
		for i, p := range pieces {
			wr := virtrnic.SendWR{WRID: number, SGE: b.sge(p.Off, p.Len), Imm: p.Imm}
			if i == len(pieces)-1 {
				wr.Flags = virtrnic.SendSignaled
			}
			if m.kind == Datagrams {
				wr.Opcode, wr.UD = virtrnic.WRSendWithImm, virtrnic.UDDest{AH: m.ah, QPN: m.to, QKey: m.qkey()}
			} else {
				wr.Opcode, wr.RemoteAddr, wr.RKey = virtrnic.WRRDMAWriteWithImm, multicastVA+uint64(p.Off), m.window.RKey()
			}
			if err = nic.PostSend(now, m.qp, wr); err != nil {
				r.reqs.take(number)
				return
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("rank %d, %s: %w", r.c.ID, q.what(), err)
	}
	return q, nil
}

// Close detaches the rank and destroys its queue pair. All ranks call it after the last message.
func (m *Multicast) Close() error {
	err := m.Shut()
	m.r.c.Host.Do(func(now vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
		if err == nil && !m.pair {
			err = nic.DetachMcast(m.qp, m.ip)
		}
		if err == nil {
			err = m.r.destroyQP(now, nic, m.qp)
		}
		if err == nil && m.ah != nil {
			err = m.r.destroyAH(nic, m.ah)
		}
		if err == nil {
			err = m.r.destroyCQ(nic, m.cq)
		}
	})
	if err == nil && !m.pair && m.r.c.ID == 0 {
		err = m.r.c.Board.EndMulticast(m.ip)
	}
	if err != nil {
		return fmt.Errorf("multicast group %s: %w", m.name, err)
	}
	return nil
}
