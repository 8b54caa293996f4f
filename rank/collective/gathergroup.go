// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"fmt"

	"github.com/mcastlab/mcastlab/rank"
)

// groupGather is an Allgather over in-network multicast: every rank sends its block once, to all
// others. The ranks form M chains of R = N/M ranks (AG-21); if M does not divide N the first chains are
// longer by one. All chains send at the same time, and in each chain one rank after the other. A chain
// has one group, whose source changes: when all have acknowledged a rank's block, the next rank takes
// over its PSN (CEP-40), after an empty message that permits it.
//
//	T = (R-1) (t + A(L) + S(0, L)) + t, t = (M-1) wire(n)/B + S(n, L); with M = N, M-2 in place of M-1
//	(blocks of one packet do not meet: t = S(n, L))
//
// of which (N-1) wire(n)/B is for the bytes that a rank receives (F-13). When many ranks send
// at the same time every link has a queue (the incast of AG-22): 16 of 16 ranks take 1.18
// times as long at 1 MiB.
type groupGather struct {
	r      *rank.Rank
	chains []chain
	own    int // this rank's chain
	b      *rank.Buffer
	n      int
	turn   *rank.Request // receive of the empty message; nil for the first rank of a chain
}

// chain is a list of ranks that send one after the other.
type chain struct {
	g           *rank.Group
	first, last int
	recv        []*rank.Request
}

func newGroupGather(r *rank.Rank, o *Options) (Algorithm, error) {
	m := &groupGather{r: r}
	count := min(o.Parallel, r.Size())
	next := 0
	for i := range count {
		c := chain{first: next}
		next += (r.Size() - next + count - i - 1) / (count - i)
		c.last = next - 1
		if c.first <= r.ID() && r.ID() <= c.last {
			m.own = i
		}
		var err error
		if c.g, err = r.NewGroup(fmt.Sprintf("allgather/%s/%d", o.Label, i), c.first); err != nil {
			return nil, err
		}
		m.chains = append(m.chains, c)
	}
	return m, nil
}

// Begin implements Algorithm. The first rank of each chain takes its group back.
func (m *groupGather) Begin(b *rank.Buffer, n, _ int) error {
	m.b, m.n, m.turn = b, n, nil
	me := m.r.ID()
	for i := range m.chains {
		c := &m.chains[i]
		if err := c.g.SetSource(c.first); err != nil {
			return err
		}
		c.recv = c.recv[:0]
		for from := c.first; from <= c.last; from++ {
			if from == me {
				continue
			}
			q, err := c.g.Recv(b, from*n, n)
			if err != nil {
				return err
			}
			c.recv = append(c.recv, q)
		}
	}
	c := &m.chains[m.own]
	if me > c.first {
		var err error
		if m.turn, err = recvFrom(m.r, me-1, b, 0, 0); err != nil {
			return err
		}
	}
	if me < c.last {
		_, err := m.r.Connect(me + 1)
		return err
	}
	return nil
}

// Run implements Algorithm.
func (m *groupGather) Run() (at Times, err error) {
	sent, err := m.send(&m.chains[m.own])
	if err != nil {
		return at, err
	}
	for i := range m.chains {
		c := &m.chains[i]
		if err := m.r.Wait(c.recv...); err != nil {
			return at, err
		}
		if err := c.g.SetSource(c.last); err != nil {
			return at, err
		}
	}
	at.Received = m.r.Now()
	err = m.r.Wait(sent)
	at.Done = m.r.Now()
	return at, err
}

// send waits for the rank's turn in its chain, sends the block to all and passes the turn on.
// It returns the request that may not be acknowledged yet.
func (m *groupGather) send(c *chain) (*rank.Request, error) {
	me := m.r.ID()
	if m.turn != nil {
		if err := m.r.Wait(append(c.recv[:me-c.first:me-c.first], m.turn)...); err != nil {
			return nil, err
		}
		c.recv = c.recv[me-c.first:]
	}
	if err := c.g.SetSource(me); err != nil {
		return nil, err
	}
	q, err := c.g.Send(m.b, me*m.n, m.n)
	if err != nil || me == c.last {
		return q, err
	}
	if err := m.r.Wait(q); err != nil {
		return nil, err
	}
	if err := c.g.SetSource(me + 1); err != nil {
		return nil, err
	}
	return sendTo(m.r, me+1, m.b, 0, 0)
}

// Close implements Algorithm.
func (m *groupGather) Close() error {
	for _, c := range m.chains {
		if err := c.g.Delete(); err != nil {
			return err
		}
	}
	return nil
}
