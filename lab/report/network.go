// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
)

// waysShown is the number of directions of links in the table beside the pictures.
const waysShown = 20

// network writes the traffic of the links and switches of a run: pictures of the topology, and a table.
func (b *page) network(r *Run, prefix string) {
	f := r.fabric
	if f == nil || !f.counted || len(f.ways) == 0 {
		return
	}
	b.text("h2", prefix+"links and switches")
	if f.large() {
		b.text("p", "A row is a switch. Each cell is a link to a host or, behind the gap, to a higher switch: "+
			"its upper half shows traffic up, its lower half traffic down. "+
			"The square before the cells is the switch itself, where the picture says something of switches.")
	} else {
		b.text("p", "Each link is two lines: the line on the right, in the direction of travel, shows traffic in that direction.")
	}
	for _, p := range f.paints() {
		if p.top() == 0 {
			b.text("p", p.title+": none.")
			continue
		}
		b.picture(f.topology(&p))
	}
	order := make([]int, len(f.ways))
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(x, y int) int {
		p, q := &f.ways[x], &f.ways[y]
		return cmp.Or(cmp.Compare(q.lost, p.lost), cmp.Compare(q.pausedUS, p.pausedUS), cmp.Compare(q.busyUS, p.busyUS), cmp.Compare(q.peak, p.peak))
	})
	var lines [][]string
	for _, k := range order[:min(len(order), waysShown)] {
		w := &f.ways[k]
		share := ""
		if f.spanUS > 0 {
			share = fmt.Sprintf("%.2f", 100*w.busyUS/f.spanUS)
		}
		lines = append(lines, []string{
			f.wayName(w), number(w.busyUS), share, fmt.Sprint(w.bytes), fmt.Sprint(w.peak), fmt.Sprint(w.lost), number(w.pausedUS),
		})
	}
	b.table([]string{"from > to", "busy (us)", "% of the run", "bytes", "queue peak (bytes)", "lost to faults", "paused (us)"}, lines)
	if n := len(order) - len(lines); n > 0 {
		b.text("p", fmt.Sprintf("%d more directions are in counters.json; these lost the most, or else were paused for the longest, or else were the busiest.", n))
	}
	lines = nil
	for i, n := range f.drops {
		if n > 0 {
			lines = append(lines, []string{f.g.Nodes[i].Name, fmt.Sprint(n)})
		}
	}
	slices.SortStableFunc(lines, func(x, y []string) int { return cmp.Or(cmp.Compare(len(y[1]), len(x[1])), cmp.Compare(y[1], x[1])) })
	if len(lines) > 0 {
		b.table([]string{"node", "frames dropped"}, lines[:min(len(lines), waysShown)])
	}
}

// large reports whether the topology is drawn as a map.
func (f *fabric) large() bool {
	return slices.ContainsFunc(f.tiers(), func(row []int) bool { return len(row) > tierMax })
}

// paints returns the pictures' colours.
func (f *fabric) paints() []paint {
	all := []paint{
		{title: "Load: time for which a link was busy", unit: "us"},
		{title: "Queue peaks: the most that one queue before a link held", unit: "bytes"},
		{title: "Drops: frames that links lost to faults and that nodes dropped", unit: "frames", nodes: make([]float64, len(f.g.Nodes))},
		{title: "Pauses: time for which a link's sender was paused", unit: "us"},
	}
	for i := range all {
		all[i].ways = make([]float64, len(f.ways))
	}
	for k := range f.ways {
		w := &f.ways[k]
		all[0].ways[k], all[1].ways[k], all[2].ways[k], all[3].ways[k] = w.busyUS, float64(w.peak), float64(w.lost), w.pausedUS
	}
	for i, n := range f.drops {
		all[2].nodes[i] = float64(n)
	}
	if f.large() { // hosts have no squares: their drops show where the frames came from
		for h := range f.g.Hosts {
			if len(f.g.Nodes[h].Links) > 0 {
				far := f.g.Peer(h, 0)
				all[2].ways[f.wayOf(far.Node, far.Port)] += all[2].nodes[h]
			}
			all[2].nodes[h] = 0
		}
	}
	return all
}
