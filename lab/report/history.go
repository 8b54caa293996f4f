// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/internal/plot"
)

// bandsMax bounds how often a fault that comes again is drawn.
const bandsMax = 400

// time writes what a run did over its time: what came to hosts, events, and the faults beside them.
func (b *page) time(r *Run, prefix string) {
	f, h := r.fabric, r.history
	if f == nil || h == nil || f.spanUS <= 0 {
		return
	}
	var strips []plot.Strip
	if h.arrived != nil {
		strips = append(strips, plot.Strip{Name: "data to hosts", Unit: "Gbit/s", Ys: h.arrived, Color: "#2563eb"})
	}
	for _, kind := range shown() {
		if ys := h.counts[kind]; ys != nil {
			strips = append(strips, plot.Strip{Name: kind, Unit: "events", Ys: ys, Color: "#c2410c"})
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
func (b *page) timeTable(f *fabric, h *history, strips []plot.Strip) {
	const most = 30
	head := []string{"from (us)"}
	for _, s := range strips {
		head = append(head, s.Name+" ("+s.Unit+")")
	}
	head = append(head, "faults on")
	var busy []int
	for i := range h.steps {
		if slices.ContainsFunc(strips, func(s plot.Strip) bool { return s.Ys[i] > 0 }) {
			busy = append(busy, i)
		}
	}
	left := len(busy) - most
	var rows [][]string
	for _, i := range busy[:min(len(busy), most)] {
		from := float64(i) * h.stepUS
		row := []string{number(from)}
		for _, s := range strips {
			row = append(row, number(s.Ys[i]))
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
func (f *fabric) drawTime(h *history, strips []plot.Strip) string {
	const faultsMax = 24
	all := plot.Timeline{Title: fmt.Sprintf("The run in steps of %v us", h.stepUS), X: "lab time in us", Step: h.stepUS, Steps: h.steps, Label: number, Strips: strips}
	for k := range f.faults[:min(len(f.faults), faultsMax)] {
		s := &f.faults[k]
		band := plot.Band{Name: clip(s.ID+" "+string(s.Kind), 24), Said: s.ID + " " + s.Text}
		for _, on := range f.bands(k, bandsMax) {
			band.On = append(band.On, [2]float64{on.from, on.to})
		}
		all.Bands = append(all.Bands, band)
	}
	if n := len(f.faults) - len(all.Bands); n > 0 {
		all.More = fmt.Sprintf("and %d more faults", n)
	}
	return all.SVG()
}

// clip shortens a text.
func clip(s string, room int) string {
	if r := []rune(s); len(r) > room {
		return string(r[:room-1]) + "…"
	}
	return s
}
