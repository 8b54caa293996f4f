// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/window"
)

// Schedule is the fault timeline of a lab that is divided into parts, as their driver follows it. Each
// part has the whole timeline, too, and applies the faults of its nodes, so that a call has one instant
// and one place among the calls of an instant in all of them.
type Schedule struct {
	net     *Net // a part without nodes
	decider window.Decider
	census  *window.Census // of the call that is being made
	verdict window.Verdict // on it
}

// NewSchedule returns a timeline without faults for the lab that cfg describes.
func NewSchedule(cfg Config) *Schedule {
	cfg.Check, cfg.Ledger, cfg.Trace, cfg.Watch = false, false, nil, nil
	if cfg.layout == nil {
		cfg.layout = newLayout(cfg.Graph, make([]int32, len(cfg.Graph.Nodes)))
	}
	cfg.part, cfg.Edge = outside, partEdge{}
	n, err := New(cfg)
	if err != nil {
		panic(fmt.Sprintf("sim: no node can be built: %v", err))
	}
	s := &Schedule{net: n}
	n.judge = s.judge
	return s
}

// judge decides on a call.
func (s *Schedule) judge(due window.Due) window.Verdict {
	s.verdict = window.Make
	if !s.decider.Busy(due, s.census) {
		s.verdict = s.decider.Decide(due, s.census)
	}
	return s.verdict
}

// Net returns the simulation that makes the calls of the timeline. It has no nodes.
func (s *Schedule) Net() *Net { return s.net }

// Resume schedules the calls that have been put off, as Begin and Release do in the parts. The time is
// that of the lab's clock.
func (s *Schedule) Resume(now vtime.Time) {
	s.Rest(now)
	s.net.resume()
}

// Rest makes the instant of the lab's clock that of the timeline. What changes the timeline between jobs
// needs it first: calls that were put off may lie behind that instant, and new ones come before them.
func (s *Schedule) Rest(now vtime.Time) {
	if n := s.net; n.queue.n+n.far.len() == 0 {
		n.Rest(now)
	} else {
		n.now = now
	}
}

// Next implements window.Schedule.
func (s *Schedule) Next() vtime.Time { return s.net.Fault() }

// Call implements window.Schedule.
func (s *Schedule) Call(c *window.Census) (window.Verdict, error) {
	s.census = c
	err := s.net.Call(s.net.Fault(), window.Make) // its judge decides
	return s.verdict, err
}
