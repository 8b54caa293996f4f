// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strings"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// graph builds the topology, with the addresses of the lab's family.
func (l *Lab) graph() (*topo.Graph, error) {
	g, err := l.shape()
	if err == nil {
		g.IPv6, g.Groups = l.Links.IP == 6, l.Switches.groupRange()
		l.retier(g)
	}
	return g, err
}

func (l *Lab) shape() (*topo.Graph, error) {
	p := topo.LinkParams{Rate: int64(l.Links.Rate), Delay: vtime.Duration(l.Links.Delay)}
	t := &l.Topology
	switch {
	case t.FatTree != nil:
		return topo.FatTree(t.FatTree.K, p)
	case t.ThreeLayer != nil:
		s := t.ThreeLayer
		return topo.ThreeLayer(topo.ThreeLayerSpec{
			Radix: s.Radix, Pods: s.Pods, Leaves: s.Leaves, Hosts: s.Hosts, Aggs: s.Aggs, Cores: s.Cores, CoreGroups: s.CoreGroups,
		}, p)
	case t.LeafSpine != nil:
		s := t.LeafSpine
		return topo.LeafSpine(topo.LeafSpineSpec{Leaves: s.Leaves, Spines: s.Spines, Hosts: s.Hosts, Parallel: s.Parallel, Total: s.Total}, p)
	case t.MPortNTree != nil:
		return topo.MPortNTree(t.MPortNTree.M, t.MPortNTree.N, p)
	case t.Star != nil:
		return topo.Star(t.Star.Hosts, p)
	case t.Custom != nil:
		return t.Custom.graph(p)
	}
	return nil, fmt.Errorf("no shape is given")
}

func (c *Custom) graph(p topo.LinkParams) (*topo.Graph, error) {
	var nodes []topo.CustomNode
	for _, h := range c.Hosts {
		nodes = append(nodes, topo.CustomNode{Name: h, Kind: topo.Host})
	}
	for _, s := range c.Switches {
		nodes = append(nodes, topo.CustomNode{Name: s, Kind: topo.Switch})
	}
	var links []topo.CustomLink
	for _, l := range c.Links {
		k, err := splitEnds(l.Ends, nodes)
		if err != nil {
			return nil, err
		}
		k.Params = p
		if l.Rate != nil {
			k.Params.Rate = int64(*l.Rate)
		}
		if l.Delay != nil {
			k.Params.Delay = vtime.Duration(*l.Delay)
		}
		links = append(links, k)
	}
	return topo.Custom(nodes, links)
}

// splitEnds reads a-b or a:0-b:3. Names may contain hyphens, so the split is where
// both sides are nodes.
func splitEnds(ends string, nodes []topo.CustomNode) (topo.CustomLink, error) {
	for i, r := range ends {
		if r != '-' {
			continue
		}
		a, pa, okA := splitPort(ends[:i], nodes)
		b, pb, okB := splitPort(ends[i+1:], nodes)
		if okA && okB {
			return topo.CustomLink{A: a, B: b, PortA: pa, PortB: pb}, nil
		}
	}
	return topo.CustomLink{}, fmt.Errorf("link %q does not join two nodes: write a-b, or a:0-b:3 with ports", ends)
}

func splitPort(s string, nodes []topo.CustomNode) (name string, port int, ok bool) {
	name, num, has := strings.Cut(s, ":")
	port = -1
	if has {
		if _, err := fmt.Sscanf(num, "%d", &port); err != nil || port < 0 || fmt.Sprint(port) != num {
			return "", 0, false
		}
	}
	for _, n := range nodes {
		if n.Name == name {
			return name, port, true
		}
	}
	return "", 0, false
}

// fabric returns the settings of all machines on a graph the lab has built.
func (l *Lab) fabric(g *topo.Graph) fabric.Spec {
	s := &l.Switches
	f := fabric.Switch{
		Settings: l.switchSettings(), Latency: vtime.Duration(s.Latency), CutThrough: s.Forwarding == "cut-through", MTU: l.NICs.MTU,
	}
	if s.PFC.Enabled {
		f.Headroom = given(s.PFC.Headroom)
	}
	if s.ECN.Enabled {
		f.Marking = fabric.Marking{Rate: int64(l.Links.Rate), Kmin: given(s.ECN.Kmin), Kmax: given(s.ECN.Kmax)}
	}
	return fabric.Spec{
		Graph: g, Seed: l.Seed, Switch: f, NIC: l.NICs.settings(),
		VLAN:      uint16(l.Links.VLAN),
		TrustICRC: l.NICs.ICRC == "flag",
	}
}

// settings returns the settings of the adapters' cores.
func (n *NICs) settings() virtrnic.Settings {
	set, _ := virtrnic.DCQCNByName(n.Congestion) // the name has been checked
	if set != nil && n.ByteCounter != nil {
		set.ByteCounter = uint64(*n.ByteCounter)
	}
	s := virtrnic.Settings{AckEvery: n.AckEvery, Window: n.Window, Congestion: set, IRN: n.selective()}
	for p, w := range n.Scheduling {
		s.Weights[p] = uint8(w)
	}
	return s
}

// selective returns the settings of selective repeat, nil for go-back-N.
func (n *NICs) selective() *virtrnic.IRN {
	if n.Retransmit != "irn" {
		return nil
	}
	r := &virtrnic.IRN{RTOLow: virtrnic.RTOLowDefault, RTOHigh: virtrnic.RTOHighDefault}
	if n.IRN != nil {
		r.RTOLow, r.RTOHigh = vtime.Duration(n.IRN.RTOLow), vtime.Duration(n.IRN.RTOHigh)
		if n.IRN.Cap != nil {
			r.Cap = int(*n.IRN.Cap)
		}
	}
	return r
}
