// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Timeline is a picture of strips above each other over one axis of time, and of when something was on below them.
type Timeline struct {
	Title  string
	X      string               // what the axis shows
	Step   float64              // of time, to which a strip has one value
	Steps  int                  // in all
	Label  func(float64) string // of a time
	Strips []Strip
	Bands  []Band
	More   string // below the bands, of those that are left out
}

// Strip is a line of a timeline. It has a value for each step.
type Strip struct {
	Name, Unit string
	Ys         []float64
	Color      string
}

// Band holds the spans in which a fault or state was on, each from and to. Said is its whole name, which a
// pointer shows.
type Band struct {
	Name, Said string
	On         [][2]float64
}

// Measures of a timeline.
const (
	timeLeft, timeRight = 170, 16
	timeTop             = 30
	stripHigh, stripGap = 56, 14
	bandHigh            = 18
)

func (t *Timeline) end() float64 { return float64(t.Steps) * t.Step }

// at returns where a time is.
func (t *Timeline) at(v float64) float64 {
	return timeLeft + v/t.end()*(PageWidth-timeLeft-timeRight)
}

// SVG draws the timeline.
func (t *Timeline) SVG() string {
	bottom := timeTop + len(t.Strips)*(stripHigh+stripGap)
	total := bottom + len(t.Bands)*bandHigh + 44
	if t.More != "" {
		total += bandHigh
	}
	var b strings.Builder
	openPage(&b, total, t.Title)
	for k := range t.Bands { // behind everything else: what was on when
		for _, s := range t.Bands[k].On {
			fmt.Fprintf(&b, `<rect class="band" x="%.1f" y="30" width="%.1f" height="%d"/>`, t.at(s[0]), max(1, t.at(s[1])-t.at(s[0])), bottom-timeTop)
		}
	}
	for i := range t.Strips {
		t.drawStrip(&b, &t.Strips[i], timeTop+i*(stripHigh+stripGap))
	}
	y := bottom
	for k := range t.Bands {
		s := &t.Bands[k]
		fmt.Fprintf(&b, `<g><title>%s</title><text class="sm" x="4" y="%d">%s</text>`, html.EscapeString(s.Said), y+11, html.EscapeString(s.Name))
		for _, w := range s.On {
			fmt.Fprintf(&b, `<rect class="on" x="%.1f" y="%d" width="%.1f" height="10"/>`, t.at(w[0]), y+2, max(2, t.at(w[1])-t.at(w[0])))
		}
		b.WriteString("</g>\n")
		y += bandHigh
	}
	if t.More != "" {
		fmt.Fprintf(&b, `<text class="sm" x="4" y="%d">%s</text>`, y+11, html.EscapeString(t.More))
		y += bandHigh
	}
	t.drawTimes(&b, y)
	return b.String()
}

// drawStrip draws a strip, from y on.
func (t *Timeline) drawStrip(b *strings.Builder, s *Strip, y int) {
	top := slices.Max(s.Ys)
	fmt.Fprintf(b, `<text x="4" y="%d">%s</text><text class="sm" x="4" y="%d">up to %s %s</text>`+"\n", y+stripHigh/2, html.EscapeString(s.Name), y+stripHigh/2+16, Figure(top), s.Unit)
	fmt.Fprintf(b, `<path class="g" d="M%d %dH%d"/>`, timeLeft, y+stripHigh, PageWidth-timeRight)
	var path strings.Builder
	for i, v := range s.Ys {
		if v > 0 && top > 0 {
			tall := max(1, v/top*stripHigh)
			foot := float64(y + stripHigh)
			fmt.Fprintf(&path, "M%.1f %.1fV%.1fH%.1fV%.1fz", t.at(float64(i)*t.Step), foot, foot-tall, t.at(float64(i+1)*t.Step), foot)
		}
	}
	fmt.Fprintf(b, `<path fill="%s" d="%s"/>`+"\n", s.Color, path.String())
}

// drawTimes draws the axis, from y on, and ends the picture.
func (t *Timeline) drawTimes(b *strings.Builder, y int) {
	end := t.end()
	step := math.Pow(10, math.Floor(math.Log10(end/4)))
	for _, k := range []float64{1, 2, 5, 10} {
		if end/(step*k) <= 8 {
			step *= k
			break
		}
	}
	for v := 0.0; v <= end; v += step {
		half := float64(len(t.Label(v))) * 7 / 2 // a label at the end stays inside
		fmt.Fprintf(b, `<text class="sm" x="%.1f" y="%d" text-anchor="middle">%s</text>`, min(t.at(v), PageWidth-2-half), y+16, t.Label(v))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">%s</text></svg>`+"\n", (timeLeft+PageWidth-timeRight)/2, y+36, html.EscapeString(t.X))
}
