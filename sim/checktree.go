package sim

import (
	"slices"

	"github.com/mcastlab/mcastlab/mrp"
	"github.com/mcastlab/mcastlab/topo"
	"github.com/mcastlab/mcastlab/virtswitch"
	"github.com/mcastlab/mcastlab/wire"
)

// treeCheck verifies that what a registration has installed is a tree that has the leader
// and the members at its ends and nobody else (invariant 8), when the leader has the last
// confirmation and may send.
type treeCheck struct {
	confirmed uint32          // the group that a confirmation of this event is about, or 0
	whole     map[uint32]bool // groups whose tree has been looked at; never walked
	forgot    bool            // a switch has lost what it knew: there may be holes in trees
}

// beforeFrame notes what a registration packet confirms.
func (t *treeCheck) beforeFrame(f *wire.Frame) {
	t.confirmed = 0
	if f.Kind() != wire.KindMRP || wire.IsGroup(f.DstIP()) || f.Payload() == nil {
		return
	}
	if p, err := wire.ParseMRP(f.Payload().Bytes()); err == nil && p.Flags&wire.MRPConfirm != 0 {
		t.confirmed = p.Record(0).IP
	}
}

// forgotten notes that a switch has lost its groups.
func (n *Net) forgotten() {
	if n.check != nil {
		n.check.trees.forgot = true
	}
}

// afterConfirmation checks the tree of a group that has just become active, of which the
// node is the leader.
func (c *checker) afterConfirmation(node int) {
	id := c.trees.confirmed
	c.trees.confirmed = 0
	if id == 0 || c.trees.whole[id] {
		return
	}
	g, phase := c.net.nodes[node].host.agent.Led(id)
	if phase != mrp.Active {
		return
	}
	if c.trees.whole == nil {
		c.trees.whole = map[uint32]bool{}
	}
	c.trees.whole[id] = true
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
	ends    int    // hosts
}

// follow goes over the link at a node's port and on by all paths of the switch there.
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

// back returns a switch's table of the group, and whether it is active and has a path by the
// port.
func (w *treeWalk) back(at topo.End) (g virtswitch.GroupState, ok bool) {
	ok = w.c.net.nodes[at.Node].sw.ReadGroup(w.group, &g) && g.Active &&
		slices.ContainsFunc(g.Paths, func(p virtswitch.PathState) bool { return p.Port == at.Port })
	return g, ok
}

// reached reports whether the walk has come to all members, and to nobody else.
func (w *treeWalk) reached(members []mrp.Member) bool {
	for _, m := range members {
		if hosts, err := w.c.net.graph.HostsAt([]uint32{m.IP}); err != nil || !w.entered[hosts[0]] {
			return false
		}
	}
	return w.ends == len(members)
}
