package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// bandsMax bounds how often a fault that comes again is drawn.
const bandsMax = 400

// strip is a line of the picture of a run's time.
type strip struct {
	name, unit string
	ys         []float64
	color      string
}

// time writes what a run did over its time: what came to hosts, events, and the faults beside them.
func (b *page) time(r *Run, prefix string) {
	f, h := r.fabric, r.history
	if f == nil || h == nil || f.spanUS <= 0 {
		return
	}
	var strips []strip
	if h.arrived != nil {
		strips = append(strips, strip{"data to hosts", "Gbit/s", h.arrived, "#2563eb"})
	}
	for _, kind := range shown() {
		if ys := h.counts[kind]; ys != nil {
			strips = append(strips, strip{kind, "events", ys, "#c2410c"})
		}
	}
	if len(strips) == 0 && len(f.faults) == 0 {
		return
	}
	b.text("h2", prefix+"over time")
	if h.arrived == nil {
		b.text("p", "How much data came to hosts is known of runs with trace: messages.")
	}
	b.picture(f.drawTime(h, strips))
	b.timeTable(f, h, strips)
}

// timeTable has the steps in which something happened: all if they are few, else those where the most did.
func (b *page) timeTable(f *fabric, h *history, strips []strip) {
	const most = 30
	head := []string{"from (us)"}
	for _, s := range strips {
		head = append(head, s.name+" ("+s.unit+")")
	}
	head = append(head, "faults on")
	var busy []int
	for i := range h.steps {
		if slices.ContainsFunc(strips, func(s strip) bool { return s.ys[i] > 0 }) {
			busy = append(busy, i)
		}
	}
	left := len(busy) - most
	var rows [][]string
	for _, i := range busy[:min(len(busy), most)] {
		from := float64(i) * h.stepUS
		row := []string{number(from)}
		for _, s := range strips {
			row = append(row, number(s.ys[i]))
		}
		on := 0
		for k := range f.faults {
			if slices.ContainsFunc(f.bands(k, bandsMax), func(s span) bool { return s.from < from+h.stepUS && s.to >= from }) {
				on++
			}
		}
		rows = append(rows, append(row, fmt.Sprint(on)))
	}
	if len(rows) > 0 {
		b.table(head, rows)
	}
	if left > 0 {
		b.text("p", fmt.Sprintf("%d later steps of %v us with something in them are in the picture and in the run's files.", left, h.stepUS))
	}
}

// drawTime draws strips above each other over one axis of lab time, and below them when faults were on.
func (f *fabric) drawTime(h *history, strips []strip) string {
	const left, right, high, gap, faultHigh, faultsMax = 170, 16, 56, 14, 18, 24
	all := f.faults[:min(len(f.faults), faultsMax)]
	total := 30 + len(strips)*(high+gap) + len(all)*faultHigh + 44
	if len(f.faults) > faultsMax {
		total += faultHigh
	}
	var b strings.Builder
	title := fmt.Sprintf("The run in steps of %v us", h.stepUS)
	fmt.Fprintf(&b, `<svg class="topo" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n", picWidth, total, html.EscapeString(title))
	fmt.Fprintf(&b, `<text x="4" y="16" font-weight="600">%s</text>`+"\n", html.EscapeString(title))
	end := float64(h.steps) * h.stepUS
	at := func(us float64) float64 { return left + us/end*(picWidth-left-right) }
	bottom := 30 + len(strips)*(high+gap)
	for k := range all { // behind everything else: what was on when
		for _, s := range f.bands(k, bandsMax) {
			fmt.Fprintf(&b, `<rect class="band" x="%.1f" y="30" width="%.1f" height="%d"/>`, at(s.from), max(1, at(s.to)-at(s.from)), bottom-30)
		}
	}
	y := 30
	for _, s := range strips {
		top := slices.Max(s.ys)
		fmt.Fprintf(&b, `<text x="4" y="%d">%s</text><text class="sm" x="4" y="%d">up to %s %s</text>`+"\n", y+high/2, html.EscapeString(s.name), y+high/2+16, figure(top), s.unit)
		fmt.Fprintf(&b, `<path class="g" d="M%d %dH%d"/>`, left, y+high, picWidth-right)
		var path strings.Builder
		for i, v := range s.ys {
			if v > 0 && top > 0 {
				tall := max(1, v/top*high)
				foot := float64(y + high)
				fmt.Fprintf(&path, "M%.1f %.1fV%.1fH%.1fV%.1fz", at(float64(i)*h.stepUS), foot, foot-tall, at(float64(i+1)*h.stepUS), foot)
			}
		}
		fmt.Fprintf(&b, `<path fill="%s" d="%s"/>`+"\n", s.color, path.String())
		y += high + gap
	}
	for k := range all {
		s := &all[k]
		fmt.Fprintf(&b, `<g><title>%s</title><text class="sm" x="4" y="%d">%s</text>`, html.EscapeString(s.ID+" "+s.Text), y+11, html.EscapeString(clip(s.ID+" "+string(s.Kind), 24)))
		for _, w := range f.bands(k, bandsMax) {
			fmt.Fprintf(&b, `<rect class="on" x="%.1f" y="%d" width="%.1f" height="10"/>`, at(w.from), y+2, max(2, at(w.to)-at(w.from)))
		}
		b.WriteString("</g>\n")
		y += faultHigh
	}
	if n := len(f.faults) - len(all); n > 0 {
		fmt.Fprintf(&b, `<text class="sm" x="4" y="%d">and %d more faults</text>`, y+11, n)
		y += faultHigh
	}
	step := math.Pow(10, math.Floor(math.Log10(end/4)))
	for _, k := range []float64{1, 2, 5, 10} {
		if end/(step*k) <= 8 {
			step *= k
			break
		}
	}
	for us := 0.0; us <= end; us += step {
		half := float64(len(number(us))) * 7 / 2 // a label at the end stays inside
		fmt.Fprintf(&b, `<text class="sm" x="%.1f" y="%d" text-anchor="middle">%s</text>`, min(at(us), picWidth-2-half), y+16, number(us))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">lab time in us</text></svg>`+"\n", (left+picWidth-right)/2, y+36)
	return b.String()
}

// clip shortens a text.
func clip(s string, room int) string {
	if r := []rune(s); len(r) > room {
		return string(r[:room-1]) + "…"
	}
	return s
}
