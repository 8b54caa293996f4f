// SPDX-License-Identifier: Apache-2.0

// Package labspec builds from a lab the inputs of runtimes: its graph, the settings of its machines and
// ranks, and its faults. Programs that only read and write lab files need none of it, so it is not part
// of package lab.
package labspec

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labhook"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// inside is the interface that package lab offers to this package alone.
type inside interface {
	Check() error
	Graph() (*topo.Graph, error)
	Fabric(g *topo.Graph) fabric.Spec
	Fault(g *topo.Graph, f *lab.Fault, id string) (faults.Spec, error)
	Peer(x *lab.External) *rankhost.Peer
	LowClass() (dscp uint8, ok bool)
}

func of(l *lab.Lab) inside { return labhook.Inside(l).(inside) }

// Graph builds the topology, with the addresses of the lab's family. A lab that package lab
// has read has one; one that a program has made or changed may have none, which is an error.
func Graph(l *lab.Lab) (*topo.Graph, error) { return of(l).Graph() }

// Fabric returns the settings of all machines on a graph that Graph has built for the lab.
func Fabric(l *lab.Lab, g *topo.Graph) fabric.Spec { return of(l).Fabric(g) }

// ChannelDelay returns how long a message of the out-of-band channel takes in a simulation and in a
// run in virtual time, or 0 in a lab whose channel takes no time.
func ChannelDelay(l *lab.Lab) vtime.Duration { return vtime.Duration(l.Runtime.Channel) }

// Fault returns a fault's entry of a timeline: its links or nodes, found in the graph. id names its
// random streams. It is an error if the fault names a node or link that is not in the lab.
func Fault(l *lab.Lab, g *topo.Graph, f *lab.Fault, id string) (faults.Spec, error) {
	return of(l).Fault(g, f, id)
}

// Timeline returns the lab's faults, as Fault does. Their ids are their numbers behind
// faults.LabPrefix.
func Timeline(l *lab.Lab, g *topo.Graph) (all []faults.Spec, err error) {
	for i := range l.Faults {
		s, err := Fault(l, g, &l.Faults[i], faults.LabPrefix+strconv.Itoa(i))
		if err != nil {
			return nil, fmt.Errorf("faults[%d]: %w", i, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// InRun reports whether the times of a fault of the lab, given by its number, count from the start of the
// run. The controllers of a lab keep one timeline for the run.
func InRun(l *lab.Lab, i int) bool { return l.Controllers > 1 || l.Faults[i].In == lab.FaultInRun }

// Rows divides the faults of Timeline into those that last through the run and those that recur in each
// row of the results.
func Rows(l *lab.Lab, all []faults.Spec) (run, row []faults.Spec) {
	for i, s := range all {
		if InRun(l, i) {
			run = append(run, s)
		} else {
			row = append(row, s)
		}
	}
	return run, row
}

// Peers returns, by rank, the queue pairs and memory of the external hosts among the ranks' hosts, or
// nil if there are none. hosts are nodes of the graph, in the order of the ranks.
func Peers(l *lab.Lab, g *topo.Graph, hosts []int) []*rankhost.Peer {
	peers, any := make([]*rankhost.Peer, len(hosts)), false
	for i, h := range hosts {
		if x := l.ExternalHost(g.Nodes[h].Name); x != nil {
			peers[i], any = of(l).Peer(x), true
		}
	}
	if !any {
		return nil
	}
	return peers
}

// Keeps returns the names of the hosts whose data outlives a crash: replicas with a store.
func Keeps(l *lab.Lab, g *topo.Graph) (names []string) {
	for i := range l.Workloads {
		k, ok := l.Workloads[i].Chosen().Kind.(apps.Keeper)
		if !ok {
			continue
		}
		for _, n := range k.Keeps(g) {
			if !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	return names
}

// LinkRates returns the rates of the links in words: 100Gbps, or 100Gbps to 400Gbps.
func LinkRates(l *lab.Lab, g *topo.Graph) string {
	if len(g.Links) == 0 {
		return l.Links.Rate.String()
	}
	lo, hi := lab.Rate(g.Links[0].Rate), lab.Rate(g.Links[0].Rate)
	for i := range g.Links {
		lo, hi = min(lo, lab.Rate(g.Links[i].Rate)), max(hi, lab.Rate(g.Links[i].Rate))
	}
	if lo == hi {
		return lo.String()
	}
	return fmt.Sprintf("%v to %v", lo, hi)
}
