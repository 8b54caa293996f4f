package lockstep

import (
	"time"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// outsideEvery is how often, on the wall clock, programs look at what they wait for outside the lab when nothing else happens.
const outsideEvery = time.Millisecond

// lookOutside has programs look at what they wait for outside the lab (Programs): after a round in which one of them has done
// something, and, when nothing is left to happen in the lab, until one of them finds it. They look in a round of its own, in
// which no program goes on, so what they see does not depend on which of them is faster. Those that may go on do so at an
// instant that no node has passed. Programs that wait in vain for something in the lab are waited for, too: Streams.Stuck sees to their end.
func (c *Coordinator) lookOutside() error {
	waiting, stuck, touched := c.outside()
	idle := c.idle()
	if waiting == 0 && (stuck == 0 || !idle) || touched == c.touched && !idle {
		return nil
	}
	inside := waiting == 0 // it is no matter of this machine when they end
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

// outside returns how many threads of programs wait for something outside the lab, how many programs are stuck, and what programs have
// done that others may wait for.
func (c *Coordinator) outside() (waiting, stuck, touched uint64) {
	for i := range c.nodes {
		s := c.nodes[i].slot
		waiting += s.outside().Load()
		stuck += s.stuck().Load()
		touched += s.touched().Load()
	}
	return waiting, stuck, touched
}

// check has programs look, and reports whether any of them goes on. No lab time passes.
func (c *Coordinator) check() (found bool, err error) {
	before := c.edge
	at := c.Edge()
	var asked []int
	for i := range c.nodes {
		if n := &c.nodes[i]; n.slot.outside().Load()+n.slot.stuck().Load() > 0 {
			c.Grant(i, 0)
			n.grant.check().Store(int64(at))
			c.ledger.Allow(i, at) // no node has handled an event there, and each forgets what it has been granted beyond
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

// Awaited returns how often programs have gone on for something that no program of the lab had done: what the machine had done
// meanwhile. Such a run need not be the same again.
func (c *Coordinator) Awaited() uint64 { return c.awaited }
