// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"github.com/mcastlab/mcastlab/core/wire"
)

// Classes maps frames to the eight priorities.
type Classes struct {
	DSCP [64]uint8 // of untagged frames, by DSCP
	PCP  [8]uint8  // of frames with an 802.1Q tag, by its priority code point
}

// DefaultClasses returns the usual mapping: the priority of an untagged frame is the upper
// three bits of its DSCP (26, the usual value of RoCE, gives 3; 48, the usual value of CNPs,
// gives 6), and that of a tagged frame its priority code point.
func DefaultClasses() *Classes {
	c := &Classes{}
	for i := range c.DSCP {
		c.DSCP[i] = uint8(i >> 3)
	}
	for i := range c.PCP {
		c.PCP[i] = uint8(i)
	}
	return c
}

// priorityOf maps a frame as DefaultClasses does.
func priorityOf(f *wire.Frame) uint8 {
	if p, tagged := f.PCP(); tagged {
		return p
	}
	return f.Traffic() >> 5
}

func (c *Classes) of(f *wire.Frame) uint8 {
	if p, tagged := f.PCP(); tagged {
		return c.PCP[p&7] & 7
	}
	return c.DSCP[f.Traffic()>>2] & 7
}

// turn is the state of the weighted round of one port: deficit round robin, in bytes on
// the wire (Shreedhar and Varghese, SIGCOMM 1995).
type turn struct {
	at      uint8 // the priority whose turn it is
	granted bool  // that priority has had the quantum of this turn
	credit  [8]int32
}

// round returns the weighted priority whose frame starts next, among those in may.
func (s *Switch) round(port int, may uint8) uint8 {
	e, t := &s.eg[port], &s.turn[port]
	for {
		p := t.at
		if may>>p&1 != 0 {
			if !t.granted {
				t.credit[p] += s.quantum[p]
				t.granted = true
			}
			if size := e.queue(p).First().size; t.credit[p] >= size {
				t.credit[p] -= size
				return p
			}
		} else {
			t.credit[p] = 0 // credit that is not used is lost
		}
		t.at, t.granted = (p+1)&7, false
	}
}

// setWeights sets the shares of weighted priorities. A quantum is at least the largest frame,
// so every priority sends in every round.
func (s *Switch) setWeights(weights [8]uint8) {
	for p, w := range weights {
		if w > 0 {
			s.weighted |= 1 << p
			s.quantum[p] = int32(w) * maxFrameWire
		}
	}
	if s.weighted != 0 {
		s.turn = make([]turn, len(s.ports))
	}
}
