// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import (
	"cmp"
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// eventMerger puts the events of all nodes into the order of lab time. A node that sends a batch cannot
// know that nothing earlier will follow: when the node is late, a rank acts, or a frame that waits
// in a socket is handled, at a lab time in the past. Therefore only events are written that are
// older than every node's last batch but one. An event misses its place only if its node is late
// by the whole time between two batches; such events are written all the same, and counted.
type eventMerger struct {
	nodes []following
	last  vtime.Time // lab time of the latest event written
	late  uint64     // events written after later ones
}

// following is the state of merging one node.
type following struct {
	name   string
	held   []*nodeapi.Event // in order
	until  vtime.Time       // its clock at the latest batch
	before vtime.Time       // and at the one before that
	begun  bool
	events shortage
	lines  shortage // of the trace
}

// shortage counts what a node had no room for while it is followed. Nodes count from their start.
type shortage struct{ first, now uint64 }

func (s *shortage) lost() uint64 { return s.now - s.first }

func newEventMerger(n int) eventMerger { return eventMerger{nodes: make([]following, n)} }

// take adds a batch of node i.
func (m *eventMerger) take(i int, b *nodeapi.EventBatch) {
	n := &m.nodes[i]
	if !n.begun {
		n.begun, n.events.first, n.lines.first = true, b.Cut, b.TraceCut
	}
	n.events.now, n.lines.now = max(n.events.now, n.events.first, b.Cut), max(n.lines.now, n.lines.first, b.TraceCut)
	if until := vtime.Time(b.Until); until > n.until { // batches of a trace repeat it
		n.before, n.until = n.until, until
	}
	if len(b.Events) > 0 {
		n.held = append(n.held, b.Events...)
		slices.SortStableFunc(n.held, func(a, b *nodeapi.Event) int { return cmp.Compare(a.Lab, b.Lab) })
	}
}

// end notes that nothing more comes from node i.
func (m *eventMerger) end(i int) { m.nodes[i].before, m.nodes[i].until = vtime.Never, vtime.Never }

// flush writes the events that hardly anything earlier can precede.
func (m *eventMerger) flush(write func(node string, e *nodeapi.Event)) {
	limit := vtime.Never
	for i := range m.nodes {
		limit = min(limit, m.nodes[i].before)
	}
	for {
		first := -1
		for i := range m.nodes {
			h := m.nodes[i].held
			if len(h) > 0 && vtime.Time(h[0].Lab) < limit && (first < 0 || h[0].Lab < m.nodes[first].held[0].Lab) {
				first = i
			}
		}
		if first < 0 {
			return
		}
		n := &m.nodes[first]
		e := n.held[0]
		n.held = n.held[1:]
		if at := vtime.Time(e.Lab); at < m.last {
			m.late++
		} else {
			m.last = at
		}
		write(n.name, e)
	}
}
