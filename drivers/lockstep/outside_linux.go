// SPDX-License-Identifier: Apache-2.0

package lockstep

import (
	"time"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// outsideEvery is the interval, on the wall clock, at which programs check their conditions outside the lab when nothing else
// happens.
const outsideEvery = time.Millisecond

// lookOutside has programs check their conditions outside the lab (Programs): after a round in which one of them has acted, and, when the
// lab has no event left, until a condition holds. They check in a round of its own, in which no program resumes, so the outcome does not
// depend on their speed. Those that may resume do so at an instant that no node has passed. It also waits for programs that wait for ever
// for something in the lab: Streams.Stuck ends them.
func (c *Coordinator) lookOutside() error {
	waiting, stuck, touched := c.outside()
	idle := c.idle()
	if waiting == 0 && (stuck == 0 || !idle) || touched == c.touched && !idle {
		return nil
	}
	inside := waiting == 0 // it is no matter of this server when they end
	for alone := false; ; {
		c.touched = touched
		found, err := c.check()
		if found && alone && !inside {
			c.awaited++
		}
		if found || err != nil || !c.idle() {
			return err
		}
		if waiting, stuck, touched = c.outside(); waiting+stuck == 0 {
			return nil
		}
		if alone = touched == c.touched; alone {
			if waiting == 0 {
				c.streams.Stuck(int(stuck))
			}
			time.Sleep(outsideEvery)
		}
		if err := c.streams.Alive(); err != nil {
			return err
		}
		if err := c.streams.Edge(); err != nil {
			return err
		}
	}
}

// outside returns the number of threads of programs that wait for something outside the lab, the number of programs that are stuck,
// and the count of actions that others may wait for.
func (c *Coordinator) outside() (waiting, stuck, touched uint64) {
	for i := range c.nodes {
		s := c.nodes[i].slot
		waiting += s.outside().Load()
		stuck += s.stuck().Load()
		touched += s.touched().Load()
	}
	return waiting, stuck, touched
}

// check has programs check their conditions, and reports whether any of them resumes. No lab time
// passes.
func (c *Coordinator) check() (found bool, err error) {
	before := c.edge
	at := c.Edge()
	var asked []int
	for i := range c.nodes {
		if n := &c.nodes[i]; n.slot.outside().Load()+n.slot.stuck().Load() > 0 {
			c.Grant(i, 0)
			n.grant.check().Store(int64(at))
			c.ledger.Allow(i, at) // no node has handled an event there, and each forgets its grant beyond
			asked = append(asked, i)
		}
	}
	if err := c.Round(); err != nil {
		return false, err
	}
	for _, i := range asked {
		found = found || c.nodes[i].slot.ready().Load() != 0
	}
	if found {
		c.look = at
	} else {
		c.edge = before
	}
	return found, nil
}

// idle reports whether nothing is left to happen in the lab.
func (c *Coordinator) idle() bool {
	if c.channel.Next() != vtime.Never || c.faults.Next() != vtime.Never {
		return false
	}
	for i := range c.nodes {
		if c.ledger.Next(i) != vtime.Never {
			return false
		}
	}
	return true
}

// Awaited returns the number of times that programs have resumed after an event that no program of the lab caused, but the
// server. Such a run need not be the same again.
func (c *Coordinator) Awaited() uint64 { return c.awaited }
