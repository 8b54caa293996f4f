// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// ErrInvariant is wrapped by the error of a run in which an invariant was broken
// (docs/determinism.md numbers the invariants).
var ErrInvariant = errors.New("invariant broken")

// checker verifies the invariants after every event. It has the ground truth that no single
// machine has: which packets every member of a group has received.
type checker struct {
	net    *Net
	behind []map[uint32][]*virtrnic.QP // by transmitter and group: the members on the transmitter's side of its link; never iterated
	state  virtswitch.GroupState       // scratch: the state of the group being checked
	node   int                         // the machine that took a frame in this event, or -1
	group  uint32                      // the group of that frame, or 0
	trees  treeCheck
	gaps   gaps
	// displaced marks, by node, both ends of each link on which a fault has delayed or duplicated
	// a frame, or has altered or dropped a pause frame. Headroom is not computed for those faults.
	displaced []bool
}

// conserveEvery is the number of events between two counts of all frames. A count visits every
// port.
const conserveEvery = 64

// lookedAtMax is the number of frames under way up to which a count visits each of them. A link with a
// long delay holds millions of pauses.
const lookedAtMax = 4096

func newChecker(n *Net) *checker {
	return &checker{net: n, behind: make([]map[uint32][]*virtrnic.QP, n.links.Len()), node: -1, displaced: make([]bool, len(n.nodes)), gaps: newGaps()}
}

func (c *checker) failf(format string, args ...any) {
	if c.net.err == nil {
		c.net.err = fmt.Errorf("%w at %v: %s", ErrInvariant, c.net.now, fmt.Sprintf(format, args...))
	}
}

// decided records the verdict of a fault on a frame at the end of a link.
func (c *checker) decided(l *machine.Link, f *wire.Frame, v faults.Verdict) {
	if v.Twice || v.Delay > 0 || f.Kind() == wire.KindPFC && v != (faults.Verdict{}) {
		c.displaced[l.Node], c.displaced[c.net.ports[l.ID()].node] = true, true
	}
	if losesMRP(f, v) {
		c.gap(topo.End{Node: int(l.Node), Port: int(l.NodePort)})
	}
}

// beforeFrame checks a frame that is about to enter a machine. An ACK or a NAK must be true of every
// member that it covers (invariants 1 and 2).
func (c *checker) beforeFrame(l *machine.Link, f *wire.Frame) {
	c.node, c.group = int(l.Node), 0
	if f.Kind() != wire.KindRoCE {
		c.trees.beforeFrame(c.net.graph.Groups, f)
		return
	}
	switch {
	case c.net.graph.Groups.Has(f.DstIP()):
		c.group = f.DstIP()
	case c.net.graph.Groups.Has(f.SrcIP()):
		c.group = f.SrcIP()
	default:
		return
	}
	if f.OpCode() != wire.OpAcknowledge || !f.CheckICRC() {
		return
	}
	src := c.net.ports[l.ID()]
	h := f.AETH()
	for _, q := range c.members(c.group, int(src.node), int(src.port)) {
		have := q.RQPSN().Sub(f.PSN()) // packets that the member has received from the named one on
		if h.Syndrome.IsACK() && have <= 0 || !h.Syndrome.IsACK() && have < 0 {
			c.failf("%v from %s claims more than queue pair %d has, which expects %v",
				f, c.net.graph.Nodes[src.node].Name, q.Num(), q.RQPSN())
		}
	}
}

// members returns the receivers that a node's feedback through one of its ports covers. They lie in the
// part of the tree to which that port does not lead.
func (c *checker) members(group uint32, node, port int) []*virtrnic.QP {
	at := &c.behind[c.net.PortID(node, port)]
	m, ok := (*at)[group]
	if !ok {
		var whole bool
		if m, whole = c.walk(group, node, port, len(c.net.nodes)); whole {
			if *at == nil {
				byGroup := map[uint32][]*virtrnic.QP{}
				*at = byGroup
			}
			(*at)[group] = m
		}
	}
	for _, q := range m {
		if q.State() == virtrnic.StateReset {
			return nil // the group is being deleted, so late feedback covers no member
		}
	}
	return m
}

// walk collects the receivers that the tree reaches from a node by all ports but the given one.
// whole is false while a switch on the way has not activated the group. depth bounds the number
// of switches, so that a loop in the tree is found.
func (c *checker) walk(group uint32, node, port, depth int) (m []*virtrnic.QP, whole bool) {
	n := c.net
	if nic := n.nodes[node].nic; nic != nil {
		nic.QPs(func(q *virtrnic.QP) {
			if q.Remote() == group {
				m = append(m, q)
			}
		})
		return m, true
	}
	if depth == 0 {
		c.failf("the tree of group %v has a loop at %s", wire.AddrOf(group), n.graph.Nodes[node].Name)
		return nil, false
	}
	g, ok := n.nodes[node].sw.Group(group)
	if !ok || !g.Active {
		return nil, false
	}
	whole = true
	for _, p := range g.Paths {
		if p.Port == port {
			continue
		}
		far := n.graph.Peer(node, p.Port)
		part, w := c.walk(group, far.Node, far.Port, depth-1)
		m = append(m, part...)
		whole = whole && w
	}
	return m, whole
}

