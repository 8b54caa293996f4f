// SPDX-License-Identifier: Apache-2.0

package collective

import "math/bits"

// CriticalLinks returns the number of link traversals, one after the other, on which the last byte of a
// broadcast depends: extra time on every link adds to the whole that many times. hops returns the links
// between two ranks, counted from the root as 0; n is the size of the message in bytes.
func CriticalLinks(name string, o Options, ranks, n, mtu int, hops func(a, b int) int) (links int) {
	for _, s := range broadcasts() {
		if s.name != name {
			continue
		}
		if s.options(&o, ranks) != nil {
			return 0 // the scheme cannot run
		}
		c := critical{o: o, ranks: ranks, n: n, mtu: mtu, hops: hops}
		return c.links(name)
	}
	return 0
}

type critical struct {
	o             Options
	ranks, n, mtu int
	hops          func(a, b int) int
}

func (c *critical) links(name string) (worst int) {
	if c.o.Transport == TransportRCChunks || c.o.Transport == TransportUD { // the last receiver waits for the others' acknowledgements
		return (2*(c.ranks-2) + 1) * c.farthest()
	}
	switch name {
	case "1ring", "chain":
		return c.below(ring, 0)
	case "1ringM":
		return c.below(ringM, 0)
	case "2ring":
		return c.below(twoRings, 0)
	case "2ringM":
		return c.below(twoRingsM, 0)
	case "binomial":
		return c.below(binomial, 0)
	case "k-nomial":
		return c.below(knomial, 0)
	case "binary-tree", "pipelined-binary-tree":
		return c.below(binaryTree, 0)
	case "double-binary-tree":
		return max(c.below(inOrder, 0), c.below(inOrderShifted, 0))
	case "rdmc":
		return c.rdmc()
	case "ud-multicast", "uc-multicast": // the barrier, a chunk, the handshake
		return (bits.Len(uint(c.ranks-1)) + 2) * c.farthest()
	case "scatter-allgather":
		c.n /= c.ranks // bytes that the last children get
		rounds := 0
		for d := 1; d < c.ranks; d *= c.o.Radix {
			rounds++
		}
		return c.below(knomial, 0) + rounds*c.farthest()
	case "long":
		c.n /= c.ranks
		return c.below(binomial, 0) + (c.ranks-1)*c.farthest()
	case "longM":
		first := 2 * c.hops(0, 1)
		c.ranks--
		hops := c.hops
		c.hops = func(a, b int) int { return hops(a+min(a, 1), b+min(b, 1)) }
		return first + c.links("long")
	}
	for i := 1; i < c.ranks; i++ { // one message to each
		worst = max(worst, c.hops(0, i))
	}
	return worst
}

// below follows a tree below a rank. A large message without slices goes to the next child
// once the previous one has acknowledged it.
func (c *critical) below(f shape, me int) (worst int) {
	_, children := f(me, c.ranks, c.o)
	before := 0
	for _, child := range children {
		d := c.hops(me, child)
		worst = max(worst, before+d+c.below(f, child))
		if c.n > c.mtu && c.o.Slices == 1 {
			before += 2 * d
		}
	}
	return worst
}

// rdmc counts a send and its acknowledgement for each step.
func (c *critical) rdmc() int {
	steps := max(1, (c.n+c.o.Block-1)/c.o.Block) + bits.Len(uint(c.ranks)) - 2
	if c.ranks&(c.ranks-1) != 0 {
		steps++
	}
	return (2*steps - 1) * c.farthest()
}

// farthest returns the most links between a rank and any other that it may communicate with.
func (c *critical) farthest() (links int) {
	for a := range c.ranks {
		for b := range a {
			links = max(links, c.hops(a, b))
		}
	}
	return links
}
