package faults

import (
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// carrier is one direction of a link as the physical layer has it. What is under way when
// the link goes down is lost, and all that is sent while it is.
type carrier struct {
	delay vtime.Duration // of the link, and
	pipe  vtime.Duration // of the pipeline at its end, which a frame passes before it is handed over
	down  bool
	since vtime.Time // when it went down last
	until vtime.Time // when it came up again
	ever  bool       // it has been down
	blame []*entry   // faults that take it down, or did last
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

// set takes the link down or up.
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
