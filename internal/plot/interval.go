// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// decades is the ratio of the largest value to the smallest from which on an axis is logarithmic.
const decades = 100

// Spans reports whether values span decades, so that an axis of them is best logarithmic: all are above 0, and the
// largest is a hundred times the smallest. Values that are not numbers do not count.
func Spans(values []float64) bool {
	from, to := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if !math.IsNaN(v) {
			from, to = min(from, v), max(to, v)
		}
	}
	return from > 0 && to/from >= decades
}

// Positions returns where the values of an x axis are on it, in its own units, and whether it is logarithmic. A 0 has no
// place on a logarithmic axis: if the others span decades it stands at the left end, a tenth of the smallest of them.
func Positions(values []float64) (xs []float64, log bool) {
	above := slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v == 0 })
	if !Spans(above) {
		return values, false
	}
	xs = slices.Clone(values)
	for i, v := range xs {
		if v == 0 {
			xs[i] = slices.Min(above) / 10
		}
	}
	return xs, true
}

// interval returns the ends of the interval about point i, NaN if it has none.
func (s *Series) interval(i int) (low, high float64) {
	if s.Half == nil {
		return math.NaN(), math.NaN()
	}
	return s.Ys[i] - s.Half[i], s.Ys[i] + s.Half[i]
}

// drawIntervals draws the error bars of a series. One that reaches below a logarithmic axis ends at its foot.
func (p *Picture) drawIntervals(b *strings.Builder, k int, x, y *axis) {
	const arm = 4 // half of the line across each end
	for i := range p.Series[k].Half {
		low, high := p.Series[k].interval(i)
		if math.IsNaN(low) || p.LogY && high <= 0 {
			continue
		}
		foot := y.begin
		if !p.LogY || low > 0 {
			foot = y.at(low)
		}
		at, head := x.at(p.x(i)), y.at(high)
		if p.Bars {
			step := x.at(1) - x.at(0)
			at += step * 0.8 * ((float64(k)+0.47)/float64(len(p.Series)) - 0.5)
		}
		fmt.Fprintf(b, `<path d="M%.1f %.1fV%.1fM%.1f %.1fh%dM%.1f %.1fh%d" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n",
			at, foot, head, at-arm, foot, 2*arm, at-arm, head, 2*arm, p.ink(k))
	}
}

// ink is the colour of a series' error bars: on bars that of the axes, since their own would not show.
func (p *Picture) ink(k int) string {
	if p.Bars {
		return "#6b7280"
	}
	return color(k)
}
