// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"fmt"
	"math/bits"
	"strings"
)

// NTree computes labels, local identifiers (LIDs) and routes of the m-port n-tree IBFT(m, n) of the
// cyclic multicast paper (§2.2, §3). h is m/2.
//
// A host is identified by its PID, the number whose digits are its label p0, p1 to p(n-1). p0 is 0
// to m-1, and the other digits are 0 to h-1. A switch SW<w, l> has a level l, from 0 at the top to
// n-1 at the hosts, and a label w of n-1 such digits. Ports are counted from 0, one below the
// paper's. At level 0 all m ports lead down; at the other levels the first h ports do (CYC-1 to
// CYC-3).
type NTree struct{ m, n, h int }

// nTreeHostsMax bounds the number of hosts of a tree.
const nTreeHostsMax = hostsMax

// NewNTree returns the NTree of IBFT(m, n). m must be even and 4 to 254, n at least 2, and the
// tree may have at most 65,536 hosts.
func NewNTree(m, n int) (*NTree, error) {
	if m < 4 || m%2 != 0 || m > portsMax {
		return nil, fmt.Errorf("m-port n-tree with m = %d: m must be even, 4 to %d", m, portsMax)
	}
	if n < 2 {
		return nil, fmt.Errorf("m-port n-tree with n = %d: n must be at least 2 (with 1 it is a star)", n)
	}
	t := &NTree{m, n, m / 2}
	hosts := 2
	for range n {
		if hosts *= t.h; hosts > nTreeHostsMax {
			return nil, fmt.Errorf("m-port n-tree with m = %d and n = %d has more than %d hosts", m, n, nTreeHostsMax)
		}
	}
	return t, nil
}

// pow returns h^i.
func (t *NTree) pow(i int) int {
	v := 1
	for range i {
		v *= t.h
	}
	return v
}

// Shape returns the number of ports of a switch, m, and the number of levels of switches, n.
func (t *NTree) Shape() (m, n int) { return t.m, t.n }

// Hosts returns the number of hosts, 2h^n.
func (t *NTree) Hosts() int { return 2 * t.pow(t.n) }

// Switches returns the number of switches, (2n-1)h^(n-1).
func (t *NTree) Switches() int { return (2*t.n - 1) * t.pow(t.n-1) }

// width returns the number of switches of a level.
func (t *NTree) width(level int) int {
	if level == 0 {
		return t.pow(t.n - 1)
	}
	return 2 * t.pow(t.n-1)
}

// digit returns digit i of a label with the given number of digits. All digits but the first are
// below h.
func (t *NTree) digit(v, i, digits int) int {
	v /= t.pow(digits - 1 - i)
	if i == 0 {
		return v
	}
	return v % t.h
}

// node returns the node of switch w of a level. Switches are numbered from the leaves up.
func (t *NTree) node(level, w int) int {
	if level == 0 {
		return t.Hosts() + (t.n-1)*t.width(1) + w
	}
	return t.Hosts() + (t.n-1-level)*t.width(1) + w
}

// At returns the level and the label of the switch at a node, the label as a number.
func (t *NTree) At(node int) (level, w int) {
	i := node - t.Hosts()
	if top := (t.n - 1) * t.width(1); i >= top {
		return 0, i - top
	}
	return t.n - 1 - i/t.width(1), i % t.width(1)
}

// above returns the switch one level up to which port h+u of switch w of a level leads, and that
// switch's port. Its label is w without the digit of the upper level, followed by u (CYC-2).
func (t *NTree) above(level, w, u int) (upper, port int) {
	gone := level - 1
	for i := range t.n - 1 {
		if i != gone {
			upper = upper*t.h + t.digit(w, i, t.n-1)
		}
	}
	return upper*t.h + u, t.digit(w, gone, t.n-1)
}

// Label returns the label of a host, or of a switch without its level, as text. Underscores
// separate the digits if m is above 10, since a digit may then have two figures.
func (t *NTree) Label(node int) string {
	v, digits := node, t.n
	if node >= t.Hosts() {
		_, v = t.At(node)
		digits--
	}
	sep := ""
	if t.m > 10 {
		sep = "_"
	}
	var b strings.Builder
	for i := range digits {
		if i > 0 {
			b.WriteString(sep)
		}
		fmt.Fprint(&b, t.digit(v, i, digits))
	}
	return b.String()
}

// MPortNTree returns the graph of IBFT(m, n). Hosts are named h0, h1 and so on by PID. Switch
// SW<w, l> is named by w and l, for example sw21-2.
func MPortNTree(m, n int, p LinkParams) (*Graph, error) {
	t, err := NewNTree(m, n)
	if err != nil {
		return nil, err
	}
	if err := checkSize(t.Hosts(), t.width(n-1), t.Switches(), m); err != nil {
		return nil, err
	}
	g := &Graph{nTree: t}
	for h := range t.Hosts() {
		g.addNode(fmt.Sprintf("h%d", h), Host, TierHost, h/t.pow(n-1))
	}
	for level := n - 1; level >= 0; level-- {
		for w := range t.width(level) {
			pod := -1
			if level > 0 {
				pod = t.digit(w, 0, n-1)
			}
			id := g.addNode(fmt.Sprintf("sw%s-%d", t.Label(t.node(level, w)), level), Switch, Tier(n-level), pod)
			g.Nodes[id].Links = make([]int, m)
		}
	}
	for h := range t.Hosts() {
		g.Nodes[h].Links = make([]int, 1)
		g.join(End{h, 0}, End{t.node(n-1, h/t.h), h % t.h}, p)
	}
	for level := n - 1; level > 0; level-- {
		for w := range t.width(level) {
			for u := range t.h {
				upper, port := t.above(level, w, u)
				g.join(End{t.node(level, w), t.h + u}, End{t.node(level-1, upper), port}, p)
			}
		}
	}
	return g, g.finish()
}

