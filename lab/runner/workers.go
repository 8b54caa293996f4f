// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/mcastlab/mcastlab/apps/registry"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/crew"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/lab"
)

// Values of Options.Workers.
const (
	WorkersAuto = -1 // as many as pay, or one, undivided, where that is faster
	WorkersMax  = 64 // the most
)

// workersFrom is the number of hosts from which on a lab is divided by default: a smaller one has too
// few events between two meetings of its parts.
const workersFrom = 128

// A large lab has more parts than workers: the nodes of a part of that many hosts fit the cache of a core. So it is divided for one
// core, too. More parts than partsMax did not pay in labs of 1,024 and of 16,384 hosts: each round asks all for their next event.
const (
	manyFrom  = 512
	partHosts = 64
	partsMax  = 64
)

// repeatsFrom is the number of packets from which on most of a message can be left out, if the lab is undivided, which is faster
// than all cores: the first few hundred and the last ones are simulated.
const repeatsFrom = 1024

// partsOf returns the number of parts into which a lab with that many hosts is divided for the given
// workers.
func partsOf(hosts, workers int) int {
	if hosts < manyFrom {
		return workers
	}
	return workers * max(1, min(hosts/partHosts, partsMax)/workers)
}

// parts returns the part of each node and the number of workers, nil and 1 if the lab is simulated undivided.
func (r *simulation) parts(g *topo.Graph) (of []int, workers int) {
	asked := r.workers(g)
	if asked == 0 {
		return nil, 1
	}
	parts := partsOf(g.Hosts, asked)
	if r.o.eager {
		parts = max(parts, 2*asked)
	}
	of = sim.Divide(g, parts)
	if count := slices.Max(of) + 1; count > 1 {
		return of, min(asked, count)
	}
	if r.o.Workers > 1 && r.o.Say != nil {
		r.o.Say("1 worker instead of %d: no two switches have hosts, so that there is nothing to divide", asked)
	}
	return nil, 1
}

// workers returns the number of workers that the lab is divided for, or 0 if it is not to be divided. A lab that needs all
// events in one order runs undivided; if the user asked for workers all the same, a line gives the reason.
func (r *simulation) workers(g *topo.Graph) int {
	asked := min(r.o.Workers, WorkersMax)
	if asked == 0 || asked == 1 {
		return 0
	}
	if why := r.undivided(g); why != "" {
		if asked > 1 && r.o.Say != nil {
			r.o.Say("1 worker instead of %d: %s", asked, why)
		}
		return 0
	}
	if asked != WorkersAuto {
		return asked
	}
	cores := min(runtime.GOMAXPROCS(0), WorkersMax, max(1, g.Hosts/partHosts)) // with fewer hosts each, they would wait for each other
	switch {
	case g.Hosts < workersFrom || cores == 1 && g.Hosts < manyFrom || r.repeats():
		return 0
	case len(r.o.Env.Programs) > 0 || r.o.Env.Delivered != nil:
		return 0 // programs of the user's own may share variables
	}
	return cores
}

// repeats reports whether most of the lab's packets may be left out (sim.Config.Skip).
func (r *simulation) repeats() bool {
	l := r.lab
	switch {
	case r.o.NoSkip, l.NICs.Retransmit == "irn", l.Switches.FlowControl == "credits":
		return false
	case slices.ContainsFunc(l.Faults, func(f lab.Fault) bool { return f.OfFrames() != nil }):
		return false // any frame may be the one, also before and after
	}
	return slices.ContainsFunc(l.Workloads, func(w registry.Workload) bool {
		e := w.Chosen()
		return e.Phantom() && e.Longest()/int64(l.NICs.MTU) >= repeatsFrom
	})
}

// undivided returns the reason why the lab cannot be simulated in parts, or an empty text.
func (r *simulation) undivided(g *topo.Graph) string {
	switch {
	case r.lab.Runtime.Channel <= 0:
		return "runtime.channel-delay is 0, so that hosts reach each other in no time"
	case r.lab.Switches.FlowControl == "credits" && r.instant(g):
		return "a credit takes no time between switches with latency 0 and links with delay 0"
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

// instant reports whether a credit gets from some switch to another one in no time.
func (r *simulation) instant(g *topo.Graph) bool {
	return r.lab.Switches.Latency == 0 && slices.ContainsFunc(g.Links, func(l topo.Link) bool {
		return l.Delay == 0 && min(l.A.Node, l.B.Node) >= g.Hosts
	})
}

// divide builds the network in parts.
func (r *simulation) divide(g *topo.Graph, c sim.Config, of []int) error {
	n, err := sim.NewParts(c, of, r.Meta.Workers)
	if err != nil {
		return fmt.Errorf("build lab: %w", err)
	}
	n.Crew = func(workers int, work func(int)) sim.Crew { return crew.New(workers, work) }
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
