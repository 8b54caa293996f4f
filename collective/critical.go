package collective

import "math/bits"

// CriticalLinks returns over how many links, one after the other, the last byte of a
// broadcast depends: what each link adds to its time adds so often to the whole. hops
// gives the links between two ranks, counted from the root as 0; large says that the
// message exceeds one MTU.
func CriticalLinks(name string, ranks int, large bool, hops func(a, b int) int) (links int) {
	switch name {
	case "chain":
		for i := 1; i < ranks; i++ {
			links += hops(i-1, i)
		}
	case "binomial":
		return criticalBinomial(0, 1<<bits.Len(uint(ranks-1)), ranks, large, hops)
	default: // one message to each
		for i := 1; i < ranks; i++ {
			links = max(links, hops(0, i))
		}
	}
	return links
}

// criticalBinomial follows the tree below a rank whose subtree spans so many. A large
// message goes to the next child when the last is acknowledged.
func criticalBinomial(me, span, ranks int, large bool, hops func(a, b int) int) (worst int) {
	before := 0
	for s := span / 2; s > 0; s /= 2 {
		if me+s >= ranks {
			continue
		}
		d := hops(me, me+s)
		worst = max(worst, before+d+criticalBinomial(me+s, s, ranks, large, hops))
		if large {
			before += 2 * d
		}
	}
	return worst
}
