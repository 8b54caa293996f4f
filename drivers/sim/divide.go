// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/topo"
)

// Divide divides a lab into parts of about as many nodes, so that few links lead from one part to
// another: hosts beside each other, with their leaf switch, and every other switch where most of its
// neighbours below are. It returns the part of each node, as NewParts takes it. There are fewer parts
// than asked for if there are fewer leaf switches.
func Divide(g *topo.Graph, parts int) []int {
	of := make([]int, len(g.Nodes))
	for i := range of {
		of[i] = -1
	}
	var leaves []int // in the order of their first hosts
	hosts := make([]int, len(g.Nodes))
	for h := range g.Hosts {
		leaf := g.Peer(h, 0).Node
		if hosts[leaf]++; hosts[leaf] == 1 {
			leaves = append(leaves, leaf)
		}
	}
	parts = max(1, min(parts, len(leaves)))
	before, part := 0, 0
	load := make([]int, parts)
	for i, leaf := range leaves {
		// A leaf goes to the part in which its middle host would be, but none is left without one.
		if at := (2*before + hosts[leaf]) * parts / (2 * g.Hosts); at > part && load[part] > 0 {
			part++
		}
		if left := len(leaves) - i; left <= parts-1-part && load[part] > 0 {
			part++
		}
		before += hosts[leaf]
		of[leaf] = part
		load[part]++
	}
	for h := range g.Hosts {
		of[h] = of[g.Peer(h, 0).Node]
	}
	// Upwards, a tier at a time: a switch is placed once neighbours of it are.
	for tier := leaves; len(tier) > 0; {
		var next []int
		for _, sw := range tier {
			for port := range g.Nodes[sw].Links {
				if far := g.Peer(sw, port).Node; of[far] < 0 && !slices.Contains(next, far) {
					next = append(next, far)
				}
			}
		}
		slices.Sort(next)
		for _, sw := range next {
			of[sw] = nearest(g, sw, of, load)
			load[of[sw]]++
		}
		tier = next
	}
	for i := range of {
		of[i] = max(of[i], 0) // nothing leads to it
	}
	return of
}

// nearest returns the part with most of a switch's neighbours; of several the one with the fewest
// switches so far.
func nearest(g *topo.Graph, sw int, of, load []int) (best int) {
	near := make([]int, len(load))
	for port := range g.Nodes[sw].Links {
		if at := of[g.Peer(sw, port).Node]; at >= 0 {
			near[at]++
		}
	}
	for i := range near {
		if near[i] > near[best] || near[i] == near[best] && load[i] < load[best] {
			best = i
		}
	}
	return best
}
