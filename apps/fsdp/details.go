// SPDX-License-Identifier: Apache-2.0

package fsdp

import "github.com/mcastlab/mcastlab/apps"

// Overlap holds the details of a row of fsdp. The JCT of the row ends when both halves have ended.
type Overlap struct {
	Allgather     string       `json:"allgather"`
	ReduceScatter string       `json:"reduce_scatter"`
	Gathered      apps.Summary `json:"allgather_us"`      // time until the last rank has all blocks
	Reduced       apps.Summary `json:"reduce_scatter_us"` // time until the last rank has its sums
}

// Key implements apps.Details.
func (*Overlap) Key() string { return Name }

// Quantity implements apps.Details.
func (o *Overlap) Quantity(name, of, which string) (v float64, known bool, err error) {
	switch of {
	case "allgather":
		v, err = o.Gathered.Statistic(name, which)
	case "reduce-scatter":
		v, err = o.Reduced.Statistic(name, which)
	default:
		return 0, false, nil
	}
	return v, true, err
}

// Columns implements apps.Columned.
func (o *Overlap) Columns() (table, csv []apps.Column) {
	return []apps.Column{{Head: "Allgather(us)", Cell: apps.Fixed(o.Gathered.Avg, 2)}, {Head: "Reduce-scatter(us)", Cell: apps.Fixed(o.Reduced.Avg, 2)}},
		[]apps.Column{{Head: "allgather_avg_us", Cell: apps.Fixed(o.Gathered.Avg, 6)}, {Head: "reduce_scatter_avg_us", Cell: apps.Fixed(o.Reduced.Avg, 6)}}
}
