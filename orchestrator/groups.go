// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/counters"
)

// GroupTree is one group as the switches hold it, from the source on.
type GroupTree struct {
	McstID string     `json:"mcst_id"`
	Active bool       `json:"active"` // at all its switches
	Source string     `json:"source"` // port that data comes from
	Roots  []TreeNode `json:"switches"`
}

// TreeNode is a switch of a group's tree, reached by a port of the switch above it.
type TreeNode struct {
	Switch    string     `json:"switch"`
	AggAckPSN uint32     `json:"agg_ack_psn"`
	Slowest   string     `json:"slowest"` // what the path leads to that holds the aggregated ACK back
	Paths     []TreePath `json:"paths"`
}

// TreePath is one path out of a switch: to a member, or to a further switch.
type TreePath struct {
	Port   string    `json:"port"`
	To     string    `json:"to"`
	QPN    uint32    `json:"qpn,omitempty"` // of a member
	AckPSN uint32    `json:"ack_psn"`
	Source bool      `json:"source,omitempty"` // data comes from here
	Below  *TreeNode `json:"below,omitempty"`
}

// Groups returns the groups that the lab's switches hold at the moment, in order of their
// McstID. Of a node that is gone nothing is known.
func (d *Deployed) Groups(ctx context.Context) []GroupTree {
	return groupTrees(d.Graph, d.Look(ctx))
}

// groupTrees combines what each switch reports of its groups.
func groupTrees(g *topo.Graph, states []counters.Node) (all []GroupTree) {
	b := treeBuilder{g: g, at: map[string]map[int]*counters.Group{}}
	var ids []string
	for i := range states {
		for k := range states[i].Groups {
			group := &states[i].Groups[k]
			if b.at[group.McstID] == nil {
				b.at[group.McstID] = map[int]*counters.Group{}
				ids = append(ids, group.McstID)
			}
			b.at[group.McstID][i] = group
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		all = append(all, b.tree(id))
	}
	return all
}

type treeBuilder struct {
	g    *topo.Graph
	at   map[string]map[int]*counters.Group // by McstID and node
	seen map[int]bool
}

// tree starts at the source's leaf. Switches that are not reached from there (a tree that
// is only half registered) follow as roots of their own.
func (b *treeBuilder) tree(id string) GroupTree {
	t := GroupTree{McstID: id, Active: true}
	b.seen = map[int]bool{}
	root := func(node int) {
		if !b.seen[node] {
			t.Roots = append(t.Roots, b.node(id, node))
		}
	}
	for node := range b.g.Nodes {
		if s := b.at[id][node]; s != nil {
			t.Active = t.Active && s.Active
			if far := b.g.Peer(node, s.SourceOut); b.g.Nodes[far.Node].Kind == topo.Host {
				t.Source = b.g.PortName(far)
				root(node)
			}
		}
	}
	for node := range b.g.Nodes {
		if b.at[id][node] != nil {
			root(node)
		}
	}
	return t
}

func (b *treeBuilder) node(id string, node int) TreeNode {
	b.seen[node] = true
	s := b.at[id][node]
	n := TreeNode{Switch: b.g.Nodes[node].Name, AggAckPSN: s.AggAckPSN}
	slowest := -1
	for i, p := range s.Paths {
		far := b.g.Peer(node, p.Port)
		out := TreePath{
			Port: b.g.PortName(topo.End{Node: node, Port: p.Port}), To: b.g.Nodes[far.Node].Name, QPN: p.QPN, AckPSN: p.AckPSN, Source: p.Port == s.SourceOut,
		}
		if !out.Source && (slowest < 0 || wire.PSN(s.Paths[slowest].AckPSN).After(wire.PSN(p.AckPSN))) {
			slowest = i
		}
		if b.at[id][far.Node] != nil && !b.seen[far.Node] {
			below := b.node(id, far.Node)
			out.Below = &below
		}
		n.Paths = append(n.Paths, out)
	}
	if slowest >= 0 {
		n.Slowest = n.Paths[slowest].To
	}
	slices.SortFunc(n.Paths, func(x, y TreePath) int {
		if x.Source != y.Source {
			if x.Source {
				return -1
			}
			return 1
		}
		return strings.Compare(x.Port, y.Port)
	})
	return n
}
