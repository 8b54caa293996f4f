// SPDX-License-Identifier: Apache-2.0

package reproduce

import (
	"math"
	"slices"
	"strconv"

	"github.com/mcastlab/mcastlab/internal/plot"
	"github.com/mcastlab/mcastlab/lab"
)

// Gather takes a figure's points from the measurements. ok reports that all of them are there.
func (f *Figure) Gather(measured Labs) (p plot.Picture, ok bool) {
	p, ok = plot.Picture{Title: f.Title, X: f.X, Y: f.Y, LogX: f.LogX, LogY: f.LogY, Bars: f.Bars, At: f.At}, true
	if f.Shown != nil {
		p.At = f.Shown
	}
	for _, at := range f.At {
		p.Xs = append(p.Xs, position(at))
	}
	for k := range f.Series {
		s := &f.Series[k]
		ys := make([]float64, len(f.At))
		for i := range f.At {
			l := f.line(s, i)
			if l == nil {
				ys[i] = math.NaN()
				continue
			}
			o := judgeLine(l, measured)
			ys[i], ok = o.Got, ok && !math.IsNaN(o.Got)
		}
		p.Series = append(p.Series, plot.Series{Name: s.Name, Ys: ys})
	}
	for _, m := range f.Marks {
		p.Marks = append(p.Marks, plot.Mark{Name: "the paper: " + m.Name, At: f.shown(m.At), Y: m.Y})
	}
	return p, ok
}

// position returns where a point is on the x axis: a number, or a size in bytes.
func position(at string) float64 {
	if v, err := strconv.ParseFloat(at, 64); err == nil {
		return v
	}
	size, err := lab.ParseSize(at)
	if err != nil {
		return math.NaN()
	}
	return float64(size)
}

// shown returns a point as it is written at the axis.
func (f *Figure) shown(at string) string {
	if i := slices.Index(f.At, at); i >= 0 && f.Shown != nil {
		return f.Shown[i]
	}
	return at
}
