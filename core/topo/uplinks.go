// SPDX-License-Identifier: Apache-2.0

package topo

// TreesMax is the largest number of multicast trees for the groups of programs in a fabric: as many as spread groups
// over the switches of the highest tier of an ordinary lab.
const TreesMax = 16

// Values of Uplinks that are no port.
const (
	UplinkRoot = -1 // the switch is the root of the tree
	UplinkNone = -2 // the tree does not reach the switch
)

// Uplinks returns, by multicast tree, the port of a switch toward the tree's root. Every switch has one such port at
// most, one hop nearer to the root, so that the ports of all switches make up a tree whatever subset of it a group uses.
//
// If switches form tiers, the roots are those of the lowest tier that have all leaves below them, and every uplink goes
// up: packets go up and then down, as unicast ones do. In other graphs the root is the first host's leaf. A tree whose
// root has lost leaves to failed links gets the next root that has not; all switches choose alike.
func (g *Graph) Uplinks(node int, failed ...int) []int {
	if g.Switches() == 0 {
		return nil
	}
	down := g.marked(failed)
	leaves := g.leaves()
	roots, allowed := []int{leaves[0]}, func(int, int) bool { return true }
	if g.tiered() {
		lower := func(from, to int) bool { return g.Nodes[to].Tier < g.Nodes[from].Tier }
		if all := g.roots(leaves, lower); len(all) > 0 {
			roots, allowed = all, lower
		}
	}
	roots = roots[:min(len(roots), TreesMax)]
	dist, reach, most := make([][]int, len(roots)), make([]int, len(roots)), 0
	for i, r := range roots {
		dist[i] = g.distances(r, down, allowed)
		for _, l := range leaves {
			if dist[i][l] >= 0 {
				reach[i]++
			}
		}
		most = max(most, reach[i])
	}
	up := make([]int, len(roots))
	for t := range roots {
		r := t
		for reach[r] < most {
			r = (r + 1) % len(roots)
		}
		up[t] = g.uplink(node, t, dist[r], down, allowed)
	}
	return up
}

// leaves returns the switches with hosts, each once, in the order of the hosts.
func (g *Graph) leaves() (all []int) {
	seen := map[int]bool{}
	for h := range g.Hosts {
		if l := g.Peer(h, 0).Node; !seen[l] {
			seen[l] = true
			all = append(all, l)
		}
	}
	return all
}

// uplink returns the port of a switch toward the root from which dist was taken.
func (g *Graph) uplink(node, tree int, dist []int, down []bool, allowed func(from, to int) bool) int {
	switch dist[node] {
	case -1:
		return UplinkNone
	case 0:
		return UplinkRoot
	}
	var ways []int
	for p, l := range g.Nodes[node].Links {
		m := g.Peer(node, p).Node
		if g.Nodes[m].Kind == Switch && !down[l] && dist[m] == dist[node]-1 && allowed(m, node) {
			ways = append(ways, p)
		}
	}
	return ways[tree%len(ways)]
}
