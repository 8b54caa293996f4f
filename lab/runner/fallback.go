// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// causesShown is the largest number of causes of fallbacks that a table lists for a row.
const causesShown = 3

// beside returns a line for each row with a fallback, with its actions beside multicast.
func beside(rows []apps.Row) string {
	var b strings.Builder
	for _, r := range rows {
		s := r.Safety
		if s == nil || s.Fallbacks+s.Returns+s.Overlay+s.Apart+len(r.Lost) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s %s at %v: %s", r.Workload, r.Scheme, lab.Size(r.SizeBytes), movements(s))
		if r.Others != nil {
			fmt.Fprintf(&b, "; receivers on the tree had messages after %.2f us (median)", r.Others.P50)
		}
		if len(r.Lost) > 0 {
			fmt.Fprintf(&b, "; %s was given up", strings.Join(r.Lost, ", "))
		}
		b.WriteString(".\n")
	}
	return b.String()
}

// movements describes a row's fallbacks and returns to multicast.
func movements(s *collective.Safety) string {
	times := func(n int) string {
		if n == 1 {
			return "once"
		}
		return fmt.Sprintf("%d times", n)
	}
	var parts []string
	if s.Fallbacks > 0 {
		why := s.Causes
		more := ""
		if len(why) > causesShown {
			why, more = why[:causesShown], " and so on"
		}
		parts = append(parts, fmt.Sprintf("left multicast %s (%s%s)", times(s.Fallbacks), strings.Join(why, "; "), more))
	}
	if s.Returns > 0 {
		parts = append(parts, "came back "+times(s.Returns))
	}
	if s.Overlay > 0 {
		parts = append(parts, fmt.Sprintf("sent by unicast %s", times(s.Overlay)))
	}
	if s.Apart > 0 {
		parts = append(parts, fmt.Sprintf("to single receivers %s", times(s.Apart)))
	}
	return strings.Join(parts, ", ")
}
