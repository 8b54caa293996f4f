// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/internal/plot"
)

// paint holds the colours of a picture of the topology, by direction of a link and by node.
type paint struct {
	title string
	unit  string
	ways  []float64
	nodes []float64 // nil: nodes are not coloured
	key   string    // in place of the key of colours
}

// top returns the largest value.
func (p *paint) top() (top float64) {
	for _, v := range slices.Concat(p.ways, p.nodes) {
		top = max(top, v)
	}
	return top
}

// Measures of the pictures, in their own units.
const (
	tierMax  = 20 // nodes side by side, beyond which there is no room for their names
	tierStep = 120
	boxH     = 24
	cell     = 8 // of the map, with its gap
	cellRow  = 11
	cellsMax = 64 // in a line
	labelW   = 62
	rowsMax  = 16 // of a group that is no pod
)

// topology draws the graph: as nodes and links if they have room, else as a map of cells.
func (f *fabric) topology(p *paint) string {
	if f.large() {
		return f.drawMap(p)
	}
	return f.drawLinks(p)
}

// heat returns the picture that shows the values on a layout.
func (p *paint) heat(lay *Layout) plot.Heat {
	return plot.Heat{Title: p.title, Unit: p.unit, Key: p.key, High: lay.High, Top: p.top()}
}

// tiers returns the nodes of each tier that has some, hosts first.
func (f *fabric) tiers() (rows [][]int) {
	all := map[topo.Tier][]int{}
	for i := range f.g.Nodes {
		all[f.g.Nodes[i].Tier] = append(all[f.g.Nodes[i].Tier], i)
	}
	for t := range topo.Tier(math.MaxUint8) {
		if len(all[t]) > 0 {
			rows = append(rows, all[t])
		}
	}
	return rows
}

// drawLinks draws nodes in rows by tier, and each link as two lines: that on the right in the direction
// of travel is the traffic in that direction.
func (f *fabric) drawLinks(p *paint) string {
	lay := f.placeLinks()
	lines, boxes := make([]plot.HeatLine, len(f.ways)), make([]plot.HeatBox, len(f.g.Nodes))
	for k := range f.ways {
		lines[k] = plot.HeatLine{At: lay.Ways[k], Value: p.ways[k], Name: f.wayName(&f.ways[k])}
	}
	for i := range f.g.Nodes {
		t := &lay.Texts[i]
		boxes[i] = plot.HeatBox{At: lay.Nodes[i], Name: f.g.Nodes[i].Name, X: t.X, Y: t.Y, Text: t.Text}
		if p.nodes != nil {
			boxes[i].Value = p.nodes[i]
		}
	}
	h := p.heat(&lay)
	return h.Links(lines, boxes)
}

// block is a part of the map: a pod, or switches that are in none.
type block struct {
	title string
	rows  []mapRow
	grid  []int // switches without cells of their own
	wide  int
	high  int
}

// mapRow is a switch and the links it has cells for: those to hosts, then those to higher tiers.
type mapRow struct {
	node        int
	hosts, ups  []int // links
	linesHosts  int
	lines, wide int
}

