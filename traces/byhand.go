// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// ByHand returns a function that traces faults added and removed by hand (faults.Act) as events.
func ByHand(to machine.Tracer) func(now vtime.Time, added bool, text string) {
	return func(now vtime.Time, added bool, text string) {
		e := machine.Event{Kind: machine.EventFaultRemoved, Text: text}
		if added {
			e.Kind = machine.EventFaultAdded
		}
		to.Trace(now, e)
	}
}
