// SPDX-License-Identifier: Apache-2.0

package program

import (
	"fmt"

	"github.com/mcastlab/mcastlab/apps"
)

// Wrong lists the first failed checks of a program.
type Wrong []string

// Key implements apps.Details.
func (*Wrong) Key() string { return "wrong" }

// Quantity implements apps.Details.
func (*Wrong) Quantity(string, string, string) (v float64, known bool, err error) {
	return 0, false, nil
}

// Failures implements apps.Judge.
func (w *Wrong) Failures(row *apps.Row) (lines []string) {
	for _, text := range *w {
		lines = append(lines, fmt.Sprintf("%s %s, %s", row.Workload, row.Scheme, text))
	}
	return lines
}
