// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"encoding/xml"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
)

var link = LinkParams{Rate: 100e9, Delay: 600 * vtime.Nanosecond}

func must(t testing.TB) func(*Graph, error) *Graph {
	return func(g *Graph, err error) *Graph {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
}

// TestFamilies: a node has one number and an address of either family; a drawing shows that
// of the fabric.
func TestFamilies(t *testing.T) {
	g := must(t)(LeafSpine(LeafSpineSpec{Leaves: 2, Spines: 1, Hosts: 2, Parallel: 1}, link))
	last := g.Hosts - 1
	for _, c := range []struct {
		v6                 bool
		host, leaf, aGroup string
	}{
		{false, "10.0.1.2/8", "10.253.0.0/8", "10.254.0.7"},
		{true, "fd6d:6361:7374::a00:102/96", "fd6d:6361:7374::afd:0/96", "fd6d:6361:7374::afe:7"},
	} {
		g.IPv6 = c.v6
		if got := []string{g.Prefix(last).String(), g.Prefix(g.Hosts).String(), g.Addr(10<<24 | 254<<16 | 7).String()}; !slices.Equal(got, []string{c.host, c.leaf, c.aGroup}) {
			t.Errorf("IPv6 %v: %v, want %+v", c.v6, got, c)
		}
		var b strings.Builder
		if err := g.Draw(&b, FormatSVG, "x"); err != nil {
			t.Fatal(err)
		}
		if want := "<title>" + g.Nodes[last].Name + " " + strings.Split(c.host, "/")[0] + ", 1 ports</title>"; !strings.Contains(b.String(), want) {
			t.Errorf("the drawing has no %s", want)
		}
	}
}

func TestShapes(t *testing.T) {
	for _, c := range []struct {
		name                   string
		g                      *Graph
		hosts, switches, links int
		hops                   []int // from h0 to a host on its leaf, in its pod, elsewhere
	}{
		{"k=4", must(t)(FatTree(4, link)), 16, 20, 48, []int{2, 4, 6}},
		{"k=8", must(t)(FatTree(8, link)), 128, 80, 384, []int{2, 4, 6}},
		{"FT1024", must(t)(ThreeLayer(FT1024(), link)), 1024, 80, 1024 * 3, []int{2, 4, 6}},
		{"leaf-spine", must(t)(LeafSpine(LeafSpineSpec{Leaves: 4, Spines: 2, Hosts: 3, Parallel: 2}, link)), 12, 6, 12 + 16, []int{2, 4}},
		{"star", must(t)(Star(4, link)), 4, 1, 4, []int{2}},
		{"k=3", must(t)(FatTree(3, link)), 3, 7, 9, []int{6}},
		{"k=9", must(t)(FatTree(9, link)), 144, 88, 3 * 144, []int{2, 4, 6}},
		{"UCC188", must(t)(LeafSpine(UCC188(), link)), 188, 18, 188 + 12*18, []int{2, 4}},
		{"FIG2", must(t)(ThreeLayer(FIG2(), link)), 1024, 160, 1024 * 3, []int{2, 4, 6}},
		{"figure tree", listed(t, FigureTree), 4, 10, 16, []int{4, 6}},
		{"back to back", listed(t, BackToBack), 2, 0, 1, []int{1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.g.Hosts != c.hosts || c.g.Switches() != c.switches || len(c.g.Links) != c.links {
				t.Errorf("%d hosts, %d switches, %d links; want %d, %d, %d", c.g.Hosts, c.g.Switches(), len(c.g.Links), c.hosts, c.switches, c.links)
			}
			seen := map[int]bool{}
			for h := 1; h < c.g.Hosts; h++ {
				seen[c.g.Hops(0, h)] = true
			}
			for _, n := range c.hops {
				if !seen[n] {
					t.Errorf("no host is %d links from h0", n)
				}
				delete(seen, n)
			}
			if len(seen) > 0 {
				t.Errorf("hosts at distances nobody expects: %v", seen)
			}
			if err := c.g.CheckRoutes(c.g.Routes()); err != nil {
				t.Error(err)
			}
		})
	}
}

// listed builds a graph that is given as lists of names.
func listed(t *testing.T, of func() (hosts, switches, links []string)) *Graph {
	t.Helper()
	hosts, switches, ends := of()
	var nodes []CustomNode
	for _, h := range hosts {
		nodes = append(nodes, CustomNode{h, Host})
	}
	for _, s := range switches {
		nodes = append(nodes, CustomNode{s, Switch})
	}
	var links []CustomLink
	for _, l := range ends {
		a, b, _ := strings.Cut(l, "-")
		links = append(links, CustomLink{A: a, B: b, PortA: -1, PortB: -1, Params: link})
	}
	return must(t)(Custom(nodes, links))
}

// TestUCC188 (GEN-8): eight leaves have 16 hosts and four have 15, no switch has more than 36 ports,
// and no leaf has more hosts than links to spines.
func TestUCC188(t *testing.T) {
	g := must(t)(LeafSpine(UCC188(), link))
	var leaves []int
	for i := g.Hosts; i < len(g.Nodes); i++ {
		n := &g.Nodes[i]
		if len(n.Links) > 36 {
			t.Errorf("%s has %d ports, want at most 36", n.Name, len(n.Links))
		}
		hosts := 0
		for p := range n.Links {
			if g.Peer(i, p).Node < g.Hosts {
				hosts++
			}
		}
		if n.Tier == TierLeaf {
			leaves = append(leaves, hosts)
		} else if hosts > 0 {
			t.Errorf("%s has hosts", n.Name)
		}
		if up := len(n.Links) - hosts; n.Tier == TierLeaf && up != 18 {
			t.Errorf("%s has %d links to spines, want 18", n.Name, up)
		}
	}
	if want := []int{16, 16, 16, 16, 16, 16, 16, 16, 15, 15, 15, 15}; !slices.Equal(leaves, want) {
		t.Errorf("hosts by leaf %v, want %v", leaves, want)
	}
}

// TestOddFatTree (CEP-49): the groups that a limit of 8 and of 25 copies allows, 144 and 4394 hosts,
// are the hosts of fat-trees with 9 and 26 ports. Only cores use the odd port.
func TestOddFatTree(t *testing.T) {
	for k, hosts := range map[int]int{9: 144, 26: 4394} { // independent of each other
		if g := must(t)(FatTree(k, link)); g.Hosts != hosts {
			t.Errorf("k=%d has %d hosts, want %d", k, g.Hosts, hosts)
		}
	}
	g := must(t)(FatTree(9, link))
	for i := g.Hosts; i < len(g.Nodes); i++ {
		want := 8
		if g.Nodes[i].Tier == TierCore {
			want = 9
		}
		if n := len(g.Nodes[i].Links); n != want {
			t.Errorf("%s has %d links, want %d", g.Nodes[i].Name, n, want)
		}
	}
}

func TestRadix(t *testing.T) {
	for _, s := range []ThreeLayerSpec{FT1024(), FT16384(), FIG2()} {
		g := must(t)(ThreeLayer(s, link))
		for i := g.Hosts; i < len(g.Nodes); i++ {
			if len(g.Nodes[i].Links) != s.Radix {
				t.Fatalf("%s has %d ports, want %d", g.Nodes[i].Name, len(g.Nodes[i].Links), s.Radix)
			}
		}
	}
	g := must(t)(ThreeLayer(FT16384(), link))
	if g.Hosts != 16384 || g.Switches() != 1280 {
		t.Errorf("FT16384 has %d hosts and %d switches", g.Hosts, g.Switches())
	}
}

func TestAddresses(t *testing.T) {
	g := must(t)(FatTree(4, link))
	if ip := g.Nodes[0].IP; ip != 0x0a000001 {
		t.Errorf("h0 is %08x, want 10.0.0.1", ip)
	}
	if ip := g.Nodes[3].IP; ip != 0x0a000102 {
		t.Errorf("h3 is %08x, want 10.0.1.2", ip)
	}
	if ip := g.Nodes[16].IP; ip != 0x0afd0000 {
		t.Errorf("leaf0 is %08x, want 10.253.0.0", ip)
	}
	seen := map[uint32]string{}
	for _, n := range must(t)(ThreeLayer(FT16384(), link)).Nodes {
		if other, dup := seen[n.IP]; dup {
			t.Fatalf("%s and %s share address %08x", n.Name, other, n.IP)
		}
		seen[n.IP] = n.Name
	}
}

func TestRoutesSpread(t *testing.T) {
	g := must(t)(FatTree(4, link))
	r := g.Routes()
	leaf0, _ := g.Find("leaf0")
	tab := r[leaf0-g.Hosts]
	if len(tab.Attached) != 2 || tab.Set[0] != -1 {
		t.Errorf("leaf0: attached %v, own block %d", tab.Attached, tab.Set[0])
	}
	for b := 1; b < len(tab.Set); b++ {
		if set := tab.Sets[tab.Set[b]]; !slices.Equal(set, []uint16{2, 3}) {
			t.Errorf("leaf0 to block %d: ports %v, want both upward ones", b, set)
		}
	}
	agg0, _ := g.Find("agg0")
	if set := r[agg0-g.Hosts].Sets[r[agg0-g.Hosts].Set[1]]; !slices.Equal(set, []uint16{1}) {
		t.Errorf("agg0 to leaf1: ports %v, want 1", set)
	}
}

func TestCheckRoutesFindsErrors(t *testing.T) {
	g := must(t)(FatTree(4, link))
	for name, spoil := range map[string]func([]Table){ // independent of each other
		"missing":   func(r []Table) { r[0].Set[3] = -1 },
		"backwards": func(r []Table) { r[8].Sets[r[8].Set[0]] = []uint16{2} },
		"one-sided": func(r []Table) { r[0].Sets[r[0].Set[5]] = []uint16{2} },
	} {
		r := g.Routes()
		spoil(r)
		if err := g.CheckRoutes(r); err == nil {
			t.Errorf("%s route not found", name)
		}
	}
}

func TestCustom(t *testing.T) {
	nodes := []CustomNode{{"a", Host}, {"s1", Switch}, {"b", Host}, {"s2", Switch}}
	links := []CustomLink{{"a", "s1", 0, 0, link}, {"s1", "s2", -1, -1, link}, {"s2", "b", 5, 0, link}}
	if _, err := Custom(nodes, links); err == nil || !strings.Contains(err.Error(), "s2:1") {
		t.Errorf("gap in port numbers: %v", err)
	}
	links[2].PortA = 1
	g := must(t)(Custom(nodes, links))
	if g.LinkName(1) != "s1:1-s2:0" || g.Nodes[2].Name != "s1" || g.Nodes[2].Tier != TierLeaf {
		t.Errorf("link 1 is %s, node 2 is %+v", g.LinkName(1), g.Nodes[2])
	}
	for name, c := range map[string]struct {
		nodes []CustomNode
		links []CustomLink
	}{
		"duplicate":  {append(nodes, CustomNode{"a", Switch}), links},
		"unknown":    {nodes, append(links[:2:2], CustomLink{"s2", "x", -1, -1, link})},
		"self":       {nodes, append(links[:2:2], CustomLink{"s2", "s2", -1, -1, link})},
		"taken":      {nodes, append(links[:2:2], CustomLink{"s2", "b", 0, 0, link})},
		"alone":      {nodes, links[:2]},
		"two links":  {nodes, append(links[:3:3], CustomLink{"a", "s2", -1, -1, link})},
		"split":      {append(nodes, CustomNode{"c", Host}, CustomNode{"s3", Switch}), append(links[:3:3], CustomLink{"c", "s3", -1, -1, link})},
		"host-host":  {nodes, []CustomLink{{"a", "b", -1, -1, link}, {"s1", "s2", -1, -1, link}}},
		"one host":   {nodes[:2], links[:1]},
		"many ports": {nodes, append(links[:3:3], CustomLink{"s1", "s2", 254, -1, link})},
	} {
		if _, err := Custom(c.nodes, c.links); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestBadShapes(t *testing.T) {
	for name, err := range map[string]error{
		"k of 1":        second(FatTree(1, link)),
		"few in total":  second(LeafSpine(LeafSpineSpec{Leaves: 3, Spines: 1, Hosts: 4, Total: 2}, link)),
		"many in total": second(LeafSpine(LeafSpineSpec{Leaves: 3, Spines: 1, Hosts: 4, Total: 13}, link)),
		"huge k":        second(FatTree(130, link)),
		"star of one":   second(Star(1, link)),
		"star of 255":   second(Star(255, link)),
		"no spine":      second(LeafSpine(LeafSpineSpec{Leaves: 2, Hosts: 2}, link)),
		"no links":      second(LeafSpine(LeafSpineSpec{Leaves: 2, Spines: 2, Hosts: 2, Parallel: -1}, link)),
		"wide leaf":     second(LeafSpine(LeafSpineSpec{Leaves: 2, Hosts: 250, Spines: 8}, link)),
		"uneven aggs":   second(ThreeLayer(ThreeLayerSpec{Radix: 8, Pods: 2, Leaves: 2, Hosts: 4, Aggs: 3, Cores: 4}, link)),
		"uneven cores":  second(ThreeLayer(ThreeLayerSpec{Radix: 8, Pods: 2, Leaves: 4, Hosts: 4, Aggs: 4, Cores: 12, CoreGroups: 1}, link)),
		"full cores":    second(ThreeLayer(ThreeLayerSpec{Radix: 4, Pods: 8, Leaves: 2, Hosts: 2, Aggs: 2, Cores: 4}, link)),
		"zero":          second(ThreeLayer(ThreeLayerSpec{}, link)),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func second(_ *Graph, err error) error { return err }

func TestDraw(t *testing.T) {
	g := must(t)(FatTree(4, link))
	for _, f := range []string{FormatSVG, FormatDOT, FormatMermaid} {
		var b strings.Builder
		if err := g.Draw(&b, f, "k=4 <test>"); err != nil {
			t.Fatal(err)
		}
		for _, n := range g.Nodes {
			if !strings.Contains(b.String(), n.Name) {
				t.Errorf("%s: node %s is missing", f, n.Name)
			}
		}
		if f != FormatSVG {
			continue
		}
		d := xml.NewDecoder(strings.NewReader(b.String()))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("svg is not well-formed: %v", err)
			}
		}
		if n := strings.Count(b.String(), "<line"); n != len(g.Links) {
			t.Errorf("svg has %d lines, want %d", n, len(g.Links))
		}
	}
	if err := g.Draw(io.Discard, "png", ""); err == nil {
		t.Error("unknown format accepted")
	}
}

// TestSizeRefused: a graph that would take minutes to route is refused before it is built,
// whatever its numbers.
func TestSizeRefused(t *testing.T) {
	var p LinkParams
	for name, build := range map[string]func() (*Graph, error){ // independent of each other
		"fat-tree": func() (*Graph, error) { return FatTree(66, p) },
		"three-layer": func() (*Graph, error) {
			return ThreeLayer(ThreeLayerSpec{Radix: 254, Pods: 254, Leaves: 127, Hosts: 127, Aggs: 127, Cores: 127 * 127}, p)
		},
		"many hosts": func() (*Graph, error) {
			return ThreeLayer(ThreeLayerSpec{Radix: 254, Pods: 8, Leaves: 100, Hosts: 200, Aggs: 54, Cores: 308, CoreGroups: 2}, p)
		},
		"many leaves": func() (*Graph, error) {
			return ThreeLayer(ThreeLayerSpec{Radix: 254, Pods: 254, Leaves: 127, Hosts: 1, Aggs: 253, Cores: 253}, p)
		},
		"m-port n-tree":    func() (*Graph, error) { return MPortNTree(4, 14, p) },
		"beyond all hosts": func() (*Graph, error) { return MPortNTree(254, 1<<30, p) },
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := build()
		runtime.ReadMemStats(&after)
		if err == nil || after.TotalAlloc-before.TotalAlloc > 1<<20 {
			t.Errorf("%s: %v, after %d bytes", name, err, after.TotalAlloc-before.TotalAlloc)
		}
	}
	if g, err := MPortNTree(4, 10, p); err != nil || g.Hosts != 2048 {
		t.Errorf("2048 hosts at small switches: %v", err)
	}
}
