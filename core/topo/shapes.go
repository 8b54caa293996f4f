// SPDX-License-Identifier: Apache-2.0

package topo

import "fmt"

// Star returns the graph of one switch with the given number of hosts, 2 to 254.
func Star(hosts int, p LinkParams) (*Graph, error) {
	if hosts < 2 || hosts > portsMax {
		return nil, fmt.Errorf("star of %d hosts: a switch has 2 to %d ports", hosts, portsMax)
	}
	g := &Graph{}
	for h := range hosts {
		g.addNode(fmt.Sprintf("h%d", h), Host, TierHost, -1)
	}
	leaf := g.addNode("leaf0", Switch, TierLeaf, -1)
	for h := range hosts {
		g.connect(h, leaf, p)
	}
	return g, g.finish()
}

// LeafSpineSpec describes a two-layer fabric.
type LeafSpineSpec struct {
	Leaves, Spines int
	Hosts          int // per leaf
	Parallel       int // links between each leaf and each spine; 0 means 1
	// Total is the number of hosts if the leaves have not all Hosts of them. They are spread as
	// evenly as can be: the first leaves have one more than the others. 0 means that all have Hosts.
	Total int
}

// UCC188 is the fabric on which the multicast Allgather was measured (GEN-8): 188 hosts and 18 switches
// with 36 ports. The paper does not describe how they are connected. This is the fabric that has no
// oversubscription with these numbers.
func UCC188() LeafSpineSpec {
	return LeafSpineSpec{Leaves: 12, Spines: 6, Hosts: 16, Parallel: 3, Total: 188}
}

// hostLeaf returns the leaf of a host.
func (s *LeafSpineSpec) hostLeaf(h int) int {
	each, more := s.Total/s.Leaves, s.Total%s.Leaves
	if h < more*(each+1) {
		return h / (each + 1)
	}
	return more + (h-more*(each+1))/each
}

// LeafSpine returns the graph of a two-layer fabric, in which every leaf is linked to every spine.
func LeafSpine(s LeafSpineSpec, p LinkParams) (*Graph, error) {
	if s.Parallel < 0 {
		return nil, fmt.Errorf("leaf-spine with %d links between each leaf and each spine: there must be at least 1", s.Parallel)
	}
	s.Parallel = max(1, s.Parallel)
	if s.Leaves < 1 || s.Spines < 1 || s.Hosts < 1 {
		return nil, fmt.Errorf("leaf-spine of %d leaves, %d spines and %d hosts per leaf: each must be at least 1", s.Leaves, s.Spines, s.Hosts)
	}
	if s.Total == 0 {
		s.Total = s.Leaves * s.Hosts
	}
	if s.Total < s.Leaves || s.Total > s.Leaves*s.Hosts {
		return nil, fmt.Errorf("leaf-spine with %d hosts in total: %d leaves with 1 to %d hosts have %d to %d",
			s.Total, s.Leaves, s.Hosts, s.Leaves, s.Leaves*s.Hosts)
	}
	if err := checkPorts("leaf", s.Hosts+s.Spines*s.Parallel); err != nil {
		return nil, err
	}
	if err := checkPorts("spine", s.Leaves*s.Parallel); err != nil {
		return nil, err
	}
	g := &Graph{}
	hosts := s.Total
	for h := range hosts {
		g.addNode(fmt.Sprintf("h%d", h), Host, TierHost, -1)
	}
	for l := range s.Leaves {
		g.addNode(fmt.Sprintf("leaf%d", l), Switch, TierLeaf, -1)
	}
	for x := range s.Spines {
		g.addNode(fmt.Sprintf("spine%d", x), Switch, TierAgg, -1)
	}
	for h := range hosts {
		g.connect(h, hosts+s.hostLeaf(h), p)
	}
	for l := range s.Leaves {
		for x := range s.Spines {
			for range s.Parallel {
				g.connect(hosts+l, hosts+s.Leaves+x, p)
			}
		}
	}
	return g, g.finish()
}

// FatTree returns the k-ary fat-tree. It has k pods of k/2 leaves and k/2 aggregation switches,
// k/2 hosts per leaf, and (k/2)^2 cores. k is 2 to 64. With an odd k halves are rounded down: a
// leaf and an aggregation switch leave one port free, and a core, which has a port to each pod,
// none. The hosts are then k*((k-1)/2)^2, as in the groups that a fan-out limit allows (CEP-49).
func FatTree(k int, p LinkParams) (*Graph, error) {
	if k < 2 || k > 64 {
		return nil, fmt.Errorf("fat-tree with k = %d: k must be 2 to 64 (65536 hosts)", k)
	}
	h := k / 2
	s := ThreeLayerSpec{Radix: k, Pods: k, Leaves: h, Hosts: h, Aggs: h, Cores: h * h, CoreGroups: h}
	return s.build(1, 1, p)
}

// ThreeLayerSpec describes a three-layer fat-tree of switches with Radix ports. The ports of a
// leaf that have no host are linked in equal shares to the aggregation switches of its pod. The
// ports of an aggregation switch that have no leaf are linked in equal shares to its cores.
type ThreeLayerSpec struct {
	Radix  int
	Pods   int
	Leaves int // per pod
	Hosts  int // per leaf
	Aggs   int // per pod
	Cores  int
	// CoreGroups is the number of groups of cores. Aggregation switch i of every pod is linked to
	// the cores of group i mod CoreGroups. 0 means one group per aggregation switch of a pod, as
	// in the usual fat-tree. 1 means that every aggregation switch is linked to every core.
	CoreGroups int
}

