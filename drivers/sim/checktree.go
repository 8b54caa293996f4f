// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// treeCheck verifies that the paths a registration has installed form a tree whose leaves are
// the leader and the members and no other host (invariant 8). It looks when the leader has
// received the last confirmation and may send.
type treeCheck struct {
	confirmed uint32          // the group that this event's frame confirms, or 0
	verified  map[uint32]bool // groups whose tree has been checked; never iterated
	forgot    bool            // a switch has lost its group tables, so trees may be incomplete
}

// beforeFrame records the group that a registration packet confirms.
func (t *treeCheck) beforeFrame(groups wire.GroupRange, f *wire.Frame) {
	t.confirmed = 0
	if f.Kind() != wire.KindMRP || groups.Has(f.DstIP()) || f.Payload() == nil {
		return
	}
	if p, err := wire.ParseMRP(f.Payload().Bytes()); err == nil && p.Flags&wire.MRPConfirm != 0 {
		t.confirmed = p.Record(0).IP
	}
}

// forgotten records that a switch has lost its group tables.
func (n *Net) forgotten(node int) {
	if n.check != nil {
		n.check.trees.forgot, n.check.gaps.switches[node] = true, true
	}
}

// afterConfirmation checks the tree of a group that has become active in this event. The node is the
// host of the group's leader.
func (c *checker) afterConfirmation(node int) {
	id := c.trees.confirmed
	c.trees.confirmed = 0
	if id == 0 || c.trees.verified[id] {
		return
	}
	g, phase := c.net.nodes[node].host.agent.Led(id)
	if phase != mrp.Active {
		return
	}
	if c.trees.verified == nil {
		c.trees.verified = map[uint32]bool{}
	}
	c.trees.verified[id] = true
	w := treeWalk{c: c, group: id, entered: make([]bool, len(c.net.nodes))}
	w.entered[node] = true
	w.follow(node, 0)
	if !c.trees.forgot && !w.reached(g.Members) {
		c.failf("the tree of group %v leads to %d hosts, which are not its %d members (8)", wire.AddrOf(id), w.ends, len(g.Members))
	}
}

// treeWalk follows a group's paths from the leader's host.
type treeWalk struct {
	c       *checker
	group   uint32
	entered []bool // by node
	ends    int    // hosts reached
}

// follow crosses the link at a node's port and continues along all other paths of the switch at
// its far end.
func (w *treeWalk) follow(node, port int) {
	n := w.c.net
	far := n.graph.Peer(node, port)
	if w.entered[far.Node] {
		w.c.failf("the paths of group %v come to %s twice (8)", wire.AddrOf(w.group), n.graph.Nodes[far.Node].Name)
		return
	}
	w.entered[far.Node] = true
	if n.graph.Nodes[far.Node].Kind == topo.Host {
		w.ends++
		return
	}
	g, ok := w.back(far)
	if !ok {
		if !w.c.trees.forgot {
			w.c.failf("a path of group %v leads to %s, which is not active there or has none back (8)", wire.AddrOf(w.group), n.graph.PortName(far))
		}
		return
	}
	for _, p := range g.Paths {
		if p.Port != far.Port {
			w.follow(far.Node, p.Port)
		}
	}
}

// back returns the group's table at a switch. ok reports that the group is active there and has a path
// through the given port.
func (w *treeWalk) back(at topo.End) (g virtswitch.GroupState, ok bool) {
	ok = w.c.net.nodes[at.Node].sw.ReadGroup(w.group, &g) && g.Active &&
		slices.ContainsFunc(g.Paths, func(p virtswitch.PathState) bool { return p.Port == at.Port })
	return g, ok
}

// reached reports whether the walk has reached every member and no other host.
func (w *treeWalk) reached(members []mrp.Member) bool {
	for _, m := range members {
		if hosts, err := w.c.net.graph.HostsAt([]uint32{m.IP}); err != nil || !w.entered[hosts[0]] {
			return false
		}
	}
	return w.ends == len(members)
}