// blocks divides the switches.
func (f *fabric) blocks() (all []*block) {
	pods, rest, grid := map[int]*block{}, []mapRow(nil), []int(nil)
	for i := f.g.Hosts; i < len(f.g.Nodes); i++ {
		n := &f.g.Nodes[i]
		r := mapRow{node: i}
		for port, link := range n.Links {
			far := f.g.Peer(i, port).Node
			switch t := f.g.Nodes[far].Tier; {
			case far < f.g.Hosts:
				r.hosts = append(r.hosts, link)
			case t > n.Tier || t == n.Tier && far > i:
				r.ups = append(r.ups, link)
			}
		}
		switch {
		case len(r.hosts)+len(r.ups) == 0:
			grid = append(grid, i)
		case n.Pod < 0:
			rest = append(rest, r)
		default:
			if pods[n.Pod] == nil {
				pods[n.Pod] = &block{title: fmt.Sprintf("pod %d", n.Pod)}
				all = append(all, pods[n.Pod])
			}
			pods[n.Pod].rows = append(pods[n.Pod].rows, r)
		}
	}
	for part := range slices.Chunk(rest, rowsMax) {
		title := f.g.Nodes[part[0].node].Name
		if len(part) > 1 {
			title += " to " + f.g.Nodes[part[len(part)-1].node].Name
		}
		all = append(all, &block{title: title, rows: part})
	}
	if len(grid) > 0 {
		title := f.g.Nodes[grid[0]].Name
		if len(grid) > 1 {
			title += " to " + f.g.Nodes[grid[len(grid)-1]].Name
		}
		all = append(all, &block{title: title, grid: grid})
	}
	for _, k := range all {
		k.measure()
	}
	return all
}

// measure computes the room that a block takes.
func (k *block) measure() {
	k.high = 18
	for i := range k.rows {
		r := &k.rows[i]
		r.linesHosts = (len(r.hosts) + cellsMax - 1) / cellsMax
		r.lines, r.wide = max(1, r.linesHosts), labelW+cell+4+min(len(r.hosts), cellsMax)*cell
		if up := min(len(r.ups), cellsMax) * cell; r.linesHosts <= 1 && len(r.hosts)+len(r.ups) <= cellsMax {
			r.linesHosts, r.wide = 0, r.wide+4+up // all in one line
		} else {
			r.lines = r.linesHosts + (len(r.ups)+cellsMax-1)/cellsMax
			r.wide = max(r.wide, labelW+cell+4+up)
		}
		k.wide, k.high = max(k.wide, r.wide), k.high+r.lines*cellRow
	}
	if len(k.grid) > 0 {
		k.wide, k.high = max(8*len(k.title), min(len(k.grid), cellsMax)*cell), k.high+(len(k.grid)+cellsMax-1)/cellsMax*cellRow
	}
	k.wide = max(k.wide, 8*len(k.title))
}

// drawMap draws a cell per link, in the row of its lower switch: its upper half is the traffic up, its
// lower half that down to the hosts. A node has a square before its name.
func (f *fabric) drawMap(p *paint) string {
	lay := f.placeMap(p.nodes != nil)
	var cells []plot.HeatCell
	put := func(all [][4]float64, values []float64) {
		for k := range all {
			if all[k][2] > 0 {
				cells = append(cells, plot.HeatCell{At: all[k], Value: values[k]})
			}
		}
	}
	put(lay.Ways, p.ways)
	if p.nodes != nil {
		put(lay.Nodes, p.nodes)
	}
	texts := make([]plot.HeatText, len(lay.Texts))
	for i := range lay.Texts {
		t := &lay.Texts[i]
		texts[i] = plot.HeatText{X: t.X, Y: t.Y, Text: t.Text}
		if t.row != nil {
			texts[i].Wide, texts[i].High, texts[i].More = t.row.wide, t.row.lines*cellRow, f.rowLabel(p, t.row)
		}
	}
	h := p.heat(&lay)
	return h.Cells(cells, texts)
}

// rowLabel returns the label of a row of the map: its largest values.
func (f *fabric) rowLabel(p *paint, r *mapRow) string {
	best, which := 0.0, ""
	for _, l := range slices.Concat(r.hosts, r.ups) {
		for k := 2 * l; k <= 2*l+1; k++ {
			if p.ways[k] > best {
				best, which = p.ways[k], f.wayName(&f.ways[k])
			}
		}
	}
	text := f.g.Nodes[r.node].Name
	if which != "" {
		text += fmt.Sprintf(": most on %s, %s %s", which, plot.Figure(best), p.unit)
	}
	if p.nodes != nil && p.nodes[r.node] > 0 {
		text += fmt.Sprintf("; itself %s", plot.Figure(p.nodes[r.node]))
	}
	return text
}
