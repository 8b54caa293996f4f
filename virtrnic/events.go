// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/wire"
)

// EventType is the type of an event outside any work request (ibv_event_type, with its numbers).
type EventType uint8

// Asynchronous events.
const (
	EventCQErr          EventType = 0  // a completion queue overran
	EventQPFatal        EventType = 1  // a queue pair ended because of its completion queue
	EventQPReqErr       EventType = 2  // a queue pair ended because of an invalid request of the peer
	EventQPAccessErr    EventType = 3  // a queue pair ended because the peer had no right to the memory
	EventCommEst        EventType = 4  // a queue pair in RTR got its first packet
	EventSQDrained      EventType = 5  // a queue pair in SQD has finished all requests that had begun
	EventSRQLimit       EventType = 15 // a shared receive queue fell below its limit
	EventLastWQEReached EventType = 16 // a queue pair in ERR will take no more from its SRQ
)

// String returns the text of ibv_event_type_str.
func (e EventType) String() string {
	switch e {
	case EventCQErr:
		return "CQ error"
	case EventQPFatal:
		return "local work queue catastrophic error"
	case EventQPReqErr:
		return "invalid request local work queue error"
	case EventQPAccessErr:
		return "local access violation work queue error"
	case EventCommEst:
		return "communication established"
	case EventSQDrained:
		return "send queue drained"
	case EventSRQLimit:
		return "SRQ limit reached"
	case EventLastWQEReached:
		return "last WQE reached"
	}
	return fmt.Sprintf("event %d", uint8(e))
}

// AsyncEvent is one event and the object that it is about; the other pointers are nil.
type AsyncEvent struct {
	Type EventType
	QP   *QP
	CQ   *CQ
	SRQ  *SRQ
}

// GetAsyncEvent takes the oldest event; false if there is none. At most one event of a type
// waits for each object.
func (n *NIC) GetAsyncEvent() (AsyncEvent, bool) {
	for n.events.Len() > 0 {
		e := n.events.Pop()
		if e.QP == nil {
			return e, true
		}
		if e.QP.gone {
			n.deadEvents--
			continue
		}
		e.QP.queuedEvents &^= 1 << e.Type
		return e, true
	}
	return AsyncEvent{}, false
}

// TakeAsyncEvents takes those events, oldest first, for whose object own reports true. The others stay.
func (n *NIC) TakeAsyncEvents(own func(AsyncEvent) bool) (taken []AsyncEvent) {
	for i := range n.events.Len() {
		if e := *n.events.At(i); (e.QP == nil || !e.QP.gone) && own(e) {
			taken = append(taken, e)
		}
	}
	n.events.RemoveIf(func(e AsyncEvent) bool { return slices.Contains(taken, e) })
	for _, e := range taken {
		if e.QP != nil {
			e.QP.queuedEvents &^= 1 << e.Type
		}
	}
	return taken
}

// disown forgets the events of a queue pair that is destroyed. They stay in the queue until
// they are the greater part of it, so that not every destruction has to search the queue.
func (n *NIC) disown(q *QP) {
	q.gone = true
	if q.queuedEvents == 0 {
		return
	}
	n.deadEvents += bits.OnesCount32(q.queuedEvents)
	if 2*n.deadEvents > n.events.Len() {
		n.events.RemoveIf(func(e AsyncEvent) bool { return e.QP != nil && e.QP.gone })
		n.deadEvents = 0
	}
}

// event queues an event of a queue pair, unless one of its type waits already.
func (n *NIC) event(t EventType, q *QP) {
	if q.queuedEvents>>t&1 == 0 {
		q.queuedEvents |= 1 << t
		n.events.Push(AsyncEvent{Type: t, QP: q})
	}
	n.completions++ // wakes a task that waits for completions or events
}

// CompChannel collects the events of completion queues (ibv_comp_channel).
type CompChannel struct {
	nic    *NIC
	events queue.FIFO[*CQ]
}

// CreateCompChannel returns a channel without queues.
func (n *NIC) CreateCompChannel() *CompChannel { return &CompChannel{nic: n} }

// CreateCQOn returns a completion queue that reports to a channel.
func (n *NIC) CreateCQOn(ch *CompChannel, depth int) (*CQ, error) {
	if ch == nil || ch.nic != n {
		return nil, fmt.Errorf("create completion queue: channel of another device: %w", ErrInvalid)
	}
	c, err := n.CreateCQ(depth)
	if err == nil {
		c.channel = ch
	}
	return c, err
}

