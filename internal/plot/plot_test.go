package plot

import (
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
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
			p.Series = append(p.Series, Series{"<s>&", rapid.SliceOfN(value, points, points).Draw(t, "ys")})
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
	rows, err := csv.NewReader(strings.NewReader(p.CSV())).ReadAll()
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
