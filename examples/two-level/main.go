// SPDX-License-Identifier: Apache-2.0

// Two-level is a broadcast algorithm of one's own that takes part in a comparison with cepheus and
// binomial (docs/tutorial-scheme.md): the root sends to one leader per four ranks, and each
// leader to the others of its four.
package main

import (
	"github.com/mcastlab/mcastlab/command"
	"github.com/mcastlab/mcastlab/rank"
)

func main() { command.Main(rank.Program{Name: "two-level", Broadcast: newTwoLevel}) }

const team = 4 // ranks: a leader and those it serves

// twoLevel is one rank's part.
type twoLevel struct {
	r        *rank.Rank
	buf      *rank.Buffer
	n        int
	children []*rank.Conn
	recv     *rank.Request // nil at the root
}

func newTwoLevel(r *rank.Rank) (rank.Broadcast, error) { return &twoLevel{r: r}, nil }

// place returns from whom a rank receives, -1 at the root, and whom it sends to. Ranks count from
// the root.
func place(me, size int) (parent int, children []int) {
	if me%team != 0 {
		return me - me%team, nil
	}
	if me == 0 {
		parent = -1
		for leader := team; leader < size; leader += team {
			children = append(children, leader)
		}
	}
	for other := me + 1; other < min(me+team, size); other++ {
		children = append(children, other)
	}
	return parent, children
}

// Begin connects the rank with its parent and children and posts the receive.
func (t *twoLevel) Begin(b *rank.Buffer, n, root int) error {
	size := t.r.Size()
	parent, children := place((t.r.ID()-root+size)%size, size)
	t.buf, t.n, t.children, t.recv = b, n, nil, nil
	if parent >= 0 {
		c, err := t.r.Connect((parent + root) % size)
		if err != nil {
			return err
		}
		if t.recv, err = c.Recv(b, 0, n); err != nil {
			return err
		}
	}
	for _, child := range children {
		c, err := t.r.Connect((child + root) % size)
		if err != nil {
			return err
		}
		t.children = append(t.children, c)
	}
	return nil
}

// Run waits for the message and passes it on, to one child after the other.
func (t *twoLevel) Run(received func()) error {
	if t.recv != nil {
		if err := t.r.Wait(t.recv); err != nil {
			return err
		}
	}
	received()
	for _, c := range t.children {
		q, err := c.Send(t.buf, 0, t.n)
		if err != nil {
			return err
		}
		if err := t.r.Wait(q); err != nil {
			return err
		}
	}
	return nil
}

// Close has nothing to release: connections end with the run.
func (t *twoLevel) Close() error { return nil }