// armed is the kind of completion for which the channel gets an event.
type armed uint8

const (
	armedNot armed = iota
	armedSolicited
	armedNext
)

// ReqNotifyCQ asks for one event at the next completion or, with solicitedOnly, at the next
// receive whose sender asked for an event, or the next failure. Completions that are in the
// queue already cause none, so poll once more after arming.
func (n *NIC) ReqNotifyCQ(c *CQ, solicitedOnly bool) error {
	if c.channel == nil {
		return fmt.Errorf("request notification: the completion queue has no channel: %w", ErrInvalid)
	}
	if !solicitedOnly {
		c.armed = armedNext
	} else if c.armed == armedNot {
		c.armed = armedSolicited
	}
	return nil
}

// GetCQEvent takes the oldest event of a channel; false if there is none.
func (n *NIC) GetCQEvent(ch *CompChannel) (*CQ, bool) {
	if ch.events.Len() == 0 {
		return nil, false
	}
	return ch.events.Pop(), true
}

// notify adds an event to the channel, if the queue is armed for this completion.
func (c *CQ) notify(solicited bool) {
	if c.armed == armedNext || solicited {
		c.armed = armedNot
		c.channel.events.Push(c)
	}
}

// AttachMcast makes a UD queue pair receive the datagrams to a multicast group, in 224/4 (wire.IPv6Of
// gives it an address in an IPv6 fabric). A queue pair attached twice receives once.
func (n *NIC) AttachMcast(q *QP, group uint32) error {
	if q.service != wire.UD {
		return fmt.Errorf("attach queue pair %d to %v: it is not UD: %w", q.num, wire.AddrOf(group), ErrInvalid)
	}
	return n.attach(q, group)
}

// AttachUC makes a UC queue pair receive the messages to a multicast group, with QPN 0xffffff: by the
// peer it is connected to, or, if it is connected to the group itself, by any sender. It is not a verb
// but the extension by which messages of several packets, and WRITEs with immediate, go to many
// receivers (Khalilov et al., §II-B and §V-B, AG-27). A queue pair has one state of a message being
// received for all its senders, so their messages of several packets must not overlap. DetachMcast
// undoes it.
func (n *NIC) AttachUC(q *QP, group uint32) error {
	if peer := q.attr.AV.DGID; q.service != wire.UC || wire.IsMulticast(peer) && peer != group {
		return fmt.Errorf("attach queue pair %d to %v: it is not UC, or connected to another group: %w", q.num, wire.AddrOf(group), ErrInvalid)
	}
	return n.attach(q, group)
}

func (n *NIC) attach(q *QP, group uint32) error {
	switch {
	case !wire.IsMulticast(group):
		return fmt.Errorf("attach queue pair %d to %v: not a multicast group: %w", q.num, wire.AddrOf(group), ErrInvalid)
	}
	members := n.mcast[group]
	for _, m := range members {
		if m == q {
			return nil
		}
	}
	if len(members) >= MaxMcastQPs && q.service == wire.UD {
		return fmt.Errorf("attach queue pair %d to %v: %d are attached: %w", q.num, wire.AddrOf(group), len(members), ErrNoMem)
	}
	if len(members) == 0 && len(n.mcast) >= MaxMcastGroups && q.service == wire.UD {
		return fmt.Errorf("attach queue pair %d to %v: queue pairs are attached to %d other groups: %w", q.num, wire.AddrOf(group), len(n.mcast), ErrNoMem)
	}
	if n.mcast == nil {
		n.mcast = map[uint32][]*QP{}
	}
	n.mcast[group] = append(members, q)
	q.groups++
	n.turns = n.turns || q.loopback != LoopbackNone
	return nil
}

// DetachMcast undoes AttachMcast.
func (n *NIC) DetachMcast(q *QP, group uint32) error {
	members := n.mcast[group]
	for i, m := range members {
		if m != q {
			continue
		}
		q.groups--
		if n.mcast[group] = append(members[:i:i], members[i+1:]...); len(members) == 1 {
			delete(n.mcast, group)
		}
		return nil
	}
	return fmt.Errorf("detach queue pair %d from %v: it is not attached: %w", q.num, wire.AddrOf(group), ErrInvalid)
}
