package virtrnic

import (
	"fmt"

	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// CQ is a completion queue. Its memory grows with use up to its depth.
type CQ struct {
	nic     *NIC
	ring    ring[WC]
	depth   int
	overrun bool
	channel *CompChannel // may be nil
	armed   armed
}

// CreateCQ returns a completion queue for depth completions, 1 to MaxQPWR*16.
func (n *NIC) CreateCQ(depth int) (*CQ, error) {
	if depth < 1 || depth > MaxQPWR*16 {
		return nil, fmt.Errorf("create completion queue: depth %d is not in 1..%d: %w", depth, MaxQPWR*16, ErrInvalid)
	}
	return &CQ{nic: n, depth: depth}, nil
}

// ResizeCQ changes the depth; what is in the queue must fit.
func (n *NIC) ResizeCQ(c *CQ, depth int) error {
	if depth < max(1, int(c.ring.n)) || depth > MaxQPWR*16 {
		return fmt.Errorf("resize completion queue: depth %d with %d completions in it: %w", depth, c.ring.n, ErrInvalid)
	}
	c.depth = depth
	return nil
}

// PollCQ takes the oldest completion.
func (n *NIC) PollCQ(c *CQ) (WC, bool) {
	if c.ring.n == 0 {
		return WC{}, false
	}
	return c.ring.pop(), true
}

// push adds a completion. A full queue loses it (EventCQErr), and whoever completes
// there has to end.
func (c *CQ) push(now vtime.Time, w WC, solicited bool) (overrun bool) {
	n := c.nic
	n.completions++
	if w.Status != WCSuccess {
		n.failures++
	}
	n.digest = wire.MixWord(n.digest, uint64(now))
	n.digest = wire.MixWord(n.digest, w.WRID<<16^uint64(w.ByteLen)<<8^uint64(w.Status)^uint64(w.QPN)<<40)
	if int(c.ring.n) == c.depth {
		c.nic.stats.CompletionsOverflow++
		if !c.overrun {
			c.overrun = true
			n.events.push(AsyncEvent{Type: EventCQErr, CQ: c})
		}
		return true
	}
	c.ring.push(w)
	if c.armed != armedNot {
		c.notify(solicited || w.Status != WCSuccess)
	}
	return false
}
