// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// TestSlices: the slices of a message are whole packets but for the last, no more than allowed,
// as large as said unless there would be too many, and cover the message once.
func TestSlices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mtu := 256 << rapid.IntRange(0, 4).Draw(t, "mtu")
		n := rapid.OneOf(rapid.IntRange(0, 4*sliceBytes), rapid.IntRange(0, 3*slicesMax*sliceBytes)).Draw(t, "bytes")
		count, end := slicesOf(n, mtu), 0
		if count < 1 || count > slicesMax {
			t.Fatalf("%d slices", count)
		}
		if size := sliceSize(n, mtu); size > sliceBytes && n <= slicesMax*sliceBytes {
			t.Fatalf("slices of %d bytes", size)
		}
		for k := range count {
			off, bytes := sliceAt(k, n, mtu)
			if off != end || k < count-1 && (bytes == 0 || bytes%mtu != 0 || bytes != sliceSize(n, mtu)) {
				t.Fatalf("slice %d of %d has %d bytes from %d", k, count, bytes, off)
			}
			end = off + bytes
		}
		if end != n {
			t.Fatalf("%d of %d bytes covered", end, n)
		}
	})
}

// TestStragglersAdopt: a plan notes who is newly apart, who stays so, and whose connection is
// replaced; lines of earlier plans are not valid any more.
func TestStragglersAdopt(t *testing.T) {
	m := newMembership(0, 4)
	s := stragglers{of: make([]straggler, 4)}
	adopt := func(number int, st step) {
		st.Alive = m.alive
		s.adopt(number, &m, st)
		m.adopt(number, st)
	}
	adopt(1, step{Apart: []int{2}})
	first := &line{source: 0, apart: 2, plan: s.of[2].plan}
	s.of[2].renewed = 3
	adopt(2, step{Apart: []int{2, 3}})
	if !s.valid(first, &m) || s.of[2].renewed != 3 || s.of[3].plan != 2 {
		t.Errorf("after another is apart: %+v", s.of)
	}
	adopt(3, step{Apart: []int{2, 3}, Renew: []int{2}})
	if s.valid(first, &m) || s.of[2].plan != 3 || s.of[2].renewed != 3 || s.of[3].plan != 2 {
		t.Errorf("after a connection is replaced: %+v", s.of)
	}
	second := &line{source: 0, apart: 2, plan: 3}
	adopt(4, step{Apart: []int{3}})
	if s.valid(second, &m) {
		t.Error("the line of a rank that is not apart is valid")
	}
	adopt(5, step{Apart: []int{2, 3}})
	if s.valid(second, &m) || s.of[2].renewed != 0 {
		t.Errorf("a rank is apart again, with its old line: %+v", s.of)
	}
	m.alive = []int{2, 3}
	if s.valid(&line{apart: 2, plan: 5}, &m) {
		t.Error("a rank that was given up keeps its lines")
	}
}

// TestJudge: a rank apart may return once data to it, while no other data goes first, arrives at no
// less than 80 % of normal throughput over a window.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		took float64 // times normal
		was  bool
		want bool
	}{{1, false, true}, {1.2, false, true}, {1.3, true, false}, {5, true, false}} {
		s := stragglers{of: make([]straggler, 3)}
		s.of[2] = straggler{meter: newTestMeter(), fast: c.was}
		m := s.of[2].meter
		const n = 4 << 20 // several windows
		m.begin(0, n)
		s.judge(&delivery{to: 2, timed: true, at: vtime.Time(c.took * float64(m.normal(n)))})
		if s.mayReturn(2) != c.want {
			t.Errorf("after %v times normal: %v", c.took, s.mayReturn(2))
		}
	}
	s := stragglers{of: make([]straggler, 3)}
	if s.judge(&delivery{to: 1}); !s.mayReturn(1) || s.mayReturn(2) {
		t.Error("who has the message although all others went before it is not fast, or who was sent nothing is")
	}
}

// steady returns the answer of a member that expects that many packets fewer than the foremost, at each
// sample.
func steady(behind uint32) (expected []uint32) {
	for k := range samples {
		expected = append(expected, (1<<24+uint32(10*k)+100-behind)%(1<<24))
	}
	return expected
}

// TestLags: lags are averages over the samples that a member took, also where PSNs wrap.
func TestLags(t *testing.T) {
	half := steady(40)
	for k := range half {
		if k%2 == 0 {
			half[k] = missed
		}
	}
	p := reports{expected: [][]uint32{steady(0), steady(120), half, nil, steady(7)[:3]}}
	if got := p.lags(); !slices.Equal(got, []float64{0, 120, 40, 0, 7}) {
		t.Errorf("lags %v", got)
	}
}

// TestLaggards: those that hold up the others are found by how far they are behind or, where
// the message has arrived, by when they had it; and not at all if they are many.
func TestLaggards(t *testing.T) {
	const floor, normal = 4, 100 * vtime.Microsecond
	const us = vtime.Time(vtime.Microsecond)
	type member struct {
		behind  uint32
		came    vtime.Time
		unknown bool
	}
	for _, c := range []struct {
		what    string
		members []member
		want    []int
	}{
		{"one is far behind", []member{{}, {behind: 1}, {behind: 50}, {}}, []int{2}},
		{"two of eight", []member{{}, {behind: 50}, {}, {}, {behind: 20}, {}, {}, {}}, []int{1, 4}},
		{"one less so than a quarter", []member{{}, {behind: 50}, {}, {}, {behind: 10}, {}, {}, {}}, []int{1}},
		{"nobody is behind by enough", []member{{}, {behind: 3}, {}, {}}, nil},
		{"two of four", []member{{}, {behind: 50}, {behind: 40}, {}}, nil},
		{"one was not reached", []member{{}, {}, {unknown: true}, {}}, []int{2}},
		{"one had it late", []member{{came: 10 * us}, {came: 11 * us}, {came: 90 * us}, {came: 12 * us}}, []int{2}},
		{"one had it a little late", []member{{came: 10 * us}, {came: 11 * us}, {came: 50 * us}, {came: 12 * us}}, nil},
		{"one does not have it yet", []member{{came: 10 * us}, {}, {came: 90 * us}, {came: 12 * us}}, nil},
		{"one of one", []member{{unknown: true}}, []int{0}},
		{"none", nil, nil},
	} {
		var p reports
		for _, m := range c.members {
			p.expected, p.came, p.reached = append(p.expected, steady(m.behind)), append(p.came, m.came), append(p.reached, !m.unknown)
		}
		if got := p.laggards(floor, normal); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
