// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lockstep

import (
	"cmp"
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// nodeEvent is an event from a node of a run in virtual time.
type nodeEvent struct {
	node int
	e    *nodeapi.Event
}

// nodeEventsMax is the number of queued events at which those that are complete are written.
const nodeEventsMax = 1 << 12

// writeEvents enters the events of before an instant into the run's events, in the order of their
// instants and, within one, of the nodes.
func (r *lockstepRun) writeEvents(before vtime.Time) {
	slices.SortStableFunc(r.events, func(a, b nodeEvent) int { return cmp.Or(cmp.Compare(a.e.Lab, b.e.Lab), cmp.Compare(a.node, b.node)) })
	n := 0
	for ; n < len(r.events) && vtime.Time(r.events[n].e.Lab) < before; n++ {
		if at, e, known := r.events[n].e.Machine(); known {
			r.Events.Node(r.nodes[r.events[n].node].name).Trace(at, e)
		}
	}
	r.events = slices.Delete(r.events, 0, n)
}
