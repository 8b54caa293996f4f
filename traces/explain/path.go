// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Limits of a critical path as text; as JSON it has all steps.
const (
	legSteps    = 6  // so many steps in a row at one port are one line
	pathLines   = 40 // a longer path is the places at which most of its time went
	placesShown = 10
)

// leg is a line of a critical path: a step, or steps in a row at one port, which take turns there.
type leg struct {
	from, to int64
	at, what string
}

// legsOf gathers the steps of a path.
func legsOf(path []Step) (legs []leg) {
	for len(path) > 0 {
		n := 1
		for n < len(path) && path[n].At == path[0].At {
			n++
		}
		if n >= legSteps {
			_, what := sum(path[:n])
			legs = append(legs, leg{path[0].From, path[n-1].To, path[0].At, fmt.Sprintf("%s (%d steps)", what, n)})
		} else {
			for _, s := range path[:n] {
				legs = append(legs, leg{s.From, s.To, s.At, s.label()})
			}
		}
		path = path[n:]
	}
	return legs
}

// sum returns the time of steps, and their parts with the microseconds of each, the longest first.
func sum(steps []Step) (all int64, what string) {
	var parts []string
	sums := map[string]int64{}
	for _, s := range steps {
		part := s.label()
		if _, seen := sums[part]; !seen {
			parts = append(parts, part)
		}
		sums[part] += s.To - s.From
		all += s.To - s.From
	}
	slices.SortStableFunc(parts, func(a, b string) int { return cmp.Compare(sums[b], sums[a]) })
	for i, p := range parts {
		parts[i] = p + " " + us(sums[p])
	}
	return all, strings.Join(parts, ", ")
}

// writePath writes the critical path of a message, with times from its beginning. Of a long one it writes the places at which most of the
// time went, the longest first.
func writePath(w io.Writer, m *Message, path []Step) error {
	legs := legsOf(path)
	if len(legs) > pathLines {
		return writePlaces(w, m, path)
	}
	if _, err := fmt.Fprintf(w, "\nCritical path, to %s:\n", m.Worst); err != nil {
		return err
	}
	rows := [][]string{{"From(us)", "To(us)", "Where", "What"}}
	for _, l := range legs {
		rows = append(rows, []string{us(l.from - m.Start), us(l.to - m.Start), l.at, l.what})
	}
	return table(w, 0, rows)
}

// writePlaces writes the places of a path: ports, and hosts.
func writePlaces(w io.Writer, m *Message, path []Step) error {
	type place struct {
		at, what string
		time     int64
	}
	at := map[string][]Step{}
	var places []place
	for _, s := range path {
		if at[s.At] == nil {
			places = append(places, place{at: s.At})
		}
		at[s.At] = append(at[s.At], s)
	}
	for i := range places {
		places[i].time, places[i].what = sum(at[places[i].at])
	}
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(b.time, a.time) })
	which := "its"
	if n := len(places); n > placesShown {
		places, which = places[:placesShown], fmt.Sprintf("the %d longest of its %d", placesShown, n)
	}
	if _, err := fmt.Fprintf(w, "\nCritical path, to %s: %d steps, which --format json has; %s places:\n", m.Worst, len(path), which); err != nil {
		return err
	}
	rows := [][]string{{"Where", "Time(us)", "Share", "What"}}
	for _, x := range places {
		rows = append(rows, []string{x.at, us(x.time), fmt.Sprintf("%.1f%%", 100*float64(x.time)/float64(max(1, m.JCT))), x.what})
	}
	return table(w, 0, rows)
}
