package manycast

import (
	"strconv"

	"github.com/mcastlab/mcastlab/apps"
)

// Spread is what a row of many-to-many says beside its time.
type Spread struct {
	Sources  int          `json:"sources"`
	Members  int          `json:"members"`
	Messages float64      `json:"messages"`     // that came in an iteration, mean
	Entries  int          `json:"entries"`      // of the switches' multicast tables, most of any iteration
	Latency  apps.Summary `json:"latency_us"`   // of an iteration: mean over its messages
	Goodput  apps.Summary `json:"goodput_gbps"` // of an iteration: what all members got, over its time
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
