// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestPicture: whatever is drawn is well-formed, stays in its frame, names its series, and has its points as CSV.
func TestPicture(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.Float64Range(-1e9, 1e12), rapid.Float64Range(1e-9, 1), rapid.SampledFrom([]float64{0, math.NaN(), 1}))
		p := Picture{
			Title: rapid.StringMatching(`[ -~]{0,60}`).Draw(t, "title"), X: "x", Y: "y",
			LogX: rapid.Bool().Draw(t, "log x"), LogY: rapid.Bool().Draw(t, "log y"), Bars: rapid.Bool().Draw(t, "bars"),
		}
		points := rapid.IntRange(1, 12).Draw(t, "points")
		for i := range points {
			p.At, p.Xs = append(p.At, strconv.Itoa(i)), append(p.Xs, math.Pow(4, float64(i))*64)
		}
		for range rapid.IntRange(1, 9).Draw(t, "series") {
			s := Series{Name: "<s>&", Ys: rapid.SliceOfN(value, points, points).Draw(t, "ys")}
			if len(p.Series) == 0 && rapid.Bool().Draw(t, "intervals") { // a column more, at the end of the first series'
				s.Half = rapid.SliceOfN(rapid.OneOf(rapid.Float64Range(0, 1e9), rapid.Just(math.NaN())), points, points).Draw(t, "half")
			}
			p.Series = append(p.Series, s)
		}
		if y := value.Draw(t, "mark"); !math.IsNaN(y) {
			p.Marks = []Mark{{"mark", p.At[0], y}, {"elsewhere", "none", 1}}
		}
		check(t, &p)
	})
}

func check(t *rapid.T, p *Picture) {
	svg := p.SVG()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, svg)
		}
	}
	if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Fatalf("a point is nowhere:\n%s", svg)
	}
	for _, m := range regexp.MustCompile(`<circle cx="([^"]+)" cy="([^"]+)"`).FindAllStringSubmatch(svg, -1) {
		x, errX := strconv.ParseFloat(m[1], 64)
		y, errY := strconv.ParseFloat(m[2], 64)
		if errX != nil || errY != nil || x < left-1 || x > width-right+1 || y < top-1 || y > height-under+1 {
			t.Fatalf("a point is at %s, %s, outside the frame", m[1], m[2])
		}
	}
	if n := strings.Count(svg, "&lt;s&gt;&amp;"); n != len(p.Series) {
		t.Fatalf("%d of %d series are named", n, len(p.Series))
	}
	bars := regexp.MustCompile(`<path d="M[^V"]+ ([^V"]+)V([^M"]+)M`).FindAllStringSubmatch(svg, -1)
	for _, m := range bars {
		from, errFrom := strconv.ParseFloat(m[1], 64)
		to, errTo := strconv.ParseFloat(m[2], 64)
		if errFrom != nil || errTo != nil || from < to || from > height-under+1 || to < top-1 {
			t.Fatalf("an interval is drawn from %s to %s", m[1], m[2])
		}
	}
	rows, err := csv.NewReader(strings.NewReader(p.CSV())).ReadAll()
	if half := p.Series[0].Half; err == nil && half != nil {
		drawn := 0
		for i := range rows {
			if i > 0 && (rows[i][2] == "") != math.IsNaN(half[i-1]) {
				t.Fatalf("half an interval is %q, want %g", rows[i][2], half[i-1])
			}
			if i > 0 {
				if y := p.Series[0].Ys[i-1] + half[i-1]; !math.IsNaN(y) && (!p.LogY || y > 0) {
					drawn++
				}
			}
			rows[i] = append(rows[i][:2:2], rows[i][3:]...)
		}
		if len(bars) != drawn {
			t.Fatalf("%d of %d intervals are drawn", len(bars), drawn)
		}
	}
	if err != nil || len(rows) != 1+len(p.At) || len(rows[0]) != 1+len(p.Series) {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for k := range p.Series {
		for i, want := range p.Series[k].Ys {
			got, err := strconv.ParseFloat(rows[1+i][1+k], 64)
			if math.IsNaN(want) != (rows[1+i][1+k] == "") || !math.IsNaN(want) && (err != nil || got != want) {
				t.Fatalf("series %d, point %d is %q, want %g", k, i, rows[1+i][1+k], want)
			}
		}
	}
}

// TestAxes: values that span decades are on a logarithmic axis, and a 0 among them stands at its left end.
func TestAxes(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		values, want []float64
		log          bool
	}{
		{[]float64{1, 99}, []float64{1, 99}, false},
		{[]float64{1, 100}, []float64{1, 100}, true},
		{[]float64{1, nan, 100}, []float64{1, nan, 100}, true},
		{[]float64{0, 2, 200}, []float64{0.2, 2, 200}, true},
		{[]float64{0, 2, 20}, []float64{0, 2, 20}, false},
		{[]float64{-1, 1000}, []float64{-1, 1000}, false},
		{[]float64{0}, []float64{0}, false},
		{nil, nil, false},
	} {
		got, log := Positions(c.values)
		same := slices.EqualFunc(got, c.want, func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) })
		if log != c.log || !same {
			t.Errorf("%v are at %v, log %v", c.values, got, log)
		}
	}
}
