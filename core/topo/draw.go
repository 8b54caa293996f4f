// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"fmt"
	"html"
	"io"
	"strings"
)

// Formats of Draw.
const (
	FormatSVG     = "svg"
	FormatDOT     = "dot"
	FormatMermaid = "mermaid"
)

// Draw writes a picture of the graph in the given format: svg (a complete image), dot (for Graphviz)
// or mermaid (for Markdown). Another format is an error.
func (g *Graph) Draw(w io.Writer, format, title string) error {
	switch format {
	case FormatSVG:
		return g.drawSVG(w, title)
	case FormatDOT:
		return g.drawDOT(w, title)
	case FormatMermaid:
		return g.drawMermaid(w, title)
	}
	return fmt.Errorf("no drawing format %q: use svg, dot or mermaid", format)
}

// tiers returns the nodes of each tier, hosts first.
func (g *Graph) tiers() [][]int {
	var rows [][]int
	for i := range g.Nodes {
		t := int(g.Nodes[i].Tier)
		for len(rows) <= t {
			rows = append(rows, nil)
		}
		rows[t] = append(rows[t], i)
	}
	return rows
}

// bundle is the n parallel links between two neighbours, which are drawn as one line.
type bundle struct{ a, b, n int }

func (g *Graph) bundles() []bundle {
	var all []bundle
	at := map[[2]int]int{}
	for i := range g.Links {
		k := [2]int{g.Links[i].A.Node, g.Links[i].B.Node}
		if j, ok := at[k]; ok {
			all[j].n++
			continue
		}
		at[k] = len(all)
		all = append(all, bundle{k[0], k[1], 1})
	}
	return all
}

// Measures of the SVG, in pixels.
const (
	svgBoxH   = 24
	svgRow    = 110
	svgGap    = 12
	svgMargin = 24
	svgTop    = 56
	svgChar   = 7.4
)

// drawSVG lays the tiers out in rows, with the highest tier on top, and centres each row.
func (g *Graph) drawSVG(w io.Writer, title string) error {
	rows := g.tiers()
	boxW := make([]float64, len(rows))
	width := 480.0
	for t, row := range rows {
		for _, i := range row {
			boxW[t] = max(boxW[t], float64(len(g.Nodes[i].Name))*svgChar+14)
		}
		width = max(width, float64(len(row))*(boxW[t]+svgGap)-svgGap)
	}
	x := make([]float64, len(g.Nodes))
	y := make([]float64, len(g.Nodes))
	for t, row := range rows {
		pitch := width / float64(max(1, len(row)))
		for k, i := range row {
			x[i] = svgMargin + pitch*(float64(k)+0.5)
			y[i] = float64(svgTop + (len(rows)-1-t)*svgRow)
		}
	}
	var b strings.Builder
	h := svgTop + (len(rows)-1)*svgRow + svgBoxH + svgMargin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %.0f %d" font-family="ui-monospace, Menlo, monospace" font-size="12">`+"\n",
		width+2*svgMargin, h, width+2*svgMargin, h)
	fmt.Fprintf(&b, "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n", html.EscapeString(title))
	fmt.Fprintf(&b, `<text x="%d" y="28" font-size="15" fill="#1f2937">%s</text>`+"\n", svgMargin, html.EscapeString(title))
	b.WriteString("<g stroke=\"#94a3b8\">\n")
	for _, l := range g.bundles() {
		top, bottom := l.a, l.b
		if y[top] > y[bottom] {
			top, bottom = bottom, top
		}
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke-width="%.1f"/>`+"\n",
			x[top], y[top]+svgBoxH, x[bottom], y[bottom], 1+0.6*float64(l.n-1))
	}
	b.WriteString("</g>\n")
	fills := [...]string{"#dbeafe", "#dcfce7", "#fef9c3", "#fee2e2"}
	for t, row := range rows {
		for _, i := range row {
			fmt.Fprintf(&b, `<g><title>%s</title><rect x="%.1f" y="%.1f" width="%.1f" height="%d" rx="5" fill="%s" stroke="#475569"/>`,
				html.EscapeString(g.tooltip(i)), x[i]-boxW[t]/2, y[i], boxW[t], svgBoxH, fills[min(t, len(fills)-1)])
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle" fill="#111827">%s</text></g>`+"\n",
				x[i], y[i]+16, html.EscapeString(g.Nodes[i].Name))
		}
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (g *Graph) tooltip(i int) string {
	return fmt.Sprintf("%s %v, %d ports", g.Nodes[i].Name, g.Addr(g.Nodes[i].IP), len(g.Nodes[i].Links))
}

func (g *Graph) drawDOT(w io.Writer, title string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "graph %q {\n  rankdir=BT;\n  node [shape=box style=rounded fontname=monospace];\n", title)
	for _, row := range g.tiers() {
		b.WriteString("  { rank=same;")
		for _, i := range row {
			fmt.Fprintf(&b, " %q;", g.Nodes[i].Name)
		}
		b.WriteString(" }\n")
	}
	for i := range g.Links {
		l := &g.Links[i]
		fmt.Fprintf(&b, "  %q -- %q [taillabel=%d headlabel=%d];\n", g.Nodes[l.A.Node].Name, g.Nodes[l.B.Node].Name, l.A.Port, l.B.Port)
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (g *Graph) drawMermaid(w io.Writer, title string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "---\ntitle: %q\n---\ngraph BT\n", title)
	for _, l := range g.bundles() {
		edge := "---"
		if l.n > 1 {
			edge = fmt.Sprintf("---|x%d|", l.n)
		}
		fmt.Fprintf(&b, "  %s %s %s\n", mermaidID(g.Nodes[l.a].Name), edge, mermaidID(g.Nodes[l.b].Name))
	}
	for i := range g.Nodes {
		fmt.Fprintf(&b, "  %s[%q]\n", mermaidID(g.Nodes[i].Name), g.Nodes[i].Name)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// mermaidID turns a name into a Mermaid identifier. The word "end" and hyphens are not allowed in
// one.
func mermaidID(name string) string { return "n_" + strings.ReplaceAll(name, "-", "_") }
