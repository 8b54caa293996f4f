package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mcastlab/mcastlab/core/topo"
)

// paint is what a picture of the topology shows by colour, by direction of a link and by node.
type paint struct {
	title string
	unit  string
	ways  []float64
	nodes []float64 // nil: nodes are not coloured
	key   string    // in place of the key of colours
}

// shades is the number of colours beside that of 0.
const shades = 6

// top returns the largest value.
func (p *paint) top() (top float64) {
	for _, v := range slices.Concat(p.ways, p.nodes) {
		top = max(top, v)
	}
	return top
}

// shade returns the colour of a value: 0 for 0, and else 1 to shades.
func shade(v, top float64) int {
	if v <= 0 || top <= 0 {
		return 0
	}
	return min(shades, max(1, int(math.Ceil(v/top*shades))))
}

// Measures of the pictures, in their own units.
const (
	picWidth = 960
	picTop   = 64 // title and key
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

// open begins a picture with its title and the key of its colours.
func (p *paint) open(b *strings.Builder, height int) {
	fmt.Fprintf(b, `<svg class="topo" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n", picWidth, height, html.EscapeString(p.title))
	fmt.Fprintf(b, `<text x="4" y="16" font-weight="600">%s</text>`+"\n", html.EscapeString(p.title))
	if p.key != "" {
		fmt.Fprintf(b, `<text x="4" y="40">%s</text>`+"\n", html.EscapeString(p.key))
		return
	}
	top, x := p.top(), 4
	for k := range shades + 1 {
		text := "0"
		if k > 0 {
			text = "to " + figure(top*float64(k)/shades)
		}
		if k == shades {
			text += " " + p.unit
		}
		fmt.Fprintf(b, `<rect class="f%d" x="%d" y="30" width="16" height="12"/><text x="%d" y="40">%s</text>`+"\n", k, x, x+21, html.EscapeString(text))
		x += 36 + 8*len(text)
	}
}

// figure returns a value with three digits.
func figure(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
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

// drawLinks draws nodes in rows by tier, and each link as two lines: that on the right in the
// direction of travel is what is sent there.
func (f *fabric) drawLinks(p *paint) string {
	var b strings.Builder
	lay := f.placeLinks()
	p.open(&b, picTop+int(lay.High))
	top := p.top()
	for k := range f.ways {
		at := lay.Ways[k]
		fmt.Fprintf(&b, `<path class="s%d" d="M%.1f %.1fL%.1f %.1f"><title>%s: %s %s</title></path>`+"\n", shade(p.ways[k], top), at[0], at[1]+picTop, at[2], at[3]+picTop,
			html.EscapeString(f.wayName(&f.ways[k])), figure(p.ways[k]), html.EscapeString(p.unit))
	}
	for i := range f.g.Nodes {
		class, said := "box", ""
		if p.nodes != nil && p.nodes[i] > 0 {
			class, said = fmt.Sprintf("box b%d", shade(p.nodes[i], top)), fmt.Sprintf(": %s %s", figure(p.nodes[i]), p.unit)
		}
		at, name := lay.Nodes[i], &lay.Texts[i]
		fmt.Fprintf(&b, `<g><title>%s</title><rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%d" rx="4"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text></g>`+"\n",
			html.EscapeString(f.g.Nodes[i].Name+said), class, at[0], at[1]+picTop, at[2], boxH, name.X, name.Y+picTop, html.EscapeString(name.Text))
	}
	b.WriteString("</svg>\n")
	return b.String()
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

// measure works out how much room a block takes.
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

// drawMap draws a cell per link, in the row of its lower switch: its upper half is what goes up,
// its lower half what goes down to the hosts. A node has a square before its name.
func (f *fabric) drawMap(p *paint) string {
	var body strings.Builder
	cells := make([][]byte, shades+1)
	top := p.top()
	put := func(v float64, at [4]float64) { // as fmt would with %.0f: a large lab has 49,152 ways
		c := &cells[shade(v, top)]
		for i, n := range [...]float64{at[0], at[1] + picTop, at[2], at[3], at[2]} {
			*c = strconv.AppendInt(append(*c, [...]string{"M", " ", "h", "v", "h-"}[i]...), int64(math.RoundToEven(n)), 10)
		}
		*c = append(*c, 'z')
	}
	lay := f.placeMap(p.nodes != nil)
	for k := range lay.Ways {
		if lay.Ways[k][2] > 0 {
			put(p.ways[k], lay.Ways[k])
		}
	}
	if p.nodes != nil {
		for i := range lay.Nodes {
			if lay.Nodes[i][2] > 0 {
				put(p.nodes[i], lay.Nodes[i])
			}
		}
	}
	for i := range lay.Texts {
		t := &lay.Texts[i]
		if t.row == nil {
			fmt.Fprintf(&body, `<text x="%.0f" y="%.0f" font-weight="600">%s</text>`+"\n", t.X, t.Y+picTop, html.EscapeString(t.Text))
			continue
		}
		fmt.Fprintf(&body, `<g><title>%s</title><text class="sm" x="%.0f" y="%.0f">%s</text><rect x="%.0f" y="%.0f" width="%d" height="%d" fill-opacity="0"/></g>`+"\n",
			html.EscapeString(f.told(p, t.row)), t.X, t.Y+picTop, html.EscapeString(t.Text), t.X, t.Y+picTop-8, t.row.wide, t.row.lines*cellRow)
	}
	var b strings.Builder
	p.open(&b, picTop+int(lay.High))
	for k := range cells {
		if len(cells[k]) > 0 {
			fmt.Fprintf(&b, `<path class="f%d" d="%s"/>`+"\n", k, cells[k])
		}
	}
	b.WriteString(body.String() + "</svg>\n")
	return b.String()
}

// told says what a row of the map shows: its largest values.
func (f *fabric) told(p *paint, r *mapRow) string {
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
		text += fmt.Sprintf(": most on %s, %s %s", which, figure(best), p.unit)
	}
	if p.nodes != nil && p.nodes[r.node] > 0 {
		text += fmt.Sprintf("; itself %s", figure(p.nodes[r.node]))
	}
	return text
}
