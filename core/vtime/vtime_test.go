// SPDX-License-Identifier: Apache-2.0

package vtime

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestDurationText(t *testing.T) {
	for _, c := range []struct {
		d Duration
		s string
	}{
		{0, "0s"}, {600 * Nanosecond, "600ns"}, {1250 * Nanosecond, "1.25us"}, {5120, "5.12ns"},
		{1, "1ps"}, {3 * Second, "3s"}, {1500 * Millisecond, "1.5s"}, {-2 * Microsecond, "-2us"}, {1000001, "1.000001us"},
	} {
		if got := c.d.String(); got != c.s {
			t.Errorf("%d prints %q, want %q", int64(c.d), got, c.s)
		}
		if got, err := ParseDuration(c.s); err != nil || got != c.d {
			t.Errorf("%q reads %d, %v; want %d", c.s, got, err, c.d)
		}
	}
	for _, s := range []string{"", "5", "1.5", "5 minutes", "1m", "0.5ps", "x us", "1.2.3us", "9999999999999s", "--1us", "1us2"} {
		if d, err := ParseDuration(s); err == nil {
			t.Errorf("%q read as %v", s, d)
		}
	}
}

func TestDurationRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Duration(rapid.Int64Range(-1<<60, 1<<60).Draw(t, "ps"))
		if got, err := ParseDuration(d.String()); err != nil || got != d {
			t.Fatalf("%d prints %q reads %d, %v", int64(d), d, int64(got), err)
		}
	})
}

// TestTimerTable compares the table with the obvious one, over random calls.
func TestTimerTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 5
		tab := NewTimerTable(n)
		var want [n]Time
		for i := range want {
			want[i] = Never
		}
		now := Time(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			slot := rapid.IntRange(0, n-1).Draw(t, "slot")
			switch rapid.IntRange(0, 2).Draw(t, "op") {
			case 0:
				at := now + Time(rapid.IntRange(0, 50).Draw(t, "after"))
				tab.Set(slot, at)
				want[slot] = at
			case 1:
				tab.Stop(slot)
				want[slot] = Never
			case 2:
				now += Time(rapid.IntRange(0, 30).Draw(t, "step"))
				for {
					got, ok := tab.Due(now)
					if !ok {
						break
					}
					if want[got] > now {
						t.Fatalf("slot %d fired at %d, deadline %d", got, now, want[got])
					}
					want[got] = Never
				}
			}
			first := Never
			for i, at := range want {
				if tab.At(i) != at {
					t.Fatalf("slot %d at %d, want %d", i, tab.At(i), at)
				}
				first = min(first, at)
			}
			if next, armed := tab.Next(); next > first || armed != (next != Never) {
				t.Fatalf("next %d armed %v, earliest deadline %d", next, armed, first)
			}
		}
	})
}

// TestBeyond: no sum, product or rounding of spans wraps. An instant within lab time and a span that a
// user may give have a sum; larger sums are the last instant before Never.
func TestBeyond(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := Time(rapid.Int64Range(0, int64(Never)).Draw(t, "at"))
		d := Duration(rapid.Int64Range(0, int64(Never)).Draw(t, "d"))
		n := rapid.Int64Range(0, 1<<62).Draw(t, "n")
		if s := at.Add(d); s < at || at != Never && s == Never && at+Time(d) != Never {
			t.Fatalf("%d + %d is %d", at, d, s)
		}
		if at <= End && d <= SpanMax && at.Add(d) != at+Time(d) {
			t.Fatalf("%v + %v is %v", at, d, at.Add(d))
		}
		if p := d.Times(n); p < 0 || n > 0 && p < d && d != Duration(Never) || n > 0 && p != endless && p/Duration(n) != d {
			t.Fatalf("%d times %d is %d", d, n, p)
		}
	})
	for _, c := range []struct{ got, want Time }{
		{Never.Add(1), Never}, {Never.Add(0), Never}, {End.Add(Duration(Never)), Never - 1}, {Time(5).Add(-3), 2}, {0, Time(Duration(0).Times(1 << 62))},
	} {
		if c.got != c.want {
			t.Errorf("%d, want %d", c.got, c.want)
		}
	}
	for _, c := range []struct {
		ps   float64
		want Duration
	}{{1.9, 1}, {-1, 0}, {math.NaN(), 0}, {math.Inf(1), endless}, {math.Inf(-1), 0}, {1e300, endless}, {1e18, 1e18}} {
		if got := Picoseconds(c.ps); got != c.want {
			t.Errorf("%v picoseconds are %d, want %d", c.ps, got, c.want)
		}
	}
}
