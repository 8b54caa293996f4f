// SPDX-License-Identifier: Apache-2.0

package hpl

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// castTimes holds the instants of one panel's broadcast on one rank.
type castTimes struct {
	Posted   vtime.Time `json:"posted"`   // the root begins: all ranks of the row have posted receives
	Received vtime.Time `json:"received"` // the rank has the panel
}

// caster broadcasts panels along a process row. It is a worker beside the rank's program, so that a
// broadcast proceeds while the rank computes. It has room for two panels: one in use and one in
// transfer.
type caster struct {
	*solver
	b        collective.Algorithm // nil if the row is one process
	slots    [2]panel
	bufs     [2]*rank.Buffer
	posted   int // panels that this process column has factorised
	arrived  int // panels that have been received
	released int // panels that have been used
	err      error
}

func newCaster(s *solver) (*caster, error) {
	c := &caster{solver: s}
	m2 := s.mp // at most
	for i := range c.slots {
		var err error
		if c.bufs[i], err = s.alloc((m2 + s.NB + 1) * s.NB); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// connect prepares the broadcast.
func (c *caster) connect() (err error) {
	if c.Q == 1 {
		return nil
	}
	c.b, err = collective.NewBcast(c.Bcast, c.row.Rank, c.options())
	return err
}

func (c *caster) options() collective.Options {
	o := collective.Options{Label: "panel"}
	if c.Bcast == "chain" {
		o.Slices = c.Slices
	}
	if collective.HasFallback(c.Bcast) {
		o.Fallback = c.p.Fallback
	}
	return o
}

func (c *caster) close() error {
	if c.b != nil {
		if err := c.b.Close(); err != nil {
			return err
		}
	}
	for _, b := range c.bufs {
		if err := b.Free(); err != nil {
			return err
		}
	}
	return nil
}

// slot returns the emptied storage of a panel.
func (c *caster) slot(k int) *panel {
	p := &c.slots[k%2]
	*p = panel{k: k, j0: k * c.NB, jb: c.width(k), m2: c.mp - c.rowsBelow(min((k+1)*c.NB, c.N)), buf: c.bufs[k%2]}
	p.piv = make([]int32, p.jb)
	if c.a != nil {
		p.l1, p.l2 = make([]float64, p.jb*p.jb), make([]float64, p.m2*p.jb)
	}
	return p
}

// post gives the caster a panel that this process column has factorised.
func (c *caster) post(p *panel) {
	c.posted = p.k + 1
	c.r.Notify()
}

// wait returns a panel once this rank has received it and passed it on.
func (c *caster) wait(k int) (*panel, error) {
	c.r.Until(fmt.Sprintf("panel %d", k), func() bool { return c.arrived > k || c.err != nil })
	return &c.slots[k%2], c.err
}

// release returns the storage of a panel.
func (c *caster) release(k int) {
	c.released = k + 1
	c.r.Notify()
}

// serve is the worker: it broadcasts all panels in their order.
func (c *caster) serve() error {
	for k := range c.epochs {
		c.r.Until(fmt.Sprintf("room for panel %d", k), func() bool { return c.released >= k-1 })
		t, err := c.pass(k)
		c.err = err
		c.arrived = k + 1
		c.r.Notify()
		if err != nil {
			return fmt.Errorf("broadcast panel %d: %w", k, err)
		}
		c.rec.Panels = append(c.rec.Panels, t)
	}
	return nil
}

// pass broadcasts one panel, or with RootsAll has each process of the row broadcast a share of it.
func (c *caster) pass(k int) (at castTimes, err error) {
	if c.hasCol(k) {
		c.r.Until(fmt.Sprintf("the factors of panel %d", k), func() bool { return c.posted > k })
	} else {
		c.slot(k)
	}
	p := &c.slots[k%2]
	if c.b == nil {
		at.Posted = c.r.Now()
		at.Received = at.Posted
		return at, nil
	}
	roots := c.p.panelRoots(&c.Test)
	for i := range roots {
		root := (k + i) % c.Q
		n := p.words()*(i+1)/roots - p.words()*i/roots
		t, posted, err := c.share(p, n*word, root)
		if err != nil {
			return at, err
		}
		if i == 0 {
			at.Posted = posted
		}
		if root != c.myCol {
			at.Received = t.Received
			c.rec.CastBytes += n * word
		}
	}
	if c.hasCol(k) {
		at.Received = max(at.Received, at.Posted)
		return at, nil
	}
	if c.a != nil {
		p.decode()
	} else {
		for j := range p.piv {
			p.piv[j] = int32(c.modelPivot(p, j))
		}
	}
	return at, nil
}

// share broadcasts n bytes of a panel from a process of the row, and returns when all processes had posted
// their receives.
func (c *caster) share(p *panel, n, root int) (at collective.Times, posted vtime.Time, err error) {
	if err := c.b.Begin(p.buf, n, root); err != nil {
		return at, 0, err
	}
	if err := c.row.synchronise(); err != nil {
		return at, 0, err
	}
	posted = c.r.Now()
	at, err = c.b.Run()
	return at, posted, err
}
