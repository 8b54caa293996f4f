// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/sim"
)

// Ledger holds the frames that have arrived at the ends of all links of a run, in the order of nodes
// and their ports.
type Ledger struct {
	Links [][]sim.Entry
	Whole bool // it has every frame
}

// Set fills a ledger in; it has the type of Options.Ledger.
func (l *Ledger) Set(links [][]sim.Entry, whole bool) { l.Links, l.Whole = links, whole }

// Empty reports whether the ledger has not been filled in: the run ended before it had a lab.
func (l *Ledger) Empty() bool { return l.Links == nil }

// Parted returns the first frame by which a run differs from the simulation of the same lab, as a
// sentence, or an empty text if their ledgers are equal as far as both have the frames.
func Parted(g *topo.Graph, run, simulation *Ledger) string {
	first, text := vtime.Never, ""
	id := 0
	for i := range g.Nodes {
		for p := range g.Nodes[i].Links {
			at, how := partedAt(run.Links[id], simulation.Links[id], run.Whole, simulation.Whole)
			if id++; at < first {
				far := g.Peer(i, p)
				first, text = at, fmt.Sprintf("from %s to %s, %s", g.PortName(topo.End{Node: i, Port: p}), g.PortName(far), how)
			}
		}
	}
	return text
}

// partedAt returns when two ledgers of a link differ first, vtime.Never if they do not, and how. What
// one that is not whole lacks at its end is not known.
func partedAt(run, simulation []sim.Entry, runWhole, simulationWhole bool) (at vtime.Time, how string) {
	k := 0
	for k < len(run) && k < len(simulation) && run[k] == simulation[k] {
		k++
	}
	switch {
	case k == len(run) && (k == len(simulation) || !runWhole), k == len(simulation) && !simulationWhole:
		return vtime.Never, ""
	case k == len(simulation):
		return run[k].At, fmt.Sprintf("frame %d arrives at %v, and there is none in the simulation", k, run[k].At)
	case k == len(run):
		return simulation[k].At, fmt.Sprintf("frame %d does not arrive, and in the simulation it does at %v", k, simulation[k].At)
	case run[k].At != simulation[k].At:
		return min(run[k].At, simulation[k].At), fmt.Sprintf("frame %d arrives at %v, and in the simulation at %v", k, run[k].At, simulation[k].At)
	}
	return run[k].At, fmt.Sprintf("frame %d, which arrives at %v, has other bytes than in the simulation", k, run[k].At)
}
