// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// Heat shows values by colour on a drawing of a network: those of the directions of its links, and of its nodes.
// Coordinates are those of the drawing, below the title and the key of colours.
type Heat struct {
	Title string
	Unit  string
	Key   string  // in place of the key of colours
	High  float64 // of the drawing
	Top   float64 // the value with the last colour
}

// HeatLine is a direction of a link: both ends, and what it is called.
type HeatLine struct {
	At    [4]float64
	Value float64
	Name  string
}

// HeatBox is a node: x, y, width and height, its name, and the label in it.
type HeatBox struct {
	At    [4]float64
	Value float64
	Name  string
	X, Y  float64
	Text  string
}

// HeatCell is a direction of a link, or a node, where there is no room for lines: x, y, width and height.
type HeatCell struct {
	At    [4]float64
	Value float64
}

// HeatText is a text beside cells. One with a size is of a row, and says more when it is pointed at.
type HeatText struct {
	X, Y       float64
	Text       string
	Wide, High int
	More       string
}

const (
	shades  = 6  // colours beside that of 0
	heatTop = 64 // title and key
)

// shade returns the colour of a value: 0 for 0, and else 1 to shades.
func (h *Heat) shade(v float64) int {
	if v <= 0 || h.Top <= 0 {
		return 0
	}
	return min(shades, max(1, int(math.Ceil(v/h.Top*shades))))
}

// open begins a picture with its title and the key of its colours.
func (h *Heat) open(b *strings.Builder) {
	openPage(b, heatTop+int(h.High), h.Title)
	if h.Key != "" {
		fmt.Fprintf(b, `<text x="4" y="40">%s</text>`+"\n", html.EscapeString(h.Key))
		return
	}
	x := 4
	for k := range shades + 1 {
		text := "0"
		if k > 0 {
			text = "to " + Figure(h.Top*float64(k)/shades)
		}
		if k == shades {
			text += " " + h.Unit
		}
		fmt.Fprintf(b, `<rect class="f%d" x="%d" y="30" width="16" height="12"/><text x="%d" y="40">%s</text>`+"\n", k, x, x+21, html.EscapeString(text))
		x += 36 + 8*len(text)
	}
}

// Links draws a line for each direction of a link, and the nodes above them.
func (h *Heat) Links(lines []HeatLine, boxes []HeatBox) string {
	var b strings.Builder
	h.open(&b)
	for i := range lines {
		l := &lines[i]
		fmt.Fprintf(&b, `<path class="s%d" d="M%.1f %.1fL%.1f %.1f"><title>%s: %s %s</title></path>`+"\n", h.shade(l.Value), l.At[0], l.At[1]+heatTop, l.At[2], l.At[3]+heatTop,
			html.EscapeString(l.Name), Figure(l.Value), html.EscapeString(h.Unit))
	}
	for i := range boxes {
		x := &boxes[i]
		class, said := "box", ""
		if x.Value > 0 {
			class, said = fmt.Sprintf("box b%d", h.shade(x.Value)), fmt.Sprintf(": %s %s", Figure(x.Value), h.Unit)
		}
		fmt.Fprintf(&b, `<g><title>%s</title><rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.0f" rx="4"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text></g>`+"\n",
			html.EscapeString(x.Name+said), class, x.At[0], x.At[1]+heatTop, x.At[2], x.At[3], x.X, x.Y+heatTop, html.EscapeString(x.Text))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// Cells draws a cell for each direction of a link and for each node, one path of each colour: a large lab has 49,152
// directions.
func (h *Heat) Cells(cells []HeatCell, texts []HeatText) string {
	paths := make([][]byte, shades+1)
	for i := range cells {
		at := &cells[i].At
		c := &paths[h.shade(cells[i].Value)]
		for i, n := range [...]float64{at[0], at[1] + heatTop, at[2], at[3], at[2]} { // as fmt would with %.0f
			*c = strconv.AppendInt(append(*c, [...]string{"M", " ", "h", "v", "h-"}[i]...), int64(math.RoundToEven(n)), 10)
		}
		*c = append(*c, 'z')
	}
	var b strings.Builder
	h.open(&b)
	for k := range paths {
		if len(paths[k]) > 0 {
			fmt.Fprintf(&b, `<path class="f%d" d="%s"/>`+"\n", k, paths[k])
		}
	}
	for i := range texts {
		t := &texts[i]
		if t.Wide == 0 {
			fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" font-weight="600">%s</text>`+"\n", t.X, t.Y+heatTop, html.EscapeString(t.Text))
			continue
		}
		fmt.Fprintf(&b, `<g><title>%s</title><text class="sm" x="%.0f" y="%.0f">%s</text><rect x="%.0f" y="%.0f" width="%d" height="%d" fill-opacity="0"/></g>`+"\n",
			html.EscapeString(t.More), t.X, t.Y+heatTop, html.EscapeString(t.Text), t.X, t.Y+heatTop-8, t.Wide, t.High)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