// FT1024 is the 1024-host fabric of the Cepheus paper (GEN-8).
func FT1024() ThreeLayerSpec {
	return ThreeLayerSpec{Radix: 64, Pods: 4, Leaves: 8, Hosts: 32, Aggs: 8, Cores: 16, CoreGroups: 1}
}

// FT16384 is the 16,384-host fabric of the Gleam paper (GEN-8).
func FT16384() ThreeLayerSpec {
	return ThreeLayerSpec{Radix: 64, Pods: 16, Leaves: 32, Hosts: 32, Aggs: 32, Cores: 256}
}

// FIG2 is the fabric of the traffic comparison in the multicast Allgather paper's Fig. 2 (GEN-8):
// 1024 hosts on 32-port switches. Three layers without oversubscription are the least that fits.
func FIG2() ThreeLayerSpec {
	return ThreeLayerSpec{Radix: 32, Pods: 4, Leaves: 16, Hosts: 16, Aggs: 16, Cores: 32}
}

// layout returns the numbers of parallel links between a leaf and an aggregation switch (low), and
// between an aggregation switch and a core (high).
func (s *ThreeLayerSpec) layout() (low, high int, err error) {
	if s.Radix < 2 || s.Pods < 1 || s.Leaves < 1 || s.Hosts < 1 || s.Aggs < 1 || s.Cores < 1 || s.CoreGroups < 0 {
		return 0, 0, fmt.Errorf("three-layer fat-tree: radix, pods, leaves, hosts, aggs and cores must all be positive")
	}
	if s.CoreGroups == 0 {
		s.CoreGroups = s.Aggs
	}
	if err := checkPorts("switch", s.Radix); err != nil {
		return 0, 0, err
	}
	if s.Aggs%s.CoreGroups != 0 || s.Cores%s.CoreGroups != 0 {
		return 0, 0, fmt.Errorf("three-layer fat-tree: %d core groups do not divide %d aggregation switches and %d cores", s.CoreGroups, s.Aggs, s.Cores)
	}
	up := s.Radix - s.Hosts
	if up < 1 {
		return 0, 0, fmt.Errorf("three-layer fat-tree: a leaf's %d hosts leave none of its %d ports for aggregation switches", s.Hosts, s.Radix)
	}
	if up < s.Aggs || up%s.Aggs != 0 {
		return 0, 0, fmt.Errorf("three-layer fat-tree: a leaf's %d upward ports do not spread evenly over %d aggregation switches", up, s.Aggs)
	}
	low = up / s.Aggs
	up = s.Radix - s.Leaves*low
	reach := s.Cores / s.CoreGroups
	if up < 1 {
		return 0, 0, fmt.Errorf("three-layer fat-tree: an aggregation switch's %d links to %d leaves leave none of its %d ports for cores",
			s.Leaves*low, s.Leaves, s.Radix)
	}
	if up < reach || up%reach != 0 {
		return 0, 0, fmt.Errorf("three-layer fat-tree: an aggregation switch's %d upward ports do not spread evenly over %d cores", up, reach)
	}
	high = up / reach
	if need := s.Pods * s.Aggs / s.CoreGroups * high; need > s.Radix {
		return 0, 0, fmt.Errorf("three-layer fat-tree: a core would need %d ports, the radix is %d", need, s.Radix)
	}
	return low, high, nil
}

// ThreeLayer returns the graph of a three-layer fat-tree. It is an error if the ports do not divide
// evenly.
func ThreeLayer(s ThreeLayerSpec, p LinkParams) (*Graph, error) {
	low, high, err := s.layout()
	if err != nil {
		return nil, err
	}
	return s.build(low, high, p)
}

// build returns the graph with the given numbers of parallel links (layout).
func (s *ThreeLayerSpec) build(low, high int, p LinkParams) (*Graph, error) {
	leaves, aggs := s.Pods*s.Leaves, s.Pods*s.Aggs
	hosts := leaves * s.Hosts
	if err := checkSize(hosts, leaves, leaves+aggs+s.Cores, s.Radix); err != nil {
		return nil, err
	}
	g := &Graph{}
	for h := range hosts {
		g.addNode(fmt.Sprintf("h%d", h), Host, TierHost, h/s.Hosts/s.Leaves)
	}
	for l := range leaves {
		g.addNode(fmt.Sprintf("leaf%d", l), Switch, TierLeaf, l/s.Leaves)
	}
	for a := range aggs {
		g.addNode(fmt.Sprintf("agg%d", a), Switch, TierAgg, a/s.Aggs)
	}
	for c := range s.Cores {
		g.addNode(fmt.Sprintf("core%d", c), Switch, TierCore, -1)
	}
	leaf, agg, core := hosts, hosts+leaves, hosts+leaves+aggs
	for h := range hosts {
		g.connect(h, leaf+h/s.Hosts, p)
	}
	for l := range leaves {
		for a := range s.Aggs {
			for range low {
				g.connect(leaf+l, agg+l/s.Leaves*s.Aggs+a, p)
			}
		}
	}
	reach := s.Cores / s.CoreGroups
	for a := range aggs {
		for c := range reach {
			for range high {
				g.connect(agg+a, core+a%s.Aggs%s.CoreGroups*reach+c, p)
			}
		}
	}
	return g, g.finish()
}

// portsMax is the largest number of ports of a switch (virtswitch.PortsMax).
const portsMax = 254

func checkPorts(what string, n int) error {
	if n > portsMax {
		return fmt.Errorf("a %s would have %d ports, the most is %d", what, n, portsMax)
	}
	return nil
}
