// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	"github.com/mcastlab/mcastlab/internal/plot"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/traces/explain"
)

func series(name string) plot.Series { return plot.Series{Name: name} }

// receivers is an empty picture of the number of receivers that had a message, over time.
func receivers(workload string, bytes int64) plot.Picture {
	p := plot.Picture{Title: fmt.Sprintf("%s, %v: when the receivers had it", workload, lab.Size(bytes)), X: "share of the receivers (%)", Y: "time in us"}
	for at := 0; at <= 100; at += 5 {
		p.At, p.Xs = append(p.At, fmt.Sprint(at)), append(p.Xs, float64(at))
	}
	return p
}

// part is a part of the time of messages, and its colour.
type part struct {
	name, color string
	of          func(*explain.Times) int64
}

func timeParts() []part {
	return []part{
		{"serialisation", "#2563eb", func(t *explain.Times) int64 { return t.Serialisation }},
		{"queueing", "#f59e0b", func(t *explain.Times) int64 { return t.Queueing }},
		{"propagation", "#16a34a", func(t *explain.Times) int64 { return t.Propagation }},
		{"pause", "#dc2626", func(t *explain.Times) int64 { return t.Pause }},
		{"retransmission", "#7c3aed", func(t *explain.Times) int64 { return t.Retransmission }},
		{"rnr", "#a16207", func(t *explain.Times) int64 { return t.RNR }},
		{"host", "#0891b2", func(t *explain.Times) int64 { return t.Host }},
		{"straggler", "#be185d", func(t *explain.Times) int64 { return t.Straggler }},
		{"unknown", "#6b7280", func(t *explain.Times) int64 { return t.Unknown }},
	}
}

// explained writes where the time of messages went.
func (b *page) explained(r *Run, prefix string) {
	const most = 40
	if r.explained == nil || len(r.explained.Rows) == 0 {
		return
	}
	b.text("h2", prefix+"where the time went")
	b.text("p", "The parts of the time on the critical path of a message, as mcastlab trace --explain has them.")
	var rows []*explain.Row
	for _, row := range r.explained.Rows {
		if row.Messages > 0 && row.Times.JCT > 0 {
			rows = append(rows, row)
		}
	}
	left := len(rows) - most
	rows = rows[:min(len(rows), most)]
	if len(rows) == 0 {
		b.text("p", "No message ended.")
		return
	}
	b.picture(drawParts(rows))
	head := []string{"workload", "scheme", "size", "messages", "JCT (us)"}
	for _, p := range timeParts() {
		head = append(head, p.name)
	}
	var lines [][]string
	for _, row := range rows {
		n := float64(row.Messages) * 1000
		line := []string{row.Workload, row.Scheme, lab.Size(row.Bytes).String(), fmt.Sprint(row.Messages), number(float64(row.Times.JCT) / n)}
		for _, p := range timeParts() {
			line = append(line, number(float64(p.of(&row.Times))/n))
		}
		lines = append(lines, line)
	}
	b.table(head, lines)
	if left > 0 {
		b.text("p", fmt.Sprintf("%d more rows are in mcastlab trace --explain.", left))
	}
}

// drawParts draws a bar per row, all of the same length, divided into the parts.
func drawParts(rows []*explain.Row) string {
	all := plot.Shares{Name: "where the time went", Title: "Shares of the mean JCT"}
	for _, p := range timeParts() {
		all.Parts = append(all.Parts, plot.Part{Name: p.name, Color: p.color})
	}
	for _, row := range rows {
		r := plot.ShareRow{
			Name: clip(fmt.Sprintf("%s %s %v", row.Workload, row.Scheme, lab.Size(row.Bytes)), 34),
			All:  float64(row.Times.JCT), Text: number(float64(row.Times.JCT)/float64(row.Messages)/1000) + " us",
		}
		for _, p := range timeParts() {
			r.Parts = append(r.Parts, float64(p.of(&row.Times)))
		}
		all.Rows = append(all.Rows, r)
	}
	return all.SVG()
}
