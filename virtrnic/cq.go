// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// CQ is a completion queue. Its memory grows with use up to its depth.
type CQ struct {
	nic         *NIC
	ring        queue.FIFO[WC]
	depth       int
	overrun     bool
	channel     *CompChannel // may be nil
	armed       armed
	users       int // queue pairs
	incarnation uint32
	gone        bool
}

// CreateCQ returns a completion queue for depth completions, 1 to MaxQPWR*16.
func (n *NIC) CreateCQ(depth int) (*CQ, error) {
	if depth < 1 || depth > MaxQPWR*16 {
		return nil, fmt.Errorf("create completion queue: depth %d is not in 1..%d: %w", depth, MaxQPWR*16, ErrInvalid)
	}
	n.made.CQs++
	return &CQ{nic: n, depth: depth, incarnation: n.incarnation}, nil
}

// belongsTo reports whether the queue is one of the device.
func (c *CQ) belongsTo(n *NIC) bool {
	return c != nil && c.nic == n && c.incarnation == n.incarnation && !c.gone
}

// DestroyCQ destroys the queue, with the completions in it, once no queue pair uses it.
func (n *NIC) DestroyCQ(c *CQ) error {
	switch {
	case !c.belongsTo(n):
		return fmt.Errorf("destroy completion queue: %w", ErrInvalid)
	case c.users > 0:
		return fmt.Errorf("destroy completion queue: %d queue pairs use it: %w", c.users, ErrBusy)
	}
	c.gone, c.ring, c.armed = true, queue.FIFO[WC]{}, armedNot
	n.made.CQs--
	if c.channel != nil {
		c.channel.events.RemoveIf(func(o *CQ) bool { return o == c })
	}
	if c.overrun {
		n.events.RemoveIf(func(e AsyncEvent) bool { return e.CQ == c })
	}
	return nil
}

// ResizeCQ changes the depth; the completions in the queue must fit.
func (n *NIC) ResizeCQ(c *CQ, depth int) error {
	if depth < max(1, c.ring.Len()) || depth > MaxQPWR*16 {
		return fmt.Errorf("resize completion queue: depth %d with %d completions in it: %w", depth, c.ring.Len(), ErrInvalid)
	}
	c.depth = depth
	return nil
}

// PollCQ takes the oldest completion out of the queue; false if it is empty.
func (n *NIC) PollCQ(c *CQ) (WC, bool) {
	if c.ring.Len() == 0 {
		return WC{}, false
	}
	return c.ring.Pop(), true
}

// push adds a completion and reports whether the queue was full. Then the completion is lost
// (EventCQErr), and the queue pair that it was of has to end.
func (c *CQ) push(now vtime.Time, w WC, solicited bool) (overrun bool) {
	n := c.nic
	n.completions++
	if w.Status != WCSuccess {
		n.failures++
	}
	n.digest = wire.MixWord(n.digest, uint64(now))
	n.digest = wire.MixWord(n.digest, w.WRID<<16^uint64(w.ByteLen)<<8^uint64(w.Status)^uint64(w.QPN)<<40)
	if c.ring.Len() == c.depth {
		c.nic.stats.CompletionsOverflow++
		if !c.overrun {
			c.overrun = true
			n.events.Push(AsyncEvent{Type: EventCQErr, CQ: c})
		}
		return true
	}
	c.ring.Push(w)
	if c.armed != armedNot {
		c.notify(solicited || w.Status != WCSuccess)
	}
	return false
}
