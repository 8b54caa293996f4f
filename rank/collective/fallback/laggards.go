// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// reports are those of the members of a group, except its source, about the current message. Each
// member has the same place in all of the lists.
type reports struct {
	reached  []bool       // it has answered and its adapter can be reached
	expected [][]uint32   // the PSN that it expected at each sample, as in answer
	came     []vtime.Time // when it had the message; 0: it has not
}

// reportsOf returns what some members have answered to a sample.
func reportsOf(c *call, members []int) (p reports) {
	for _, i := range members {
		a := c.answer(i)
		if a == nil {
			a = &answer{}
		}
		p.expected, p.came = append(p.expected, a.Expected), append(p.came, a.Came)
		p.reached = append(p.reached, c.reached(i))
	}
	return p
}

// lags returns how many packets each member was behind the foremost, on average over the
// samples that it took.
func (p reports) lags() []float64 {
	sum, n := make([]float64, len(p.expected)), make([]float64, len(p.expected))
	for k := range samples {
		at := func(i int) (psn uint32, ok bool) {
			if all := p.expected[i]; k < len(all) && all[k] != missed {
				return all[k], true
			}
			return 0, false
		}
		var foremost uint32
		some := false
		for i := range p.expected {
			if v, ok := at(i); ok && (!some || rankhost.Lag(v, foremost) > 0) {
				foremost, some = v, true
			}
		}
		for i := range p.expected {
			if v, ok := at(i); ok {
				sum[i] += float64(rankhost.Lag(foremost, v))
				n[i]++
			}
		}
	}
	for i := range sum {
		sum[i] /= max(1, n[i])
	}
	return sum
}

// arrivals returns when the first and the last of the members had the message. Both are 0 if
// any of them lacks it.
func (p reports) arrivals() (first, last vtime.Time) {
	first = vtime.Never
	for _, at := range p.came {
		if at == 0 {
			return 0, 0
		}
		first, last = min(first, at), max(last, at)
	}
	return first, last
}

// laggards returns the places of the members that hold up the others, if they are at most a
// quarter of the members, or one. These are the members that were not reached, and those that
// are behind by at least floor packets and by a quarter of what the last one is behind. If
// nobody is behind by floor packets, they are instead those that got the message in the second
// half of the time from the first to the last arrival, provided that this half is at least
// half of the normal time of a message.
func (p reports) laggards(floor float64, normal vtime.Duration) (places []int) {
	lag := p.lags()
	worst := slices.Max(append(slices.Clone(lag), 0))
	first, last := p.arrivals()
	spread := last.Sub(first)
	for i := range lag {
		behind := worst >= floor && lag[i] >= max(floor, worst/4)
		late := worst < floor && spread >= normal/2 && p.came[i].Sub(first) >= spread/2
		if !p.reached[i] || behind || late {
			places = append(places, i)
		}
	}
	if len(places) > max(1, len(lag)/4) {
		return nil
	}
	return places
}
