// SPDX-License-Identifier: Apache-2.0

package manycast

import (
	"strconv"

	"github.com/mcastlab/mcastlab/apps"
)

// Spread holds the details of a row of many-to-many.
type Spread struct {
	Sources  int          `json:"sources"`
	Members  int          `json:"members"`
	Messages float64      `json:"messages"`     // mean number of messages received in an iteration
	Entries  int          `json:"entries"`      // entries in the switches' multicast tables, the most in any iteration
	Updates  float64      `json:"updates"`      // mean number of entries that were set, changed or removed from one iteration to the next
	Latency  apps.Summary `json:"latency_us"`   // over iterations, of the mean over the messages of one
	Goodput  apps.Summary `json:"goodput_gbps"` // over iterations, of the bytes all members received per time of one
}

// Key implements apps.Details.
func (*Spread) Key() string { return "many_to_many" }

// Quantity implements apps.Details.
func (s *Spread) Quantity(name, of, which string) (v float64, known bool, err error) {
	switch of {
	case "latency":
		v, err = s.Latency.Statistic(name, which)
	case "goodput":
		v, err = s.Goodput.Statistic(name, which)
	default:
		return 0, false, nil
	}
	return v, true, err
}

// Columns implements apps.Columned.
func (s *Spread) Columns() (table, csv []apps.Column) {
	return []apps.Column{{Head: "Latency(us)", Cell: apps.Fixed(s.Latency.Avg, 2)}, {Head: "Gb/s", Cell: apps.Fixed(s.Goodput.Avg, 2)}},
		[]apps.Column{
			{Head: "sources", Cell: strconv.Itoa(s.Sources)}, {Head: "members", Cell: strconv.Itoa(s.Members)},
			{Head: "latency_avg_us", Cell: apps.Fixed(s.Latency.Avg, 6)}, {Head: "goodput_avg_gbps", Cell: apps.Fixed(s.Goodput.Avg, 6)},
		}
}
