// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// carrier is the physical layer of one direction of a link. Frames in flight when the link goes
// down are lost, and so are all frames sent while it is down.
type carrier struct {
	delay vtime.Duration // propagation delay of the link
	pipe  vtime.Duration // latency of the pipeline that a frame passes between the link and its arrival event
	down  bool
	since vtime.Time // when the link last went down
	until vtime.Time // when it last came up
	ever  bool       // the link has been down at least once
	blame []*entry   // faults that keep the link down, or did so last
}

// Arrive implements Link.
func (c *carrier) Arrive(now vtime.Time, _ *wire.Frame) Verdict {
	if !c.ever {
		return Verdict{}
	}
	came := now.Add(-c.pipe)
	if came < c.since || !c.down && came.Add(-c.delay) >= c.until {
		return Verdict{}
	}
	for _, e := range c.blame {
		e.hit++
	}
	return Verdict{Drop: true}
}

// set takes the link down if a fault is to blame, and up otherwise.
func (c *carrier) set(now vtime.Time, blame []*entry) {
	switch down := len(blame) > 0; {
	case down && !c.down:
		c.ever, c.since = true, now
		c.blame = blame
	case down:
		c.blame = blame
	default:
		c.until = now
	}
	c.down = len(blame) > 0
}
