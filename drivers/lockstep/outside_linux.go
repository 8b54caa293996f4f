package lockstep

import (
	"time"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// outsideEvery is how often, on the wall clock, programs look at what they wait for outside the lab when nothing else happens.
const outsideEvery = time.Millisecond

// lookOutside has programs look at what they wait for outside the lab (Programs): after a round in which one of them has done
// something, and, when nothing is left to happen in the lab, again and again. All programs are parked now, so what
// they see does not depend on which of them was faster. They look at an instant that no node has passed, and lab time
// moves on by a picosecond.
func (c *Coordinator) lookOutside() {
	waiting, touched := uint64(0), uint64(0)
	for i := range c.nodes {
		s := c.nodes[i].slot
		waiting += s.outside().Load()
		touched += s.touched().Load()
	}
	if waiting == 0 {
		return
	}
	if touched == c.touched {
		if !c.idle() {
			return
		}
		c.awaited++
		time.Sleep(outsideEvery)
		if err := c.streams.Alive(); err != nil && c.err == nil {
			c.err = err
		}
	}
	c.touched, c.look = touched, c.Edge()
	for i := range c.nodes {
		if n := &c.nodes[i]; n.slot.outside().Load() > 0 {
			n.looks, n.arrives = true, min(n.arrives, c.look)
		}
	}
}

// idle reports whether nothing is left to happen in the lab.
func (c *Coordinator) idle() bool {
	if c.channel.Next() != vtime.Never || c.faults.Next() != vtime.Never {
		return false
	}
	for i := range c.nodes {
		if n := &c.nodes[i]; min(n.next, n.arrives) != vtime.Never {
			return false
		}
	}
	return true
}

// Awaited returns how often programs have waited for the machine alone: for what no program of the lab had done.
func (c *Coordinator) Awaited() uint64 { return c.awaited }
