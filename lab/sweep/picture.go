// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mcastlab/mcastlab/internal/plot"
	"github.com/mcastlab/mcastlab/lab"
)

// picture is a plot of the sweep and the name of its files.
type picture struct {
	plot.Picture
	name string
}

// bySize is the x axis of a sweep that varies nothing that an axis could show.
const bySize = -1

// pictures draws the measurements over one of the keys, the first that has several values, and rather one whose values
// are numbers: a picture for each workload and each size, a series for each scheme and each combination of values of the
// other keys. If no key has several values, it is drawn over the sizes.
func (r *Result) pictures() (all []picture) {
	over := r.over()
	type id struct {
		workload string
		size     int
	}
	var order []id
	sizes := map[string]map[int]bool{}
	for i := range r.Rows {
		x := id{r.Rows[i].Workload, r.Rows[i].Size}
		if over == bySize {
			x.size = 0
		}
		if sizes[x.workload] == nil {
			sizes[x.workload] = map[int]bool{}
		}
		if sizes[x.workload][x.size] = true; !slices.Contains(order, x) {
			order = append(order, x)
		}
	}
	for _, x := range order {
		rows := slices.DeleteFunc(slices.Clone(r.Rows), func(o Row) bool {
			return o.Workload != x.workload || over != bySize && o.Size != x.size
		})
		p := picture{name: "sweep-" + x.workload, Picture: r.draw(rows, over)}
		p.Title = x.workload + ": " + r.label()
		if over != bySize {
			p.Title = fmt.Sprintf("%s, %v", p.Title, lab.Size(x.size))
			if len(sizes[x.workload]) > 1 {
				p.name += "-" + lab.Size(x.size).String()
			}
		}
		if r.Repeats > 1 {
			p.Title += fmt.Sprintf(", mean of %d runs with 95 %% intervals", r.Repeats)
		}
		all = append(all, p)
	}
	return all
}

// over returns the key that pictures have as their x axis.
func (r *Result) over() int {
	several := bySize
	for i := range r.Keys {
		if len(r.Keys[i].Values) < 2 {
			continue
		}
		if numbers(r.Keys[i].Values) != nil {
			return i
		}
		if several == bySize {
			several = i
		}
	}
	return several
}

// draw draws rows over a key or over their sizes.
func (r *Result) draw(rows []Row, over int) plot.Picture {
	p := plot.Picture{Y: r.label()}
	at := func(x *Row) string { return lab.Size(x.Size).String() }
	if over != bySize {
		p.X = r.Keys[over].Name
		p.At = slices.Clone(r.Keys[over].Values)
		at = func(x *Row) string { return r.Points[x.Point].Values[over] }
	} else {
		p.X = "message size"
		for i := range rows {
			if s := at(&rows[i]); !slices.Contains(p.At, s) {
				p.At = append(p.At, s)
			}
		}
	}
	xs := numbers(p.At)
	if p.Bars = xs == nil; !p.Bars {
		slices.SortStableFunc(p.At, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
		p.Xs, p.LogX = plot.Positions(numbers(p.At))
	}
	var ys []float64
	for i := range rows {
		x := &rows[i]
		name := r.series(x, over)
		k := slices.IndexFunc(p.Series, func(s plot.Series) bool { return s.Name == name })
		if k < 0 {
			k = len(p.Series)
			p.Series = append(p.Series, plot.Series{Name: name, Ys: nowhere(len(p.At))})
			if r.Repeats > 1 {
				p.Series[k].Half = nowhere(len(p.At))
			}
		}
		j := slices.Index(p.At, at(x))
		p.Series[k].Ys[j] = x.Mean
		if x.Half != nil {
			p.Series[k].Half[j] = *x.Half
		}
		ys = append(ys, x.Mean)
	}
	p.LogY = plot.Spans(ys)
	return p
}

// series names the series of a row: the scheme and the values of keys that have several and are not the x axis.
func (r *Result) series(x *Row, over int) string {
	words := []string{x.Scheme}
	for k := range r.Keys {
		if k != over && len(r.Keys[k].Values) > 1 {
			words = append(words, r.Keys[k].Name+"="+r.Points[x.Point].Values[k])
		}
	}
	return strings.Join(words, ", ")
}

func nowhere(n int) []float64 { return slices.Repeat([]float64{math.NaN()}, n) }

// numbers returns values as numbers, or nil if one of them is none.
func numbers(values []string) (all []float64) {
	for _, v := range values {
		x := number(v)
		if math.IsNaN(x) {
			return nil
		}
		all = append(all, x)
	}
	return all
}

// number returns a value of a lab file as a number: itself, or the size, rate, time or probability in its base unit.
// It is NaN for anything else.
func number(text string) float64 {
	text = strings.Trim(text, `"'`)
	if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsInf(v, 0) {
		return v
	}
	var size lab.Size
	var rate lab.Rate
	var span lab.Duration
	switch share, isShare := strings.CutSuffix(text, "%"); {
	case isShare:
		if v, err := strconv.ParseFloat(strings.TrimSpace(share), 64); err == nil {
			return v / 100
		}
	case size.Set(text) == nil:
		return float64(size)
	case rate.Set(text) == nil:
		return float64(rate)
	case span.Set(text) == nil:
		return float64(span)
	}
	return math.NaN()
}
