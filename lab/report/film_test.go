// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math/rand/v2"
	"testing"
)

// TestCut: frames cover the whole of a run, one after the other, in bounds; an idle stretch is one frame, a busy one has
// many.
func TestCut(t *testing.T) {
	frames := cut([]float64{100, 110, 120, 5000, 5010}, 100_000)
	if len(frames) < 20 || frames[0].From != 0 || frames[0].To != 100 || frames[len(frames)-1].From != 5010 || frames[len(frames)-1].To != 100_000 {
		t.Errorf("%d frames: %v", len(frames), frames)
	}
	for _, c := range []struct {
		at    []float64
		span  float64
		count int
	}{{nil, 0, 1}, {nil, 10, 1}, {[]float64{0}, 0, 1}, {[]float64{0}, 10, 1}, {[]float64{10}, 10, 1}, {[]float64{5}, 10, 2}, {[]float64{-1, 11}, 10, 1}} {
		if got := cut(c.at, c.span); len(got) != c.count {
			t.Errorf("%v of %v us: %v", c.at, c.span, got)
		}
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		var at []float64
		now, n := 0.0, r.IntN(3000)
		for range n {
			now += r.ExpFloat64() * []float64{0.01, 1, 1000, 100_000}[r.IntN(4)]
			at = append(at, now)
		}
		span := now + r.Float64()*100
		frames := cut(at, span)
		if len(frames) > framesMax {
			t.Errorf("seed %d: %d frames", seed, len(frames))
		}
		last := 0.0
		for _, f := range frames {
			if f.From != last || f.To <= f.From {
				t.Fatalf("seed %d: a frame of %v to %v after %v", seed, f.From, f.To, last)
			}
			last = f.To
		}
		if last != span {
			t.Fatalf("seed %d: frames end at %v of %v", seed, last, span)
		}
	}
}

// TestSpread: a span counts in each frame it lies in, as much as is of it there.
func TestSpread(t *testing.T) {
	r := filming{film: &Film{Frames: []Frame{{From: 0, To: 10}, {From: 10, To: 11}, {From: 11, To: 20}}}}
	for _, c := range []struct {
		s    span
		want [3]float64
	}{{span{0, 20}, [3]float64{10, 1, 9}}, {span{9, 12}, [3]float64{1, 1, 1}}, {span{10, 10.5}, [3]float64{0, 0.5, 0}}, {span{25, 30}, [3]float64{}}, {span{3, 3}, [3]float64{}}} {
		var got [3]float64
		r.spread(c.s, func(k int, us float64) { got[k] += us })
		if got != c.want {
			t.Errorf("%v: %v, not %v", c.s, got, c.want)
		}
	}
}