// NTree returns the NTree of the graph if it is an m-port n-tree, and nil otherwise.
func (g *Graph) NTree() *NTree { return g.nTree }

// Limits of LIDs. The LID mask control (LMC) has three bits, and LIDs from 0xC000 on are multicast
// LIDs (CYC-5, CYC-14).
const (
	MLIDFirst  = 0xc000
	MLIDLast   = 0xfffe
	lmcMax     = 7
	lidUnicast = 0xbfff
	netLIDs    = 10<<24 | 128<<16
	netMLIDs   = 239<<24 | 255<<16
)

// LIDAddress returns the IPv4 address of a LID: 10.128.0.0 plus the LID (CYC-15).
func LIDAddress(lid int) uint32 { return netLIDs | uint32(lid) }

// MLIDAddress returns the IPv4 multicast address of a multicast LID: 239.255.0.0 plus the LID.
func MLIDAddress(mlid int) uint32 { return netMLIDs | uint32(mlid) }

// LIDs returns the number of LIDs of a host, h^(n-1), which is the number of paths to it. It is an
// error if that number is no power of two or too large for the LMC, or if all hosts together need
// more LIDs than there are.
func (t *NTree) LIDs() (int, error) {
	paths := t.pow(t.n - 1)
	switch {
	case bits.OnesCount(uint(t.h)) != 1:
		return 0, fmt.Errorf("an m-port n-tree with m = %d has no LIDs: a host needs %d, and can have a power of two: use m = 4, 8, 16, 32 and so on", t.m, paths)
	case paths > 1<<lmcMax:
		return 0, fmt.Errorf("an m-port n-tree with m = %d and n = %d has no LIDs: a host needs %d, and can have %d (LMC has three bits)", t.m, t.n, paths, 1<<lmcMax)
	case t.Hosts()*paths > lidUnicast:
		return 0, fmt.Errorf("an m-port n-tree with m = %d and n = %d has no LIDs: its %d hosts need %d each, and there are %d of them",
			t.m, t.n, t.Hosts(), paths, lidUnicast)
	}
	return paths, nil
}

// BaseLID returns the first LID of a host (CYC-5).
func (t *NTree) BaseLID(pid int) int { return t.pow(t.n-1)*pid + 1 }

// Owner returns the PID of the host that has a LID.
func (t *NTree) Owner(lid int) (pid int) { return (lid - 1) / t.pow(t.n-1) }

// common returns the length of the longest common prefix of two hosts' labels, which is the level of
// their least common ancestors (definitions 1 and 2).
func (t *NTree) common(a, b int) int {
	for l := t.n; l > 0; l-- {
		if d := t.pow(t.n - l); a/d == b/d {
			return l
		}
	}
	return 0
}

// Ancestors returns the nodes of all least common ancestors of two different hosts.
func (t *NTree) Ancestors(a, b int) (nodes []int) {
	l := t.common(a, b)
	for w := range t.width(l) {
		if l == 0 || w/t.pow(t.n-1-l) == a/t.pow(t.n-l) {
			nodes = append(nodes, t.node(l, w))
		}
	}
	return nodes
}

// Rank returns the rank of a host in the group of the hosts that share its first a digits
// (definition 4).
func (t *NTree) Rank(a, pid int) int {
	if a == 0 {
		return pid
	}
	return pid % t.pow(t.n-a)
}

// LID returns the LID of the destination dst to which the source src sends. This is the cyclic path
// selection (CYC-7).
func (t *NTree) LID(src, dst int) int {
	return t.BaseLID(dst) + t.Rank(t.common(src, dst)+1, src)
}

// Classes returns the number of classes of sources. The sources of a class have the same digits p1
// to p(n-1), and their paths lead up toward the same top switch (CYC-12).
func (t *NTree) Classes() int { return t.pow(t.n - 1) }

// Class returns the class of a source.
func (t *NTree) Class(src int) int { return src % t.pow(t.n-1) }

// classLID returns the LID of a destination that all sources of a class can use.
func (t *NTree) classLID(class, dst int) int { return t.BaseLID(dst) + class }

// Port returns the port by which the switch at a node sends packets to a LID, by equation (1) if the
// LID's owner is below the switch and by equation (2) otherwise (CYC-8).
func (t *NTree) Port(node, lid int) int {
	level, w := t.At(node)
	if pid := t.Owner(lid); level == 0 || pid/t.pow(t.n-level) == w/t.pow(t.n-1-level) {
		return t.digit(pid, level, t.n)
	}
	return (lid-1)/t.pow(t.n-1-level)%t.h + t.h
}
