// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// amount is the number of objects of one kind that a node holds.
type amount struct {
	what  string
	n     int
	later bool // the objects may remain until the last event of the run
	// orphans marks that groups which are never deleted may account for the objects.
	orphans bool
}

// amounts returns the numbers of all kinds of objects that a job can leave at a node.
func (n *Net) amounts(id int) []amount {
	nd := &n.nodes[id]
	if nd.sw != nil {
		h := nd.sw.Holding()
		return []amount{
			{"groups", h.Groups, false, true}, {"groups in the load of ports", h.PortLoad, false, true},
			{"bytes of multicast tables", h.MFTBytes, true, true},
			{"reductions", h.Reductions, true, true}, {"deleted groups", h.Buried, true, false}, {"plain multicast groups", h.Multicast, false, false},
			{"frames", h.Frames, true, false}, {"bytes of the buffer", h.Buffered, true, false}, {"armed timers", h.Timers, true, false},
		}
	}
	m := nd.nic.Made()
	member, led := nd.host.agent.Groups()
	return []amount{
		{"queue pairs", m.QPs, false, false}, {"memory regions", m.MRs, false, false}, {"completion queues", m.CQs, false, false},
		{"protection domains", m.PDs, false, false},
		{"address handles", m.AHs, false, false}, {"shared receive queues", m.SRQs, false, false},
		{"multicast attachments", m.Attached, false, false},
		{"groups it is in", member, false, false}, {"groups it leads", led, false, false}, {"tasks", len(nd.host.tasks), false, false},
		{"frames", nd.nic.Queued(), true, false}, {"armed timers", nd.nic.ArmedTimers(), true, false},
	}
}

// noteBaseline records the contents of the nodes before the first job. They must hold the same after
// each job.
func (n *Net) noteBaseline() {
	n.baseline = n.baseline[:0]
	for i := range n.nodes {
		n.baseline = append(n.baseline, n.amounts(i))
	}
}

// Residue returns an error that names an object which the lab holds at rest and a newly built lab does
// not, or nil if there is none. Groups that no rank can delete do not count, because the switches age
// them out: groups whose deletion was given up after the last repeat, groups whose leader's host
// crashed, groups of which a registration arrived after the switches had forgotten their deletion, and
// entries of a voided attempt to which no switch that knew of them could pass the removal on (checker.cutOff).
func (n *Net) Residue() error {
	orphans, settled := n.orphans, n.queue.n == 0 && n.far.len() == 0 && !n.stalled()
	for i := range n.nodes {
		if h := n.nodes[i].host; h != nil {
			orphans += int(h.agent.Stats().DeletionsGivenUp)
		}
	}
	for i := range n.nodes {
		excused := false
		if sw := n.nodes[i].sw; sw != nil {
			groups := sw.Holding().Groups
			excused = groups > 0 && (groups <= orphans || n.check != nil && groups-n.check.cutOff(i) <= orphans)
		}
		for k, a := range n.amounts(i) {
			if before := n.baseline[i][k]; a.n != before.n && (!a.later || settled) && !(a.orphans && excused) {
				return fmt.Errorf("%s has %d %s at rest, and had %d when the lab was built", n.graph.Nodes[i].Name, a.n, a.what, before.n)
			}
		}
	}
	return nil
}

// outlasts reports whether a frame is a registration that could arrive after the switches have
// forgotten the deletion of its group, if faults delayed it by d on each of its links.
func (n *Net) outlasts(f *wire.Frame, d vtime.Duration) bool {
	if f.Kind() != wire.KindMRP || f.Payload() == nil {
		return false
	}
	p, err := wire.ParseMRP(f.Payload().Bytes())
	if err != nil || p.Flags&^(wire.MRPMRUpdate|wire.MRPReduce) != 0 {
		return false
	}
	quarantine := vtime.SpanMax
	for i := n.graph.Hosts; i < len(n.nodes); i++ {
		quarantine = min(quarantine, n.nodes[i].sw.Quarantine())
	}
	return d >= quarantine/vtime.Duration(n.graph.Switches()+1)
}
