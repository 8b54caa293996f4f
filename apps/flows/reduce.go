// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
)

// regained is the share of its highest rate from which on a flow has its rate again.
const regained = 0.95

// Reduce implements apps.App. It returns a row for each flow, unless the run was interrupted before all had ended.
func (a App) Reduce(raw []byte, records [][][]byte) ([]apps.Row, error) {
	var p Params
	if err := apps.Read(Name, raw, &p); err != nil {
		return nil, err
	}
	sources, receivers := make([]*record, len(p.Flows)), make([][]*record, len(p.Flows))
	for i, lines := range records {
		for _, out := range lines {
			var rec record
			if err := json.Unmarshal(out, &rec); err != nil {
				return nil, fmt.Errorf("flows: read record of rank %d: %w", i, err)
			}
			if rec.Flow < 0 || rec.Flow >= len(p.Flows) {
				return nil, fmt.Errorf("flows: rank %d has a record of flow %d of %d", i, rec.Flow, len(p.Flows))
			}
			if p.Flows[rec.Flow].From == i {
				sources[rec.Flow] = &rec
			} else {
				receivers[rec.Flow] = append(receivers[rec.Flow], &rec)
			}
		}
	}
	var rows []apps.Row
	var courses []*Course
	for i := range p.Flows {
		if sources[i] == nil || len(receivers[i]) != len(p.Flows[i].To) {
			return nil, nil
		}
		row, c := p.row(i, sources[i], receivers[i])
		rows, courses = append(rows, row), append(courses, c)
	}
	for _, c := range courses {
		c.all = courses
		for _, other := range courses[:keptPairs(len(courses))] {
			c.Beside = append(c.Beside, c.pair(other))
		}
	}
	return rows, nil
}

// keptMax is the number of flows up to which the files of a run have the Pairs of all flows: those of 1,000 flows had 150 MB
// of it, and took longer to write and read than the simulation.
const keptMax = 100

// keptPairs returns the number of others for which a row keeps a Pair, in a workload with that many
// flows.
func keptPairs(flows int) int {
	if flows > keptMax {
		return 0
	}
	return flows
}

// row reports one flow. Its JCT is from its begin until the last receiver has everything, the source's time until
// all is acknowledged.
func (p *Params) row(i int, source *record, receivers []*record) (apps.Row, *Course) {
	f := &p.Flows[i]
	begin := source.Start.Add(f.Begin)
	last, ok := begin, true
	var sum []float64
	for _, rec := range receivers {
		last = max(last, rec.Last)
		ok = ok && !rec.Wrong && rec.Messages == source.Messages
		for len(sum) < len(rec.Bytes) {
			sum = append(sum, 0)
		}
		for k, b := range rec.Bytes {
			sum[k] += float64(b)
		}
	}
	c := &Course{
		Flow: f.Name, Receivers: len(receivers), Messages: source.Messages,
		BeginUS: f.Begin.Microseconds(), EndUS: f.End.Microseconds(), LastUS: last.Sub(source.Start).Microseconds(), IntervalUS: p.Interval.Microseconds(),
	}
	for _, b := range sum {
		c.Rates = append(c.Rates, b/float64(len(receivers))*8/p.Interval.Seconds()/1e9)
	}
	within := c.between(c.BeginUS, c.EndUS)
	if len(within) == 0 { // it is shorter than two intervals
		took := max(1, last.Sub(begin))
		within = []float64{float64(source.Messages) * float64(p.Message) * 8 / took.Seconds() / 1e9}
	}
	c.Goodput = apps.Summarize(within)
	row := apps.Row{
		Workload: p.Workload, Scheme: f.Name, SizeBytes: p.Message, Ranks: 1 + len(receivers), Iterations: 1, Payload: string(p.Memory),
		JCT: summary(last.Sub(begin)), Source: summary(source.Last.Sub(begin)), Details: c,
		Began: begin, Ended: max(last, source.Last),
	}
	if p.Memory == rank.MemoryBytes || !ok {
		row.Verified = &ok
	}
	return row, c
}

func summary(d vtime.Duration) apps.Summary { return apps.Summarize([]float64{d.Microseconds()}) }

// between returns the rates of the intervals that lie between two instants, in microseconds.
func (c *Course) between(from, to float64) (rates []float64) {
	for k := int(math.Ceil(from/c.IntervalUS - 1e-9)); float64(k+1)*c.IntervalUS <= to*(1+1e-9); k++ {
		v := 0.0 // after the flow has ended
		if k < len(c.Rates) {
			v = c.Rates[k]
		}
		rates = append(rates, v)
	}
	return rates
}

// pair returns the Pair of the flow and another one.
func (c *Course) pair(other *Course) Pair {
	p := Pair{Flow: other.Flow, RegainUS: c.regain(other.LastUS)}
	from, to := max(c.BeginUS, other.BeginUS), min(c.EndUS, other.EndUS)
	mine, its := c.between((from+to)/2, to), other.between((from+to)/2, to)
	if from >= to || len(mine) == 0 {
		return p
	}
	a, b := apps.Summarize(mine).Avg, apps.Summarize(its).Avg
	p.Goodput = &a
	if a > 0 || b > 0 {
		j := (a + b) * (a + b) / (2 * (a*a + b*b))
		p.Fairness = &j
	}
	return p
}

// regain returns how long after an instant the flow has its highest rate again.
func (c *Course) regain(us float64) float64 {
	for k := int(math.Ceil(us / c.IntervalUS)); k < len(c.Rates) && float64(k+1)*c.IntervalUS <= c.EndUS; k++ {
		if c.Rates[k] >= regained*c.Goodput.Max {
			return float64(k+1)*c.IntervalUS - us
		}
	}
	return max(0, c.EndUS-us)
}
