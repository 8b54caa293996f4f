// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"flag"
	"fmt"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// traceEvents has a sweep print its events.
var traceEvents = flag.Bool("trace", false, "print the machines' events of a sweep")

// printEvents returns tracers that print.
func printEvents(g *topo.Graph) func(node int) machine.Tracer {
	return func(node int) machine.Tracer { return eventPrinter(g.Nodes[node].Name) }
}

type eventPrinter string

// Trace implements machine.Tracer.
func (name eventPrinter) Trace(now vtime.Time, e machine.Event) {
	fmt.Printf("%-14v %-8s %v port=%d qp=%d psn=%v value=%d %s\n", now, string(name), e.Kind, e.Port, e.QP, e.PSN, e.Value, e.Text)
}
