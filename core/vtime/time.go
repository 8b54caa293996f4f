// SPDX-License-Identifier: Apache-2.0

// Package vtime is lab time: int64 picoseconds since the start of a run, and the
// timer table machines keep their deadlines in.
//
// Picoseconds, because 64 bytes at 400 Gb/s last 1.28 ns; int64 reaches 106 days. Lab time ends before
// that, at End, and no single span that a user gives is longer than SpanMax: an instant of a run and
// some such spans always have a sum. Unbounded sums and products (Add, Times, Picoseconds) stop at the
// last instant and never wrap.
package vtime

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Time is an instant of lab time in picoseconds since the start of the run.
type Time int64

// Duration is a span of lab time in picoseconds.
type Duration int64

// Spans of lab time.
const (
	Picosecond  Duration = 1
	Nanosecond           = 1000 * Picosecond
	Microsecond          = 1000 * Nanosecond
	Millisecond          = 1000 * Microsecond
	Second               = 1000 * Millisecond
)

// Never is later than every instant of a run.
const Never Time = math.MaxInt64

// Bounds of the times of a lab, and of a run.
const (
	SpanMax      = 86400 * Second      // a day: the longest span that a user may give
	End     Time = 100 * Time(SpanMax) // no run lasts longer than 100 days of lab time
)

// endless is the longest span: an event that far away is beyond every run.
const endless = Duration(Never) - 1

// Add returns t+d, or the instant before Never if the sum is beyond it. Never stays Never.
func (t Time) Add(d Duration) Time {
	if s := t + Time(d); s >= t || d < 0 {
		return s
	}
	return t.beyond()
}

// beyond returns the last instant before Never, for a sum beyond it; Never stays Never.
func (t Time) beyond() Time {
	if t == Never {
		return Never
	}
	return Never - 1
}

// Times returns n times a span that is not negative, or the longest span there is.
func (d Duration) Times(n int64) Duration {
	if d > 0 && n > int64(endless/d) {
		return endless
	}
	return d * Duration(n)
}

// Picoseconds returns the span of a number computed with fractions: none if it is negative or no
// number, and the longest there is if it is more than that.
func Picoseconds(ps float64) Duration {
	switch {
	case ps >= float64(endless):
		return endless
	case ps > 0:
		return Duration(ps)
	}
	return 0
}

// Sub returns t-u.
func (t Time) Sub(u Time) Duration { return Duration(t - u) }

// String prints the time as a Duration since zero.
func (t Time) String() string {
	if t == Never {
		return "never"
	}
	return Duration(t).String()
}

// Microseconds returns the time in microseconds, for outputs.
func (t Time) Microseconds() float64 { return Duration(t).Microseconds() }

// Microseconds returns the span in microseconds, for outputs.
func (d Duration) Microseconds() float64 { return float64(d) / float64(Microsecond) }

// Seconds returns the span in seconds.
func (d Duration) Seconds() float64 { return float64(d) / float64(Second) }

var units = []struct {
	name string
	d    Duration
}{
	{"s", Second}, {"ms", Millisecond}, {"us", Microsecond}, {"ns", Nanosecond}, {"ps", Picosecond},
}

// String prints the span exactly, in the largest unit of which it is at least one:
// 600ns, 1.25us, 0s.
func (d Duration) String() string {
	if d == 0 {
		return "0s"
	}
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	for _, u := range units {
		if d >= u.d {
			s := sign + strconv.FormatInt(int64(d/u.d), 10)
			if rest := d % u.d; rest != 0 {
				digits := len(strconv.FormatInt(int64(u.d), 10)) - 1
				s += "." + strings.TrimRight(fmt.Sprintf("%0*d", digits, int64(rest)), "0")
			}
			return s + u.name
		}
	}
	return "0s"
}

// ParseDuration reads a decimal number with one of the units s, ms, us, ns and ps
// ("0" needs none). It refuses spans that are not whole picoseconds or do not fit.
func ParseDuration(s string) (Duration, error) {
	i := strings.LastIndexFunc(s, func(r rune) bool { return r >= '0' && r <= '9' || r == '.' }) + 1
	num, unit := s[:i], strings.TrimSpace(s[i:])
	if num == "0" && unit == "" {
		return 0, nil
	}
	for _, u := range units {
		if u.name == unit {
			v, err := decimal(strings.TrimSpace(num), int64(u.d))
			if err != nil {
				return 0, fmt.Errorf("duration %q: %w", s, err)
			}
			return Duration(v), nil
		}
	}
	return 0, fmt.Errorf("duration %q needs a number and one of the units s, ms, us, ns, ps (600ns)", s)
}

// decimal returns the decimal number s times scale, exactly.
func decimal(s string, scale int64) (int64, error) {
	neg := strings.HasPrefix(s, "-")
	whole, frac, _ := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	w, err := strconv.ParseUint(whole, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", s)
	}
	if w > math.MaxInt64/uint64(scale) {
		return 0, fmt.Errorf("%q is too large", s)
	}
	v := int64(w) * scale
	for _, c := range frac {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%q is not a number", s)
		}
		if scale%10 != 0 {
			return 0, fmt.Errorf("%q is finer than a picosecond", s)
		}
		scale /= 10
		v += int64(c-'0') * scale
	}
	if neg {
		v = -v
	}
	return v, nil
}
