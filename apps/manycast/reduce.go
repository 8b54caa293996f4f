// SPDX-License-Identifier: Apache-2.0

package manycast

import (
	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
)

// Reduce implements apps.App.
func (a App) Reduce(raw []byte, records [][][]byte) ([]apps.Row, error) {
	var p Params
	if err := apps.Read(Name, raw, &p); err != nil {
		return nil, err
	}
	return apps.Rows(Name, records, len(p.Schemes), len(p.Sizes), p.row)
}

// row reports one cell. The JCT of an iteration ends when the last message has arrived at the last
// member. The source's time ends when the transmission of the last packet begins.
func (p *Params) row(c apps.Cell, ranks []record) apps.Row {
	var jct, source, latency, goodput []float64
	ok, messages, entries, ended := true, 0, 0, vtime.Time(0)
	for k, s := range ranks[0].Samples {
		last, sent, count := s.Start, s.Start, 0
		var sum vtime.Duration
		for _, rec := range ranks {
			x := rec.Samples[k]
			last, sent, sum, count = max(last, x.Last), max(sent, x.Sent), sum+x.Sum, count+x.Count
			ok, entries = ok && !rec.Wrong, max(entries, rec.Entries)
		}
		took := last.Sub(s.Start)
		messages += count
		ended = max(ended, last, sent)
		jct = append(jct, took.Microseconds())
		source = append(source, sent.Sub(s.Start).Microseconds())
		latency = append(latency, sum.Microseconds()/float64(max(1, count)))
		rate := 0.0
		if took > 0 {
			rate = float64(count) * float64(p.Sizes[c.Size]) * 8 / took.Seconds() / 1e9
		}
		goodput = append(goodput, rate)
	}
	memory := p.memory(p.Sizes[c.Size], len(ranks))
	updates := 0.0 // the mean
	for _, n := range ranks[0].Updates {
		updates += float64(n) / float64(len(ranks[0].Updates))
	}
	row := apps.Row{
		Workload: p.Workload, Scheme: p.Schemes[c.Scheme].Label, SizeBytes: p.Sizes[c.Size], Ranks: len(ranks),
		Iterations: len(jct), Payload: string(memory), JCT: apps.Summarize(jct), Source: apps.Summarize(source),
		Details: &Spread{
			Sources: p.Sources, Members: p.Members, Messages: float64(messages) / float64(len(jct)), Entries: entries, Updates: updates,
			Latency: apps.Summarize(latency), Goodput: apps.Summarize(goodput),
		},
		Ended: ended,
	}
	if memory == rank.MemoryBytes || !ok {
		row.Verified = &ok
	}
	return row
}
