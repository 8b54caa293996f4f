// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/wire"
)

// SharedTree is a tree of ClassTree whose members join and leave, as a subnet manager keeps it (CYC-14): for each
// port of each switch it counts the members that the port leads to, so that a change costs no more than one port
// of each switch.
type SharedTree struct {
	g       *Graph
	class   int
	members map[int]bool
	count   [][]int // by switch and port
}

// NewSharedTree returns the tree of a class of sources, without members.
func (g *Graph) NewSharedTree(class int) (*SharedTree, error) {
	if g.nTree == nil {
		return nil, ErrNoNTree
	}
	t := &SharedTree{g: g, class: class, members: map[int]bool{}, count: make([][]int, g.Switches())}
	for i := range t.count {
		t.count[i] = make([]int, g.nTree.m)
	}
	return t, nil
}

// Has reports whether a host is a member.
func (t *SharedTree) Has(host int) bool { return t.members[host] }

// Join makes a host a member.
func (t *SharedTree) Join(host int) error {
	if host < 0 || host >= t.g.Hosts {
		return fmt.Errorf("join: host %d is out of range: the topology has %d hosts", host, t.g.Hosts)
	}
	if t.members[host] {
		return fmt.Errorf("join: %s is a member", t.g.Nodes[host].Name)
	}
	t.members[host] = true
	t.add(host, 1)
	return nil
}

// Leave ends a host's membership.
func (t *SharedTree) Leave(host int) error {
	if !t.members[host] {
		return fmt.Errorf("leave: host %d is no member", host)
	}
	delete(t.members, host)
	t.add(host, -1)
	return nil
}

func (t *SharedTree) add(host, n int) {
	x := t.g.nTree
	lid := x.classLID(t.class, host)
	for i := range t.count {
		t.count[i][x.Port(t.g.Hosts+i, lid)] += n
	}
}

// Branches returns the entries of all switches.
func (t *SharedTree) Branches() []wire.MulticastEntry {
	ports, from := make([]portSet, len(t.count)), make([]portSet, len(t.count))
	for i, count := range t.count {
		for p, n := range count {
			if n > 0 {
				ports[i].add(p)
			} else { // forwarding by MLID does not depend on the input port
				from[i].add(p)
			}
		}
	}
	return t.g.branches(ports, from)
}
