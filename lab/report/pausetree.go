// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"html"
	"slices"
)

// pausesShown bounds the nodes of the tree of pauses on a page.
const pausesShown = 60

// pauser is a node in the tree of pauses: it paused the nodes below it.
type pauser struct {
	node  int
	us    float64 // for which its port was paused by the node above it; of a root 0
	again bool    // what it paused stands at another place of the tree
	below []*pauser
}

// pauseTree returns who paused whom. A root paused its neighbours and was not paused itself: congestion or a fault began there. Of nodes
// that pause each other in a ring the root is the one that began.
func (f *fabric) pauseTree() (roots []*pauser) {
	type pause struct {
		by, of int
		us     float64
		from   float64
	}
	var all []pause
	paused := make([]bool, len(f.g.Nodes))
	for k := range f.ways {
		if w := &f.ways[k]; w.pausedUS > 0 && len(f.pauses[k]) > 0 {
			all = append(all, pause{w.to.Node, w.from.Node, w.pausedUS, f.pauses[k][0].from})
			paused[w.from.Node] = true
		}
	}
	slices.SortFunc(all, func(a, b pause) int {
		return cmp.Or(cmp.Compare(b.us, a.us), cmp.Compare(a.from, b.from), cmp.Compare(a.by, b.by), cmp.Compare(a.of, b.of))
	})
	by := map[int][]pause{}
	for _, p := range all {
		by[p.by] = append(by[p.by], p)
	}
	placed := map[int]bool{}
	var add func(x *pauser)
	add = func(x *pauser) {
		if placed[x.node] {
			x.again = len(by[x.node]) > 0
			return
		}
		placed[x.node] = true
		for _, p := range by[x.node] {
			x.below = append(x.below, &pauser{node: p.of, us: p.us})
		}
		for _, y := range x.below {
			add(y)
		}
	}
	root := func(node int) {
		if !placed[node] {
			x := &pauser{node: node}
			add(x)
			roots = append(roots, x)
		}
	}
	for _, p := range all {
		if !paused[p.by] {
			root(p.by)
		}
	}
	slices.SortStableFunc(all, func(a, b pause) int { return cmp.Compare(a.from, b.from) })
	for _, p := range all { // rings
		root(p.by)
	}
	return roots
}

// pausers writes the tree of pauses.
func (b *page) pausers(r *Run, prefix string) {
	if r.fabric == nil {
		return
	}
	roots := r.fabric.pauseTree()
	if len(roots) == 0 {
		return
	}
	b.text("h2", prefix+"who paused whom")
	b.text("p", "A node pauses the neighbours that send to it when its buffer is full, or when a fault makes it. "+
		"These fill up and pause their own. Times are those for which the port to the node above was paused.")
	left := pausesShown
	b.pausersBelow(r.fabric, roots, &left)
	if left < 0 {
		b.text("p", fmt.Sprintf("Not shown: %d more.", -left))
	}
}

// pausersBelow writes a list of the tree, and counts down the nodes that a page has room for.
func (b *page) pausersBelow(f *fabric, list []*pauser, left *int) {
	open := false
	for _, x := range list {
		if *left--; *left >= 0 {
			if !open {
				b.WriteString("<ul>\n")
				open = true
			}
			text := f.g.Nodes[x.node].Name
			if x.us > 0 {
				text += ", for " + number(x.us) + " us"
			}
			if x.again {
				text += "; see it elsewhere in this list"
			}
			b.WriteString("<li>" + html.EscapeString(text))
		}
		b.pausersBelow(f, x.below, left)
	}
	if open {
		b.WriteString("</ul>\n")
	}
}