// overruled reports whether a pause-storm watchdog of the kind that forwards has fired. Such a
// watchdog sends although the next switch has paused it, and no headroom can be computed for
// that. It can fire in a fabric in which no host sends pause frames.
func (n *Net) overruled() bool {
	if !n.cfg.Switch.Watchdog.Forward {
		return false
	}
	for i := range n.nodes {
		if sw := n.nodes[i].sw; sw != nil && sw.Stats().PauseStorms > 0 {
			return true
		}
	}
	return false
}

// afterEvent checks the machine that handled the last event.
func (c *checker) afterEvent() {
	n := c.net
	if n.stats.Events%conserveEvery == 0 {
		c.conserved()
	}
	node := c.node
	c.node = -1
	if node >= 0 && n.graph.Nodes[node].Kind == topo.Host {
		c.afterConfirmation(node)
	}
	if node < 0 || n.graph.Nodes[node].Kind != topo.Switch {
		return
	}
	sw := n.nodes[node].sw
	if d := sw.Stats().Drops[virtswitch.DropHeadroom]; d != 0 && n.cfg.Switch.Headroom == 0 && !c.displaced[node] && !n.overruled() {
		c.failf("lossless class of %s dropped %d frames although headroom is computed (5)", n.graph.Nodes[node].Name, d)
	}
	if c.group == 0 {
		return
	}
	g := &c.state
	if !sw.ReadGroup(c.group, g) || !g.Active {
		return
	}
	if ports := len(n.graph.Nodes[node].Links); len(g.Paths) > ports {
		c.failf("%s has %d paths for a group and only %d ports (6)", n.graph.Nodes[node].Name, len(g.Paths), ports)
	}
	for _, p := range g.Paths {
		if p.Port == g.SourceOut {
			continue
		}
		far := n.graph.Peer(node, p.Port)
		for _, q := range c.members(c.group, far.Node, far.Port) {
			if !q.RQPSN().After(p.AckPSN) {
				c.failf("%s believes that port %d has packet %v, a member behind it expects %v (1)",
					n.graph.Nodes[node].Name, p.Port, p.AckPSN, q.RQPSN())
			}
		}
	}
}

// conserved checks that every frame of the pool that is in use is in a queue, on a link, or
// delayed by a fault (invariant 4).
func (c *checker) conserved() {
	n := c.net
	flying := n.lates
	for i := range n.links.Len() {
		flying += n.links.At(i).InFlight()
	}
	if flying <= lookedAtMax {
		c.pausesCounted()
	}
	held := n.held()
	if held != n.pool.Live {
		c.failf("%d frames are handed out, %d are in queues and on links (4)", n.pool.Live, held)
	}
}

// pausesCounted counts the pauses among the frames on all links and compares them with the count.
func (c *checker) pausesCounted() {
	n, pauses := c.net, 0
	for i := range n.links.Len() {
		for k := range n.links.At(i).InFlight() {
			if n.links.At(i).Flying(k).Frame.Kind() == wire.KindPFC {
				pauses++
			}
		}
	}
	if pauses != n.links.Pauses() {
		c.failf("%d pause frames are on links, and %d are counted (4)", pauses, n.links.Pauses())
	}
}

// atRest checks the invariants of a run that has no event left. kept marks that the job leaves its
// objects in place (Job.Keep), so that they are no residue.
func (c *checker) atRest(kept bool) error {
	n := c.net
	c.conserved()
	if err := n.Leftover(); err != nil {
		c.failf("at rest %v (4)", err)
	}
	if err := n.Residue(); err != nil && !kept {
		c.failf("at rest %v (9)", err)
	}
	return n.err
}

// finished checks that all work requests have ended once the run has no event left. Requests
// that wait for a pause or a stall without end are excepted (invariant 7).
func (c *checker) finished() error {
	if err := c.net.unfinished; err != nil && !c.net.stuck {
		c.failf("%v (7)", err)
	}
	return c.net.err
}

// Unfinished returns an error that names a queue pair whose work requests had not ended when the
// last job ran out of events, or nil if there was none.
func (n *Net) Unfinished() error { return n.unfinished }

// open returns an error that names the first queue pair with outstanding work requests, or nil
// if there is none.
func (n *Net) open() (err error) {
	for i := range n.nodes {
		nic := n.nodes[i].nic
		if nic == nil {
			continue
		}
		nic.QPs(func(q *virtrnic.QP) {
			if k := q.Outstanding(); k > 0 && err == nil {
				err = fmt.Errorf("queue pair %d of %s still has %d work requests", q.Num(), n.graph.Nodes[n.nodes[i].id].Name, k)
			}
		})
	}
	return err
}
