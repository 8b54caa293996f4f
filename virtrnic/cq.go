package virtrnic

import (
	"fmt"

	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// CQ is a completion queue.
type CQ struct {
	nic     *NIC
	ring    []WC // depth entries
	head, n int
	overrun bool
}

// CreateCQ returns a completion queue for depth completions, 1 to MaxQPWR*16.
func (n *NIC) CreateCQ(depth int) (*CQ, error) {
	if depth < 1 || depth > MaxQPWR*16 {
		return nil, fmt.Errorf("create completion queue: depth %d is not in 1..%d: %w", depth, MaxQPWR*16, ErrInvalid)
	}
	return &CQ{nic: n, ring: make([]WC, depth)}, nil
}

// PollCQ takes the oldest completion.
func (n *NIC) PollCQ(c *CQ) (WC, bool) {
	if c.n == 0 {
		return WC{}, false
	}
	w := c.ring[c.head]
	c.head = (c.head + 1) % len(c.ring)
	c.n--
	return w, true
}

// push adds a completion. A full queue loses it, which ends every queue pair that
// completes there (IBV_EVENT_CQ_ERR); the first loss is what it returns.
func (c *CQ) push(now vtime.Time, w WC) (overrun bool) {
	n := c.nic
	n.completions++
	n.digest = wire.MixWord(n.digest, uint64(now))
	n.digest = wire.MixWord(n.digest, w.WRID<<16^uint64(w.ByteLen)<<8^uint64(w.Status)^uint64(w.QPN)<<40)
	if c.n == len(c.ring) {
		c.nic.stats.CompletionsOverflow++
		first := !c.overrun
		c.overrun = true
		return first
	}
	c.ring[(c.head+c.n)%len(c.ring)] = w
	c.n++
	return false
}
