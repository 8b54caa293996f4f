package virtrnic

import "fmt"

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
func (c *CQ) push(w WC) (overrun bool) {
	c.nic.completions++
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
