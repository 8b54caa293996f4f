// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/internal/plot"
)

// Layout has the places of nodes and links in the picture of a topology, below its title and key.
// Coordinates are those of a picture that is Wide across.
type Layout struct {
	Map   bool         `json:"map"` // links are cells, else lines
	Wide  float64      `json:"wide"`
	High  float64      `json:"high"`
	Ways  [][4]float64 `json:"ways"`  // by direction (way 2i of link i is from its A to its B): of a line both ends; of a cell x, y, width, height; no width: not drawn
	Nodes [][4]float64 `json:"nodes"` // x, y, width, height of a box or, on a map, a square; no width: not drawn
	Texts []Label      `json:"texts"`
}

// Label is a text of a Layout.
type Label struct {
	X    float64 `json:"x"`
	Y    float64 `json:"y"`
	Text string  `json:"text"`
	Kind string  `json:"kind"` // node (centred at X), title or row (both begin at X)

	row *mapRow
}

// Place lays a topology out as its page has it: nodes and links if they have room, else a map.
func Place(g *topo.Graph) Layout {
	f := &fabric{g: g}
	for i := range g.Links {
		k := &g.Links[i]
		f.ways = append(f.ways, way{from: k.A, to: k.B}, way{from: k.B, to: k.A})
	}
	if f.large() {
		return f.placeMap(true)
	}
	return f.placeLinks()
}

// placeLinks places nodes in rows by tier.
func (f *fabric) placeLinks() Layout {
	rows := f.tiers()
	lay := Layout{
		Wide: plot.PageWidth, High: float64((len(rows)-1)*tierStep + boxH + 12), Ways: make([][4]float64, len(f.ways)), Nodes: make([][4]float64, len(f.g.Nodes)),
	}
	x, y := make([]float64, len(f.g.Nodes)), make([]float64, len(f.g.Nodes))
	for t, row := range rows {
		pitch := float64(plot.PageWidth) / float64(len(row))
		for k, i := range row {
			wide := min(pitch-4, 84)
			x[i], y[i] = pitch*(float64(k)+0.5), float64((len(rows)-1-t)*tierStep)
			lay.Nodes[i] = [4]float64{x[i] - wide/2, y[i], wide, boxH}
		}
	}
	beside := map[[2]int]int{}
	for k := range f.ways {
		a, z := f.ways[k].from.Node, f.ways[k].to.Node
		beside[[2]int{a, z}]++
		x1, y1, x2, y2 := x[a], y[a]+boxH/2, x[z], y[z]+boxH/2
		if long := math.Hypot(x2-x1, y2-y1); long > 0 {
			off := 2 + 5*float64(beside[[2]int{a, z}]-1)
			dx, dy := -(y2-y1)/long*off, (x2-x1)/long*off
			x1, y1, x2, y2 = x1+dx, y1+dy, x2+dx, y2+dy
		}
		lay.Ways[k] = [4]float64{x1, y1, x2, y2}
	}
	for i := range f.g.Nodes {
		short := f.g.Nodes[i].Name
		if room := int((lay.Nodes[i][2] - 4) / 7); len(short) > room {
			short = short[:max(1, room-1)] + "…"
		}
		lay.Texts = append(lay.Texts, Label{X: x[i], Y: y[i] + 16, Text: short, Kind: "node"})
	}
	return lay
}

// placeMap places a cell per link, and before each row a square for its switch. Switches without cells have
// squares only, and are left out where squares are not wanted.
func (f *fabric) placeMap(squares bool) Layout {
	lay := Layout{Map: true, Wide: plot.PageWidth, Ways: make([][4]float64, len(f.ways)), Nodes: make([][4]float64, len(f.g.Nodes))}
	link := func(i, x, y int) {
		up, down := 2*i, 2*i+1
		if a, z := f.g.Links[i].A.Node, f.g.Links[i].B.Node; f.g.Nodes[a].Tier > f.g.Nodes[z].Tier {
			up, down = down, up
		}
		lay.Ways[up] = [4]float64{float64(x), float64(y), cell - 1, 4}
		lay.Ways[down] = [4]float64{float64(x), float64(y + 4), cell - 1, 4}
	}
	square := func(node, x, y int) { lay.Nodes[node] = [4]float64{float64(x), float64(y), cell - 1, cell} }
	x, y, high := 4, 0, 0
	for _, k := range f.blocks() {
		if len(k.grid) > 0 && !squares {
			continue // it would be empty
		}
		if x > 4 && x+k.wide > plot.PageWidth {
			x, y, high = 4, y+high+14, 0
		}
		lay.Texts = append(lay.Texts, Label{X: float64(x), Y: float64(y + 10), Text: k.title, Kind: "title"})
		at := y + 18
		for i := range k.rows {
			r := &k.rows[i]
			name := f.g.Nodes[r.node].Name
			if room := 9; len(name) > room {
				name = name[:room-1] + "…"
			}
			lay.Texts = append(lay.Texts, Label{X: float64(x), Y: float64(at + 8), Text: name, Kind: "row", row: r})
			square(r.node, x+labelW-2, at)
			left := x + labelW + cell + 4
			for j, l := range r.hosts {
				link(l, left+j%cellsMax*cell, at+j/cellsMax*cellRow)
			}
			if r.linesHosts == 0 && len(r.hosts) > 0 {
				left += len(r.hosts)*cell + 4
			}
			for j, l := range r.ups {
				link(l, left+j%cellsMax*cell, at+(r.linesHosts+j/cellsMax)*cellRow)
			}
			at += r.lines * cellRow
		}
		for j, node := range k.grid {
			square(node, x+j%cellsMax*cell, at+j/cellsMax*cellRow)
		}
		x, high = x+k.wide+16, max(high, k.high)
	}
	lay.High = float64(y + high + 8)
	return lay
}
