package runner

import (
	"fmt"
	"runtime"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/crew"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/lab"
)

// Values of Options.Workers.
const (
	WorkersAuto = -1 // as many as pay
	WorkersMax  = 64 // the most
)

// workersFrom is the number of hosts from which on a lab is divided where nobody says how: a smaller one
// has too few events between two meetings of its parts.
const workersFrom = 128

// workers returns how many parts of the lab run at the same time. What needs all events in one order
// runs undivided; if the user asked for workers all the same, a line says why there is one.
func (r *simulation) workers(g *topo.Graph) int {
	asked := min(r.o.Workers, WorkersMax)
	if asked == 0 || asked == 1 {
		return 1
	}
	if why := r.undivided(); why != "" {
		if asked > 1 && r.o.Say != nil {
			r.o.Say("1 worker instead of %d: %s", asked, why)
		}
		return 1
	}
	if asked == WorkersAuto {
		if g.Hosts < workersFrom || len(r.o.Env.Programs) > 0 || r.o.Env.Delivered != nil {
			return 1 // programs of the user's own may share variables
		}
		return min(runtime.GOMAXPROCS(0), WorkersMax)
	}
	return asked
}

// undivided returns what keeps the lab from being simulated in parts, or an empty text.
func (r *simulation) undivided() string {
	switch {
	case r.lab.Runtime.Channel <= 0:
		return "runtime.channel-delay is 0, so that hosts reach each other in no time"
	case r.o.Check:
		return "--check looks at the whole lab after every event"
	case len(r.o.Captures) > 0:
		return "captures share one limit, frame by frame"
	case r.lab.Trace == lab.TraceMessages:
		return "the trace of messages has the lines of all nodes in one order"
	case r.o.Ledger != nil:
		return "the frames of all links are recorded up to one limit"
	case len(r.o.Acts) > 0:
		return "what was done by hand is done between two events of the whole lab"
	}
	return ""
}

// divide builds the network in parts.
func (r *simulation) divide(g *topo.Graph, c sim.Config, workers int) error {
	n, err := sim.NewParts(c, sim.Divide(g, workers))
	if err != nil {
		return fmt.Errorf("build lab: %w", err)
	}
	n.Crew = func(parts int, work func(int)) sim.Crew { return crew.New(parts, work) }
	n.Observe, n.Eager = r.observe, r.o.eager
	r.net = n
	if err := r.Meet(r.lab, g, 0); err != nil {
		return err
	}
	for _, net := range n.Nets() {
		t, err := Inject(net, r.lab)
		if err != nil {
			return err
		}
		if t != nil {
			r.faults = append(r.faults, t)
		}
	}
	n.Lift = func(net int, now vtime.Time) { r.faults[net].EndRow(now) }
	return nil
}
