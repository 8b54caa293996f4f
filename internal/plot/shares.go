// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"fmt"
	"html"
	"strings"
)

// Shares is a picture with a bar per row, all of the same length, divided into parts.
type Shares struct {
	Name, Title string // Name is the accessible name, for screen readers
	Parts       []Part
	Rows        []ShareRow
}

// Part is one of the parts that each bar has, and its colour.
type Part struct{ Name, Color string }

// ShareRow is a bar: what each part has of all. Text is written after it.
type ShareRow struct {
	Name  string
	Parts []float64
	All   float64
	Text  string
}

// SVG draws the bars.
func (s *Shares) SVG() string {
	const left, right, step, tall = 250, 110, 24, 16
	var b strings.Builder
	openNamed(&b, 62+len(s.Rows)*step, s.Name, s.Title)
	x := 4
	for _, p := range s.Parts {
		fmt.Fprintf(&b, `<rect fill="%s" x="%d" y="30" width="14" height="12"/><text x="%d" y="41">%s</text>`, p.Color, x, x+19, p.Name)
		x += 36 + 8*len(p.Name)
	}
	for i := range s.Rows {
		row, y := &s.Rows[i], 56+i*step
		fmt.Fprintf(&b, "\n"+`<text x="%d" y="%d" text-anchor="end">%s</text>`, left-8, y+13, html.EscapeString(row.Name))
		at := float64(left)
		for k, p := range s.Parts {
			wide := row.Parts[k] / row.All * (PageWidth - left - right)
			if wide <= 0 {
				continue
			}
			fmt.Fprintf(&b, `<rect fill="%s" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s %.1f %%</title></rect>`, p.Color, at, y, wide, tall, p.Name, 100*row.Parts[k]/row.All)
			at += wide
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`, PageWidth-right+8, y+13, html.EscapeString(row.Text))
	}
	b.WriteString("</svg>\n")
	return b.String()
}
