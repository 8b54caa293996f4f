// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"
)

// groups writes the trees of a run's multicast groups, from the switches' events of their installation.
func (b *page) groups(r *Run, prefix string) {
	const treesMax, rowsMost = 3, 24
	f, h := r.fabric, r.history
	if f == nil || h == nil || len(h.groups) == 0 {
		return
	}
	b.text("h2", prefix+"groups")
	var trees [][]int
	var rows [][]string
	for _, g := range h.groups {
		edges, root := f.tree(g)
		tree := slices.IndexFunc(trees, func(t []int) bool { return slices.Equal(t, edges) })
		if tree < 0 {
			tree = len(trees)
			trees = append(trees, edges)
		}
		if len(rows) < rowsMost {
			var paths int64
			for _, n := range g.paths { // a sum
				paths += n
			}
			rows = append(rows, []string{
				g.name, fmt.Sprint(tree + 1), root, fmt.Sprint(len(g.in)), fmt.Sprint(paths), number(g.addedUS), number(g.deletedUS),
			})
		}
	}
	b.text("p", "A tree as it was registered: from its leader, by the links along which each switch heard of the group first. "+
		"Links from leaves to members are not drawn.")
	for i, edges := range trees[:min(len(trees), treesMax)] {
		p := paint{title: fmt.Sprintf("Tree %d of %d", i+1, len(trees)), key: fmt.Sprintf("%d links", len(edges)), ways: make([]float64, len(f.ways))}
		for _, k := range edges {
			p.ways[k] = 1
		}
		b.picture(f.topology(&p))
	}
	b.table([]string{"group", "tree", "heard from", "switches", "paths of all switches", "added (us)", "deleted (us)"}, rows)
	if n := len(h.groups) - len(rows); n > 0 {
		b.text("p", fmt.Sprintf("%d more groups are in events.jsonl.", n))
	}
}

// tree returns the directions of links along which a group was registered, in order, and where it begins.
func (f *fabric) tree(g *group) (edges []int, root string) {
	for node, port := range g.in { // in the order of their numbers, below
		if port < 0 || port >= len(f.g.Nodes[node].Links) {
			continue
		}
		up := f.g.Peer(node, port)
		edges = append(edges, f.wayOf(up.Node, up.Port))
		if up.Node < f.g.Hosts {
			root = max(root, f.g.Nodes[up.Node].Name)
		}
	}
	slices.Sort(edges)
	return edges, root
}

// percents are the shares of receivers that the table of ranks has.
func percents() []int { return []int{0, 10, 25, 50, 75, 90, 99, 100} }

// ranks writes, for the largest size of each workload, the number of receivers that had the message
// over time.
func (b *page) ranks(r *Run, prefix string) {
	if r.trace == nil {
		return
	}
	type key struct {
		workload, scheme string
		bytes            int64
	}
	times, order, largest := map[key][]float64{}, []key(nil), map[string]int64{}
	for _, m := range r.trace.Messages {
		if m.Workload == "" || len(m.Receivers) < 2 {
			continue
		}
		k := key{m.Workload, m.Scheme, m.Bytes}
		if times[k] == nil {
			order = append(order, k)
		}
		for _, x := range m.Receivers {
			times[k] = append(times[k], float64(x.At-m.Start)/1e6)
		}
		largest[m.Workload] = max(largest[m.Workload], m.Bytes)
	}
	var shown []key
	for _, k := range order {
		if k.bytes == largest[k.workload] {
			shown = append(shown, k)
		}
	}
	if len(shown) == 0 {
		return
	}
	b.text("h2", prefix+"over the receivers")
	for len(shown) > 0 {
		n := 1
		for n < len(shown) && shown[n].workload == shown[0].workload {
			n++
		}
		p := receivers(shown[0].workload, shown[0].bytes)
		head := []string{"scheme"}
		for _, at := range percents() {
			head = append(head, fmt.Sprintf("%d %% (us)", at))
		}
		var rows [][]string
		for _, k := range shown[:n] {
			all := slices.Sorted(slices.Values(times[k]))
			s := series(k.scheme)
			for _, at := range p.Xs {
				s.Ys = append(s.Ys, quantile(all, at))
			}
			p.Series = append(p.Series, s)
			row := []string{k.scheme}
			for _, at := range percents() {
				row = append(row, number(quantile(all, float64(at))))
			}
			rows = append(rows, row)
		}
		var all []float64
		for _, s := range p.Series {
			all = append(all, s.Ys...)
		}
		p.LogY = slices.Min(all) > 0 && slices.Max(all) > 20*slices.Min(all)
		b.picture(p.SVG())
		b.table(head, rows)
		shown = shown[n:]
	}
}

// quantile returns the nearest-rank percentile of sorted samples; that of 0 is the first.
func quantile(s []float64, percent float64) float64 {
	return s[max(1, int(math.Ceil(float64(len(s))*percent/100)))-1]
}
