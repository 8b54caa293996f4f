package sim

import (
	"fmt"

	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// amount is how much of something a node holds.
type amount struct {
	what  string
	n     int
	later bool // may be there until all that is to come has come
	// orphans says that groups that nobody deletes count.
	orphans bool
}

// amounts returns what a node holds of all that a job can leave there.
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

// note takes down what the nodes hold: what they are to hold again when a job is over.
func (n *Net) note() {
	n.fresh = n.fresh[:0]
	for i := range n.nodes {
		n.fresh = append(n.fresh, n.amounts(i))
	}
}

// Residue says what the lab holds at rest that one that was just built does not, or nil. What
// nobody could take back does not count, and is for the switches to age out: groups of which
// the deletion was given up, because switches or hosts did not answer until the last repeat,
// those whose leader's host crashed, and those of which a registration came when nobody
// remembered any more that they were deleted.
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
			excused = groups > 0 && groups <= orphans
		}
		for k, a := range n.amounts(i) {
			if fresh := n.fresh[i][k]; a.n != fresh.n && (!a.later || settled) && !(a.orphans && excused) {
				return fmt.Errorf("%s has %d %s, in a lab that was just built %d", n.graph.Nodes[i].Name, a.n, a.what, fresh.n)
			}
		}
	}
	return nil
}

// outlasts reports whether a frame is a registration that a fault holds back, on each of its
// links perhaps, for as long as switches remember that its group was deleted.
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
