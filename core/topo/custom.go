// SPDX-License-Identifier: Apache-2.0

package topo

import "fmt"

// CustomNode is a node of a custom graph.
type CustomNode struct {
	Name string
	Kind Kind
}

// CustomLink joins two named nodes. A port below 0 means the node's next free one.
type CustomLink struct {
	A, B         string
	PortA, PortB int
	Params       LinkParams
}

// Custom returns the graph of the given nodes and links. Hosts get their ranks in the given order.
// The ports of a node must be numbered without gaps.
func Custom(nodes []CustomNode, links []CustomLink) (*Graph, error) {
	g := &Graph{byHand: true}
	for _, k := range []Kind{Host, Switch} {
		for _, n := range nodes {
			if n.Kind != k {
				continue
			}
			if _, dup := g.Find(n.Name); dup {
				return nil, fmt.Errorf("node %q is defined twice", n.Name)
			}
			g.addNode(n.Name, k, TierHost, -1)
		}
	}
	for _, l := range links {
		if err := g.connectNamed(l); err != nil {
			return nil, err
		}
	}
	for i := range g.Nodes {
		for p, l := range g.Nodes[i].Links {
			if l < 0 {
				return nil, fmt.Errorf("port %s has no link, but a higher one has", g.PortName(End{i, p}))
			}
		}
	}
	g.rankTiers()
	return g, g.finish()
}

func (g *Graph) connectNamed(l CustomLink) error {
	a, okA := g.Find(l.A)
	b, okB := g.Find(l.B)
	if !okA || !okB {
		missing := l.A
		if okA {
			missing = l.B
		}
		return fmt.Errorf("link %s-%s: there is no node %q", l.A, l.B, missing)
	}
	if a == b {
		return fmt.Errorf("link %s-%s joins a node with itself", l.A, l.B)
	}
	pa, err := g.claim(a, l.PortA)
	if err != nil {
		return err
	}
	pb, err := g.claim(b, l.PortB)
	if err != nil {
		return err
	}
	i := len(g.Links)
	g.Links = append(g.Links, Link{End{a, pa}, End{b, pb}, l.Params.Rate, l.Params.Delay})
	g.Nodes[a].Links[pa], g.Nodes[b].Links[pb] = i, i
	return nil
}

// claim reserves a port of a node and returns its number.
func (g *Graph) claim(node, port int) (int, error) {
	n := &g.Nodes[node]
	if port < 0 {
		port = 0
		for port < len(n.Links) && n.Links[port] >= 0 {
			port++
		}
	}
	if port >= portsMax {
		return 0, fmt.Errorf("port %s:%d: a node has at most %d ports", n.Name, port, portsMax)
	}
	for len(n.Links) <= port {
		n.Links = append(n.Links, -1)
	}
	if n.Links[port] >= 0 {
		return 0, fmt.Errorf("port %s:%d has two links", n.Name, port)
	}
	n.Links[port] = 0
	return port, nil
}

// rankTiers sets the tier of each switch to its distance from the nearest host, for drawing.
func (g *Graph) rankTiers() {
	var queue []int
	for i := range g.Nodes {
		if g.Nodes[i].Kind == Host {
			queue = append(queue, i)
		}
	}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		for p := range g.Nodes[i].Links {
			n := &g.Nodes[g.Peer(i, p).Node]
			if n.Kind == Switch && n.Tier == 0 {
				n.Tier = g.Nodes[i].Tier + 1
				queue = append(queue, g.Peer(i, p).Node)
			}
		}
	}
}

// FigureTree returns the nodes and links of the topology in the Cepheus paper's Fig. 2 (GEN-8,
// CEP-53): a fat-tree of three layers, with the sender S under L1 and the receivers R1, R2 and R3
// under L2, L3 and L4. Links are given by their ends, a-b.
func FigureTree() (hosts, switches, links []string) {
	hosts = []string{"S", "R1", "R2", "R3"}
	switches = []string{"L1", "L2", "L3", "L4", "S1", "S2", "S3", "S4", "C1", "C2"}
	links = []string{"S-L1", "R1-L2", "R2-L3", "R3-L4", "L1-S1", "L1-S2", "L2-S1", "L2-S2",
		"L3-S3", "L3-S4", "L4-S3", "L4-S4", "S1-C2", "S2-C1", "S3-C2", "S4-C1"}
	return hosts, switches, links
}

// BackToBack returns two hosts and the link that joins them, in the form of FigureTree. There is no
// switch, so no group can be registered, and a plain multicast reaches the one other host.
func BackToBack() (hosts, switches, links []string) {
	return []string{"h0", "h1"}, nil, []string{"h0-h1"}
}
