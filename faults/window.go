// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"strconv"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// Window is the time during which a fault is on. It begins once, or periodically with a probability.
type Window struct {
	From  vtime.Time     // the first beginning
	For   vtime.Duration // duration; 0 means no end, or no duration for a kind that has none
	Every vtime.Duration // time from one beginning to the next; 0 means that there is only one
	// Probability is the probability that the fault occurs at each beginning; 0 means 1. Each
	// beginning draws from its own stream derived from Random, so that all drivers agree.
	Probability float64
	Random      prng.Stream
}

// On reports whether the fault is on.
func (w *Window) On(now vtime.Time) bool {
	if now < w.From {
		return false
	}
	d, k := now.Sub(w.From), int64(0)
	if w.Every > 0 {
		k, d = int64(d/w.Every), d%w.Every
	}
	return (w.For == 0 || d < w.For) && w.happens(k)
}

// Over reports whether the fault has ended for good.
func (w *Window) Over(now vtime.Time) bool {
	return w.Every == 0 && w.For > 0 && now >= w.From.Add(w.For)
}

// happens reports whether the fault occurs at beginning number k, counted from 0.
func (w *Window) happens(k int64) bool {
	if w.Probability == 0 || w.Probability >= 1 {
		return true
	}
	s := w.Random.Derive(strconv.FormatInt(k, 10))
	return s.Chance(w.Probability)
}

// skipsMax bounds the number of beginnings at which the fault does not occur that next skips.
const skipsMax = 1 << 16

// next returns the first beginning, from number k on, at which the fault occurs. ok is false if
// there is none within skipsMax beginnings.
func (w *Window) next(k int64) (number int64, at vtime.Time, ok bool) {
	if w.Every == 0 {
		return 0, w.From, k == 0 && w.happens(0)
	}
	for range skipsMax {
		if w.happens(k) {
			return k, w.From.Add(w.Every.Times(k)), true
		}
		k++
	}
	return 0, 0, false
}
