// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/lab"
)

// sentences summarises the results in words: for each workload which scheme was the fastest at its
// largest and its smallest size and by how much, of several iterations by the median, and whether the
// bytes were right.
func sentences(rows []apps.Row) string {
	var out []string
	for len(rows) > 0 {
		n := slices.IndexFunc(rows, func(r apps.Row) bool { return r.Workload != rows[0].Workload })
		if n < 0 {
			n = len(rows)
		}
		text := verdict(rows[:n])
		if _, beside := rows[0].Details.(apps.Uncompared); !beside {
			text = comparison(rows[:n]) + " " + text
		}
		out = append(out, text)
		rows = rows[n:]
	}
	return strings.Join(out, "\n")
}

func comparison(rows []apps.Row) string {
	largest, smallest := rows[0].SizeBytes, rows[0].SizeBytes
	for _, r := range rows {
		largest, smallest = max(largest, r.SizeBytes), min(smallest, r.SizeBytes)
	}
	s := atSize(rows, largest, fmt.Sprintf(" to %d ranks", rows[0].Ranks))
	if smallest != largest {
		s += "; " + atSize(rows, smallest, "")
	}
	return s + "."
}

// atSize compares the schemes at one size with the fastest of them.
func atSize(rows []apps.Row, size int, to string) string {
	var at []apps.Row
	for _, r := range rows {
		if r.SizeBytes == size {
			at = append(at, r)
		}
	}
	slices.SortStableFunc(at, func(a, b apps.Row) int { return cmp.Compare(a.JCT.P50, b.JCT.P50) })
	s := fmt.Sprintf("%v%s: %s %.2f us%s", lab.Size(size), to, at[0].Scheme, at[0].JCT.P50, medianOf(&at[0]))
	for _, r := range at[1:] {
		s += fmt.Sprintf(", %s %.2fx", r.Scheme, r.JCT.P50/at[0].JCT.P50)
	}
	if how := unlike(at); how != "" {
		s += ", but the schemes met different faults: " + how
	}
	return s
}

// medianOf returns the note that a row's time is a median, or nothing for one iteration, whose time it
// is.
func medianOf(r *apps.Row) string {
	if r.Iterations < 2 {
		return ""
	}
	return fmt.Sprintf(" (median of %d)", r.Iterations)
}

func verdict(rows []apps.Row) string {
	wrong, unknown, lacking := 0, 0, 0
	for _, r := range rows {
		switch {
		case r.Verified == nil:
			unknown++
		case len(r.Unconfirmed) > 0:
			lacking++
		case !*r.Verified:
			wrong++
		}
	}
	switch {
	case wrong > 0:
		return fmt.Sprintf("Wrong bytes arrived in %d of %d rows.", wrong, len(rows))
	case lacking > 0:
		return fmt.Sprintf("In %d of %d rows an external host lacks data, or the root its last acknowledgement.", lacking, len(rows))
	case unknown == len(rows):
		return "The payload was phantom: no byte was compared."
	case unknown > 0:
		return fmt.Sprintf("Every byte that was there to compare was right; the payload of %s was phantom.", setting.Counted(unknown, "row"))
	}
	return "Every byte was right at every receiver."
}
