// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/lab"
)

// WriteBaseline writes a table of a run beside the run of the same lab without its faults, row by row: the median JCT in
// microseconds or, of rows that have one, the average goodput in Gb/s. The ratio is the faulted run's over the other's. Rows that the
// faulted run did not reach have a dash; workloads that print their own output have no rows.
func (r *Report) WriteBaseline(w io.Writer, without *Report) error {
	rows := without.tabled()
	if len(rows) == 0 {
		return nil
	}
	type key struct {
		workload, scheme string
		bytes            int
	}
	of := func(x *apps.Row) key { return key{x.Workload, x.Scheme, x.SizeBytes} }
	faulted := map[key][]*apps.Row{} // several where workloads have one name
	for i := range r.Results {
		x := &r.Results[i]
		faulted[of(x)] = append(faulted[of(x)], x)
	}
	workloads := slices.ContainsFunc(rows, func(x apps.Row) bool { return x.Workload != rows[0].Workload })
	var cells [][]string
	for i := range rows {
		x := &rows[i]
		name := x.Scheme
		if workloads {
			name = x.Workload + "." + name
		}
		before, unit := measured(x)
		line := []string{name, lab.Size(x.SizeBytes).String(), fmt.Sprintf("%.2f %s", before, unit), "-", "-"}
		if all := faulted[of(x)]; len(all) > 0 {
			after, _ := measured(all[0])
			faulted[of(x)], line[3] = all[1:], fmt.Sprintf("%.2f %s", after, unit)
			if before > 0 {
				line[4] = strconv.FormatFloat(after/before, 'f', 2, 64) + "x"
			}
		}
		cells = append(cells, line)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nWithout the faults (%s) and with them (%s):\n", without.RunDir, r.RunDir)
	align(&b, []string{"# Scheme", "Size", "Without", "With", "Ratio"}, cells)
	_, err := io.WriteString(w, b.String())
	return err
}

// measured returns the value by which a row is compared with another run's, and its unit.
func measured(x *apps.Row) (v float64, unit string) {
	if x.Details != nil {
		if v, known, err := x.Details.Quantity(x.Scheme, "goodput", "avg"); known && err == nil {
			return v, "Gb/s"
		}
	}
	return x.JCT.P50, "us"
}
