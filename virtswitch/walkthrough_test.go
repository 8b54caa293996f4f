// SPDX-License-Identifier: Apache-2.0

package virtswitch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/machinetest"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// figureTree is the topology of the Cepheus paper's Fig. 2: a three-layer fat-tree
// with the sender S under L1 and receivers R1, R2, R3 under L2, L3, L4.
func figureTree() (*topo.Graph, error) {
	hosts, switches, ends := topo.FigureTree()
	var nodes []topo.CustomNode
	for _, h := range hosts {
		nodes = append(nodes, topo.CustomNode{Name: h, Kind: topo.Host})
	}
	for _, s := range switches {
		nodes = append(nodes, topo.CustomNode{Name: s, Kind: topo.Switch})
	}
	var links []topo.CustomLink
	for _, l := range ends {
		a, b, _ := strings.Cut(l, "-")
		links = append(links, topo.CustomLink{A: a, B: b, PortA: -1, PortB: -1, Params: simlab.Link()})
	}
	return topo.Custom(nodes, links)
}

// TestPaperWalkthrough (CEP-53) is the golden walk-through of the paper's Fig. 2.
func TestPaperWalkthrough(t *testing.T) {
	g, err := figureTree()
	s := newScene(t, g, err)
	s.record()
	s.must(message{0, 1})
	machinetest.Golden(t, "paper-walkthrough", s.lines.String())

	// L1 and C2 forward only, S1 and S3 replicate; L2, L3, L4 end at a host.
	fan := map[string]int{"L1": 2, "S1": 3, "C2": 2, "S3": 3, "L2": 2, "L3": 2, "L4": 2, "S2": 0, "S4": 0, "C1": 0}
	for name, want := range fan { // order does not matter: each is its own check
		if got := s.paths(name); len(got) != want {
			t.Errorf("%s has %d paths, want %d: %+v", name, len(got), want, got)
		}
	}
	// S1 has two receiver paths, to L2 and to C2, whatever is behind them.
	var to []string
	for _, p := range s.paths("S1")[1:] {
		to = append(to, s.neighbour("S1", p.Port))
	}
	slices.Sort(to)
	if fmt.Sprint(to) != "[C2 L2]" {
		t.Errorf("S1's receiver paths lead to %v, want C2 and L2", to)
	}
	// Leaves know their member's connection, spines and cores none.
	for _, l := range []string{"L1", "L2", "L3", "L4"} {
		hosts := 0
		for _, p := range s.paths(l) {
			if p.Host {
				hosts++
			}
		}
		if hosts != 1 {
			t.Errorf("%s bridges %d connections, want 1", l, hosts)
		}
	}
	// In the reverse direction S3 and S1 merge, the others pass one stream on.
	for name, want := range map[string][2]uint64{"S1": {2, 1}, "S3": {2, 1}, "C2": {1, 1}, "L1": {1, 1}, "L2": {1, 1}} {
		st := s.sw(name).Stats()
		if st.AcksIn != want[0] || st.AcksOut != want[1] {
			t.Errorf("%s: %d acknowledgements in, %d out; want %d, %d", name, st.AcksIn, st.AcksOut, want[0], want[1])
		}
	}
	// S1's MRP carries {R1} to L2 and {R2, R3} to C2.
	text := s.lines.String()
	for _, want := range []string{
		" S1>L2  10.0.0.1>10.254.0.1 MRP register 1/1 leaderqp=17 {10.0.1.1 qp=17}\n",
		" S1>C2  10.0.0.1>10.254.0.1 MRP register 1/1 leaderqp=17 {10.0.2.1 qp=17} {10.0.3.1 qp=17}\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("transcript lacks %q", want)
		}
	}
}

// paths returns the only group's paths at a switch, none if it has no group.
func (s *scene) paths(name string) []virtswitch.PathState {
	g, ok := s.sw(name).Group(wire.GroupNet | 1)
	if !ok {
		return nil
	}
	return g.Paths
}

// neighbour names the node at a port.
func (s *scene) neighbour(node string, port int) string {
	i, _ := s.graph.Find(node)
	return s.graph.Nodes[s.graph.Peer(i, port).Node].Name
}
