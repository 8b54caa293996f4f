// SPDX-License-Identifier: Apache-2.0

// Package plot draws series of points as SVG: lines over an axis of numbers, or bars over one of names. A picture
// stands for itself, needs no font, script or network, and follows the reader's choice of light or dark.
package plot

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Picture describes a picture to draw.
type Picture struct {
	Title, X, Y string // X and Y are the labels of the axes
	LogX, LogY  bool
	Bars        bool
	At          []string  // the points of the x axis, as they are written there
	Xs          []float64 // and where they are; of bars it does not matter
	Series      []Series
	Marks       []Mark
}

// Series is a line of a picture, or its bars of one colour. Ys is by point, NaN where there is none. Half is half of the
// interval about each, drawn as an error bar, and NaN where there is none; nil: nowhere.
type Series struct {
	Name string
	Ys   []float64
	Half []float64
}

// Mark is a point of its own, which belongs to no series.
type Mark struct {
	Name string
	At   string // one of the picture's points; a mark elsewhere is left out
	Y    float64
}

// CSV returns the points: one line per point of the x axis, one column per series.
func (p *Picture) CSV() string {
	var b strings.Builder
	b.WriteString(quoted(p.X))
	for k := range p.Series {
		b.WriteString("," + quoted(p.Series[k].Name))
		if p.Series[k].Half != nil {
			b.WriteString("," + quoted(p.Series[k].Name+" +-"))
		}
	}
	b.WriteByte('\n')
	for i, at := range p.At {
		b.WriteString(quoted(at))
		for k := range p.Series {
			b.WriteString("," + cell(p.Series[k].Ys[i]))
			if p.Series[k].Half != nil {
				b.WriteString("," + cell(p.Series[k].Half[i]))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func cell(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

func quoted(s string) string {
	if strings.ContainsAny(s, ",\"\n") {
		return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
	}
	return s
}

// The layout of a picture, in its own units.
const (
	width, height           = 640, 380
	left, right, top, under = 74, 16, 34, 46 // of the plotted area
	keyHeight               = 20             // of a line of the key
)

// axis maps values to positions.
type axis struct {
	from, to   float64
	begin, end float64
	log        bool
}

func newAxis(values []float64, log bool, begin, end float64, zero bool) axis {
	a := axis{from: math.Inf(1), to: math.Inf(-1), begin: begin, end: end, log: log}
	for _, v := range values {
		if !math.IsNaN(v) && (!log || v > 0) {
			a.from, a.to = min(a.from, v), max(a.to, v)
		}
	}
	if a.from > a.to {
		a.from, a.to = 1, 10
	}
	switch {
	case log:
		a.from, a.to = math.Pow(10, math.Floor(math.Log10(a.from)+1e-9)), math.Pow(10, math.Ceil(math.Log10(a.to)-1e-9))
		if a.from == a.to {
			a.to *= 10
		}
	case zero:
		a.from, a.to = min(a.from, 0), max(a.to, 0)
		a.to += 0.06 * (a.to - a.from)
	}
	if a.from == a.to {
		a.to++
	}
	return a
}

func (a *axis) at(v float64) float64 {
	from, to := a.from, a.to
	if a.log {
		from, to, v = math.Log10(from), math.Log10(to), math.Log10(v)
	}
	return a.begin + (v-from)/(to-from)*(a.end-a.begin)
}

// ticks returns values for labels: powers of ten, or steps of 1, 2 or 5.
func (a *axis) ticks() (all []float64) {
	if a.log {
		every := math.Ceil(math.Log10(a.to/a.from) / 8)
		for e := math.Round(math.Log10(a.from)); e <= math.Log10(a.to)+1e-9; e += every {
			all = append(all, math.Pow(10, e))
		}
		return all
	}
	step := math.Pow(10, math.Floor(math.Log10((a.to-a.from)/4)))
	for _, f := range []float64{1, 2, 5, 10} {
		if (a.to-a.from)/(step*f) <= 6 {
			step *= f
			break
		}
	}
	for v := math.Ceil(a.from/step) * step; v <= a.to+step*1e-9; v += step {
		all = append(all, math.Round(v/step)*step)
	}
	return all
}

// colors are those of the series, distinct in light and in dark mode, and by dashes and shapes besides.
func color(k int) string {
	return [...]string{"#2563eb", "#c2410c", "#15803d", "#7c3aed", "#b45309", "#0e7490", "#be185d", "#4d7c0f"}[k%8]
}

// dotsMax is the largest number of points that a line marks; with more only the line is drawn.
const dotsMax = 80

func dash(k int) string { return [...]string{"", "6 3", "2 3", "8 3 2 3"}[k%4] }

// SVG draws the points. The file stands for itself, and follows the reader's choice of light or dark.
func (p *Picture) SVG() string {
	var b strings.Builder
	columns := p.columns()
	rows := (len(p.Series) + len(p.marks()) + columns - 1) / columns
	total := height + p.foot() + rows*keyHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n", width, total, html.EscapeString(p.Title))
	b.WriteString("<style>text{font:13px system-ui,sans-serif;fill:#1f2937}.g{stroke:#d1d5db}.a{stroke:#4b5563}.p{fill:#fff}" +
		"@media(prefers-color-scheme:dark){text{fill:#e5e7eb}.g{stroke:#374151}.a{stroke:#9ca3af}.p{fill:#111827}}</style>\n")
	fmt.Fprintf(&b, `<rect class="p" width="%d" height="%d"/>`+"\n", width, total)
	fmt.Fprintf(&b, `<text x="%d" y="20" font-weight="600">%s</text>`+"\n", left, html.EscapeString(p.Title))
	x, y := p.axes()
	p.drawAxes(&b, &x, &y)
	for k := range p.Series {
		p.drawSeries(&b, k, &x, &y)
		p.drawIntervals(&b, k, &x, &y)
	}
	for _, m := range p.marks() {
		i := p.index(m.At)
		fmt.Fprintf(&b, `<path d="M%.1f %.1fl6 6 -6 6 -6 -6z" fill="none" stroke="#dc2626" stroke-width="2"/>`+"\n", x.at(p.x(i)), y.at(m.Y)-6)
	}
	p.drawKey(&b)
	b.WriteString("</svg>\n")
	return b.String()
}

// room returns the length of a text along its line, or a little less.
func room(s string) int {
	const letter = 7
	return utf8.RuneCountInString(s) * letter
}

// columns returns the number of names of the key that stand side by side: two, unless one of them is too long
// for that.
func (p *Picture) columns() int {
	longest := 0
	for k := range p.Series {
		longest = max(longest, room(p.Series[k].Name))
	}
	for _, m := range p.marks() {
		longest = max(longest, room(m.Name))
	}
	if longest > (width-left-right)/2-28 {
		return 1
	}
	return 2
}

// foot returns the height of bars' names below the axis when they stand aslant because they do not fit side
// by side.
func (p *Picture) foot() int {
	longest := 0
	for _, at := range p.At {
		longest = max(longest, room(at))
	}
	if !p.Bars || longest < (width-left-right)/max(1, len(p.At)) {
		return 0
	}
	return min(longest, 200) * 57 / 100 // the sine of 35 degrees
}

// marks are those that the picture has a place for.
func (p *Picture) marks() (all []Mark) {
	for _, m := range p.Marks {
		if p.index(m.At) >= 0 && (!p.LogY || m.Y > 0) {
			all = append(all, m)
		}
	}
	return all
}

// x returns where point i is on the x axis.
func (p *Picture) x(i int) float64 {
	if p.Bars {
		return float64(i)
	}
	return p.Xs[i]
}

func (p *Picture) index(at string) int {
	for i, x := range p.At {
		if x == at {
			return i
		}
	}
	return -1
}

func (p *Picture) axes() (x, y axis) {
	var ys []float64
	for k := range p.Series {
		ys = append(ys, p.Series[k].Ys...)
		for i := range p.Series[k].Half {
			low, high := p.Series[k].interval(i)
			ys = append(ys, low, high)
		}
	}
	for _, m := range p.marks() {
		ys = append(ys, m.Y)
	}
	y = newAxis(ys, p.LogY, height-under, top, true)
	if p.Bars {
		return axis{from: -0.5, to: float64(len(p.At)) - 0.5, begin: left, end: width - right}, y
	}
	x = newAxis(p.Xs, false, left, width-right, false)
	if x.log = p.LogX && x.from > 0; x.log { // sizes are powers of two: the axis ends where the points do
		x.from, x.to = x.from/1.15, x.to*1.15
	}
	return x, y
}

func (p *Picture) drawAxes(b *strings.Builder, x, y *axis) {
	for _, v := range y.ticks() {
		at := y.at(v)
		fmt.Fprintf(b, `<path class="g" d="M%d %.1fH%d"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", left, at, width-right, left-6, at+4, tick(v))
	}
	every, first := p.labels()
	free := 0 // up to here the line of labels is taken
	for i, at := range p.At {
		if (i-first)%every != 0 && !p.Bars {
			continue
		}
		if p.foot() > 0 {
			fmt.Fprintf(b, `<text transform="translate(%.1f %d) rotate(-35)" text-anchor="end">%s</text>`+"\n", x.at(p.x(i))+4, height-under+14, html.EscapeString(at))
			continue
		}
		half := float64(room(at)) * 4 / 7 // of wide letters
		middle := min(x.at(p.x(i)), width-2-half)
		if !p.Bars && middle-half < float64(free) {
			continue // two points lie close to each other, and one of them has its label
		}
		free = int(middle+half) + 4
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", middle, height-under+18, html.EscapeString(at))
	}
	fmt.Fprintf(b, `<path class="a" fill="none" d="M%d %dV%dH%d"/>`+"\n", left, top, height-under, width-right)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", (left+width-right)/2, height-8+p.foot(), html.EscapeString(p.X))
	fmt.Fprintf(b, `<text transform="translate(16 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (top+height-under)/2, html.EscapeString(p.Y))
}

// labels returns the number of points of the x axis that share one label, and a point that has one. Of many points,
// which are consecutive numbers, it is every tenth, twentieth, fiftieth and so on.
func (p *Picture) labels() (every, first int) {
	every = max(1, (len(p.At)+7)/8)
	if len(p.At) <= dotsMax {
		return every, 0
	}
	for step := 10; ; step *= 10 {
		for _, f := range []int{1, 2, 5} {
			if step*f >= every {
				return step * f, step*f - 1
			}
		}
	}
}

// tick returns the label of a tick.
func tick(v float64) string {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 12, 64), 64) // 0.6, which steps of 0.2 reach only nearly
	if abs := math.Abs(v); abs >= 1e6 || abs > 0 && abs < 1e-3 {
		return strings.NewReplacer("e+0", "e", "e-0", "e-", "e+", "e").Replace(strconv.FormatFloat(v, 'e', -1, 64))
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

func (p *Picture) drawSeries(b *strings.Builder, k int, x, y *axis) {
	if p.Bars {
		step := x.at(1) - x.at(0)
		wide := step * 0.8 / float64(len(p.Series))
		for i, v := range p.Series[k].Ys {
			if math.IsNaN(v) || p.LogY && v <= 0 {
				continue
			}
			base := y.begin
			if !p.LogY {
				base = y.at(0)
			}
			at := y.at(v)
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n",
				x.at(p.x(i))-step*0.4+float64(k)*wide, min(at, base), wide*0.94, math.Abs(base-at), color(k))
		}
		return
	}
	var path strings.Builder
	pen := "M"
	for i, v := range p.Series[k].Ys {
		if math.IsNaN(v) || p.LogY && v <= 0 {
			pen = "M"
			continue
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", pen, x.at(p.x(i)), y.at(v))
		pen = "L"
		if len(p.Series[k].Ys) <= dotsMax {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x.at(p.x(i)), y.at(v), color(k))
		}
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`+"\n", path.String(), color(k), dash(k))
}

// drawKey writes the names of the series and of the marks below the picture.
func (p *Picture) drawKey(b *strings.Builder) {
	columns := p.columns()
	at := func(i int) (x, y int) {
		return left + i%columns*(width-left-right)/2, height + p.foot() + 12 + i/columns*keyHeight
	}
	for k := range p.Series {
		x, y := at(k)
		fmt.Fprintf(b, `<path d="M%d %dh22" stroke="%s" stroke-width="3" stroke-dasharray="%s"/><text x="%d" y="%d">%s</text>`+"\n",
			x, y-4, color(k), dash(k), x+28, y, html.EscapeString(p.Series[k].Name))
	}
	for i, m := range p.marks() {
		x, y := at(len(p.Series) + i)
		fmt.Fprintf(b, `<path d="M%d %dl5 5 -5 5 -5 -5z" fill="none" stroke="#dc2626" stroke-width="2"/><text x="%d" y="%d">%s</text>`+"\n",
			x+11, y-9, x+28, y, html.EscapeString(m.Name))
	}
}
