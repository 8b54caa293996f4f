package faults

import (
	"strconv"

	"github.com/mcastlab/mcastlab/prng"
	"github.com/mcastlab/mcastlab/vtime"
)

// Window says when a fault is on: from an instant on for a while, and perhaps again and
// again.
type Window struct {
	From  vtime.Time
	For   vtime.Duration // 0: without end; of a fault that only happens, at once over
	Every vtime.Duration // from one beginning to the next; 0: it comes once
	// Probability is that of each time it would come; 0 means 1. Random decides: a stream
	// of its own, of which each time takes another part, so that all who ask agree.
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

// Over reports whether the fault never comes again.
func (w *Window) Over(now vtime.Time) bool {
	return w.Every == 0 && w.For > 0 && now >= w.From.Add(w.For)
}

// happens reports whether time number k, from 0 on, comes about.
func (w *Window) happens(k int64) bool {
	if w.Probability == 0 || w.Probability >= 1 {
		return true
	}
	s := w.Random.Derive(strconv.FormatInt(k, 10))
	return s.Chance(w.Probability)
}

// looks bounds how many times that do not come about are skipped in one look.
const looks = 1 << 16

// next returns the first beginning, from number k on, that comes about.
func (w *Window) next(k int64) (number int64, at vtime.Time, ok bool) {
	if w.Every == 0 {
		return 0, w.From, k == 0 && w.happens(0)
	}
	for range looks {
		if w.happens(k) {
			return k, w.From.Add(w.Every.Times(k)), true
		}
		k++
	}
	return 0, 0, false
}
