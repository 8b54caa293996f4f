// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/mcastlab/mcastlab/apps"
)

// Course holds the details of a row of flows: the progress of a flow beside the others of its workload.
type Course struct {
	Flow       string       `json:"flow"`
	Receivers  int          `json:"receivers"`
	Messages   int          `json:"messages"` // that each receiver got
	BeginUS    float64      `json:"begin_us"` // since the start of the workload
	EndUS      float64      `json:"end_us"`   // no message was begun from then on
	LastUS     float64      `json:"last_us"`  // the last receiver had everything
	IntervalUS float64      `json:"interval_us"`
	Goodput    apps.Summary `json:"goodput_gbps"` // over the intervals that lie between begin and end
	Rates      []float64    `json:"rates_gbps"`   // by interval, from the start of the workload on: mean over the receivers
	Beside     []Pair       `json:"beside"`       // by flow of the workload, itself included; null if there are more than 100 flows

	all []*Course // those of the workload, unless the row was read from a file
}

// Pair holds the shares of two flows that are under way together. Both are looked at over the later half of the
// time for which both are under way; with the flow itself that is the later half of its own.
type Pair struct {
	Flow     string   `json:"flow"`
	Goodput  *float64 `json:"goodput_gbps"` // null: the two are never under way together for an interval
	Fairness *float64 `json:"fairness"`     // Jain's index of the two, 0.5 to 1; null likewise
	// RegainUS is the time after the other's last byte until the flow has 95 % of its highest rate for an interval;
	// if it never has, the time until its own end. 0: it has ended by then.
	RegainUS float64 `json:"regain_us"`
}

// The quantities of a flow beside its goodput.
const (
	quantityBeside   = "beside"
	quantityFairness = "fairness"
	quantityRegain   = "regain"
	quantityRate     = "rate"
)

// Key implements apps.Details.
func (*Course) Key() string { return "course" }

// Quantity implements apps.Details.
func (c *Course) Quantity(name, of, which string) (v float64, known bool, err error) {
	switch of {
	case "goodput":
		v, err = c.Goodput.Statistic(name, which)
		return v, true, err
	case quantityRate:
		n, err := strconv.Atoi(which)
		if err != nil || n < 1 {
			return 0, true, fmt.Errorf("%s: there is no interval %q", name, which)
		}
		if n > len(c.Rates) {
			return 0, true, nil // the flow had ended
		}
		return c.Rates[n-1], true, nil
	case quantityBeside, quantityFairness, quantityRegain:
		p, err := c.beside(name, which)
		if err != nil {
			return 0, true, err
		}
		v, err := p.of(name, of)
		return v, true, err
	}
	return 0, false, nil
}

// beside returns the Pair of the flow and the one of a name.
func (c *Course) beside(name, which string) (Pair, error) {
	if i := slices.IndexFunc(c.Beside, func(p Pair) bool { return p.Flow == which }); i >= 0 {
		return c.Beside[i], nil
	}
	if i := slices.IndexFunc(c.all, func(o *Course) bool { return o.Flow == which }); i >= 0 {
		return c.pair(c.all[i]), nil
	}
	if c.Beside == nil && c.all == nil {
		return Pair{}, fmt.Errorf("%s: the files of a run with more than %d flows do not say what two have beside each other: run it again", name, keptMax)
	}
	return Pair{}, fmt.Errorf("%s: there is no flow %q", name, which)
}

// of returns a quantity of the pair.
func (p *Pair) of(name, of string) (float64, error) {
	v := &p.RegainUS
	switch of {
	case quantityBeside:
		v = p.Goodput
	case quantityFairness:
		v = p.Fairness
	}
	if v == nil {
		return 0, fmt.Errorf("%s: the two are not under way together for a whole interval", name)
	}
	return *v, nil
}

// BesideOthers implements apps.Uncompared.
func (*Course) BesideOthers() {}

// Columns implements apps.Columned.
func (c *Course) Columns() (table, csv []apps.Column) {
	return []apps.Column{{Head: "Messages", Cell: strconv.Itoa(c.Messages)}, {Head: "Gb/s", Cell: apps.Fixed(c.Goodput.Avg, 2)}},
		[]apps.Column{
			{Head: "receivers", Cell: strconv.Itoa(c.Receivers)}, {Head: "flow_messages", Cell: strconv.Itoa(c.Messages)},
			{Head: "flow_goodput_avg_gbps", Cell: apps.Fixed(c.Goodput.Avg, 6)},
		}
}
