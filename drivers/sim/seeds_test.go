package sim

import (
	"flag"
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// A sweep runs over seeds from..from+seeds-1.
var (
	fromSeed  = flag.Uint64("from", 0, "first seed of a sweep")
	seedCount = flag.Uint64("seeds", 0, "number of seeds of a sweep; 0: the test's own")

	traceEvents = flag.Bool("trace", false, "print the machines' events of a sweep")
)

// printEvents returns tracers that print.
func printEvents(g *topo.Graph) func(node int) machine.Tracer {
	return func(node int) machine.Tracer { return eventPrinter(g.Nodes[node].Name) }
}

type eventPrinter string

// Trace implements machine.Tracer.
func (name eventPrinter) Trace(now vtime.Time, e machine.Event) {
	fmt.Printf("%-14v %-8s %v port=%d qp=%d psn=%v value=%d %s\n", now, string(name), e.Kind, e.Port, e.QP, e.PSN, e.Value, e.Text)
}

// seeds returns the range of a sweep.
func seeds(t *testing.T, count uint64) (from, n uint64) {
	t.Helper()
	if *seedCount > 0 {
		count = *seedCount
	}
	if testing.Short() {
		count = min(count, 5)
	}
	return *fromSeed, count
}
