// SPDX-License-Identifier: Apache-2.0

package reproduce

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	tickOf = regexp.MustCompile(`<path class="g" d="M[\d.]+ ([\d.]+)H\d+"/><text [^>]*text-anchor="end">([^<]+)</text>`)
	lineOf = regexp.MustCompile(`<path d="(M[^"z]+)" fill="none" stroke="#[0-9a-f]+" stroke-width="2" stroke-dasharray`)
	atOf   = regexp.MustCompile(`[ML][\d.]+ ([\d.-]+)`)
	barOf  = regexp.MustCompile(`<rect x="[\d.-]+" y="([\d.-]+)" width="[\d.]+" height="[\d.]+" fill="(#[0-9a-f]+)"`)
)

// drawn returns the values of a picture's marks, by series, computed from their positions and the labels of its y axis.
func drawn(t *testing.T, svg string, f *Figure) (series [][]float64) {
	t.Helper()
	ticks := tickOf.FindAllStringSubmatch(svg, -1)
	if len(ticks) < 2 {
		t.Fatalf("figure %s: the y axis has %d labels", f.Name, len(ticks))
	}
	scale := func(v float64) float64 { return v }
	back := scale
	if f.LogY {
		scale, back = math.Log10, func(v float64) float64 { return math.Pow(10, v) }
	}
	a, b := ticks[0], ticks[len(ticks)-1]
	ya, yb, va, vb := parse(t, a[1]), parse(t, b[1]), scale(parse(t, a[2])), scale(parse(t, b[2]))
	value := func(y string) float64 { return back(va + (parse(t, y)-ya)/(yb-ya)*(vb-va)) }
	if f.Bars {
		by := map[string]int{}
		for _, m := range barOf.FindAllStringSubmatch(svg, -1) {
			if _, ok := by[m[2]]; !ok {
				by[m[2]] = len(series)
				series = append(series, nil)
			}
			series[by[m[2]]] = append(series[by[m[2]]], value(m[1]))
		}
		return series
	}
	for _, m := range lineOf.FindAllStringSubmatch(svg, -1) {
		var ys []float64
		for _, p := range atOf.FindAllStringSubmatch(m[1], -1) {
			ys = append(ys, value(p[1]))
		}
		series = append(series, ys)
	}
	return series
}

func parse(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestDrawn: the points of each committed picture, read back from where they are drawn and from the axis beside them, are those of its CSV.
func TestDrawn(t *testing.T) {
	for _, r := range load(t) {
		for i := range r.Figures {
			f := &r.Figures[i]
			svg, err := os.ReadFile(filepath.Join(committed, "figures", f.Name+".svg"))
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join(committed, "figures", f.Name+".csv"))
			if err != nil {
				t.Fatal(err)
			}
			if line := differs(t, string(svg), string(text), f); line != "" {
				t.Errorf("figure %s: %s", f.Name, line)
			}
		}
	}
}

// differs returns the first place where a picture and its points differ by more than a picture can show, a
// fiftieth of the y axis.
func differs(t *testing.T, svg, text string, f *Figure) string {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var want [][]float64
	low, high := math.Inf(1), math.Inf(-1)
	for k := range f.Series {
		var ys []float64
		for _, row := range rows[1:] {
			if row[1+k] == "" {
				continue
			}
			v := parse(t, row[1+k])
			if f.LogY && v <= 0 {
				continue
			}
			ys = append(ys, v)
			low, high = min(low, v), max(high, v)
		}
		if len(ys) > 0 {
			want = append(want, ys)
		}
	}
	got := drawn(t, svg, f)
	if len(got) != len(want) {
		return fmt.Sprintf("%d series are drawn, and %d are in the table", len(got), len(want))
	}
	for k := range want {
		if len(got[k]) != len(want[k]) {
			return fmt.Sprintf("series %d has %d points drawn of %d", k, len(got[k]), len(want[k]))
		}
		for i, w := range want[k] {
			off := math.Abs(got[k][i]-w) / max(high, -low, 1e-12)
			if f.LogY {
				off = math.Abs(math.Log10(got[k][i] / w))
			}
			if off > 0.02 {
				return fmt.Sprintf("series %d has %g drawn at point %d, and %g in the table", k, got[k][i], i, w)
			}
		}
	}
	return ""
}

// TestDrawnBites: a picture with a point elsewhere, or without one, is reported.
func TestDrawnBites(t *testing.T) {
	f := &Figure{Name: "two", Title: "two", X: "x", Y: "y", At: []string{"1", "2"}, Series: []Series{{Name: "a", Lab: "l", Value: "v$"}}}
	at := func(second float64) (svg, text string) {
		p, _ := f.Gather(Labs{"l": {Values: map[string]float64{"v1": 1, "v2": second}}})
		return p.SVG(), p.CSV()
	}
	svg, text := at(4)
	if line := differs(t, svg, text, f); line != "" {
		t.Error(line)
	}
	other, _ := at(3)
	if differs(t, other, strings.Replace(text, "2,4", "2,3.5", 1), f) == "" {
		t.Error("a point elsewhere is not told")
	}
	if differs(t, svg, text+"3,4\n", f) == "" {
		t.Error("a point that is not drawn is not told")
	}
}
