// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/lab"
)

// outlierFactor is the number of medians from which on a report names the slowest iteration of a row.
const outlierFactor = 1.2

// pausedShare is the least share of an iteration in which a pause counts as its cause.
const pausedShare = 0.05

// Outlier is the slowest iteration of a row that has several, if it took at least 1.2 times the median.
type Outlier struct {
	Workload   string  `json:"workload"`
	Scheme     string  `json:"scheme"`
	SizeBytes  int     `json:"size_bytes"`
	Iteration  int     `json:"iteration,omitempty"` // from 1; 0: the workload reports no iterations
	Iterations int     `json:"iterations"`
	JCTUS      float64 `json:"jct_us"`
	Factor     float64 `json:"factor"` // of the median

	// PausedPort is the port that PFC paused longest in the iteration, by PausedBy, and PausedShare the part of the iteration. A
	// port that a host paused comes before those that switches paused. Empty: none was paused for 5 % of it.
	PausedPort  string  `json:"paused_port,omitempty"`
	PausedBy    string  `json:"paused_by,omitempty"`
	PausedShare float64 `json:"paused_share,omitempty"`
	// Faults are those of the lab file to which the pause is due; without a pause, all that were in force during the row.
	Faults []OutlierFault `json:"faults,omitempty"`
}

// OutlierFault is a fault that was in force.
type OutlierFault struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
}

// slowRow is a row that has an outlier, until the run ends: nodes' events, which have its cause, may come after the row.
type slowRow struct {
	Outlier
	from, to vtime.Time // of the slowest iteration; 0: not known
	faults   []apps.RowFault
}

// enterSlow enters the rows of a workload that have outliers, in place of those of an earlier measurement.
func (r *Record) enterSlow(w *Workload, rows []apps.Row, records [][][]byte) error {
	var iterations []apps.Message
	if t, tells := w.App.(apps.Messenger); tells {
		var err error
		if iterations, err = t.Messages(w.Params, records); err != nil {
			return err
		}
	}
	for i := range rows {
		x := &rows[i]
		r.slow = slices.DeleteFunc(r.slow, func(o slowRow) bool {
			return x.Workload == o.Workload && x.Scheme == o.Scheme && x.SizeBytes == o.SizeBytes
		})
		if x.Iterations < 2 || x.JCT.P50 <= 0 || x.JCT.Max < outlierFactor*x.JCT.P50 {
			continue
		}
		o := slowRow{faults: x.Faults, Outlier: Outlier{
			Workload: x.Workload, Scheme: x.Scheme, SizeBytes: x.SizeBytes, Iterations: x.Iterations,
			JCTUS: x.JCT.Max, Factor: x.JCT.Max / x.JCT.P50,
		}}
		if slowest := slowestOf(iterations, x); slowest != nil {
			o.Iteration, o.from, o.to = slowest.Iteration, slowest.Start, slowest.Start.Add(took(slowest))
		}
		r.slow = append(r.slow, o)
	}
	return nil
}

// outliers returns the outliers of the run with their causes, once all events are in.
func (r *Record) outliers() (all []Outlier) {
	for i := range r.slow {
		if r.met != nil {
			r.met.explain(&r.slow[i])
		}
		all = append(all, r.slow[i].Outlier)
	}
	return all
}

// slowestOf returns the iteration of a row that took longest, or nil if there are none.
func slowestOf(all []apps.Message, r *apps.Row) (slowest *apps.Message) {
	for i := range all {
		x := &all[i]
		if x.Scheme == r.Scheme && x.Bytes == r.SizeBytes && (slowest == nil || took(x) > took(slowest)) {
			slowest = x
		}
	}
	return slowest
}

// took returns the time of an iteration, until the last rank has all bytes.
func took(x *apps.Message) vtime.Duration {
	end := vtime.Time(-1)
	for _, at := range x.Received {
		end = max(end, at)
	}
	if end < 0 {
		end = x.Ended
	}
	return end.Sub(x.Start)
}

// explain enters the cause of an outlier, as far as pauses and the lab's faults show it.
func (m *meeting) explain(o *slowRow) {
	paused := m.pauses.longest(o.from, o.to)
	if share := float64(paused.took) / float64(max(1, o.to.Sub(o.from))); share >= pausedShare {
		o.PausedPort, o.PausedBy, o.PausedShare = m.pauses.g.PortName(paused.port), m.pauses.g.Nodes[paused.by].Name, share
	}
	for _, f := range o.faults {
		i := slices.IndexFunc(m.all, func(s faults.Spec) bool { return s.ID == f.ID })
		if f.Came && i >= 0 && (o.PausedBy == "" || slices.Contains(m.all[i].Nodes, paused.by)) {
			o.Faults = append(o.Faults, OutlierFault{f.ID, f.Kind})
		}
	}
}

// String returns the outlier in one line.
func (o *Outlier) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %v: slowest iteration", o.Scheme, lab.Size(o.SizeBytes))
	if o.Iteration > 0 {
		fmt.Fprintf(&b, " %d of %d", o.Iteration, o.Iterations)
	}
	fmt.Fprintf(&b, " took %.2f us, %.1f times the median", o.JCTUS, o.Factor)
	var words []string
	for _, f := range o.Faults {
		words = append(words, f.Kind+" "+f.ID)
	}
	list := "fault "
	if len(words) > 1 {
		list = "faults "
	}
	list += strings.Join(words, ", ")
	switch {
	case o.PausedBy != "":
		fmt.Fprintf(&b, "; %s was paused for %.0f %% of it by %s", o.PausedPort, 100*o.PausedShare, o.PausedBy)
		if len(words) > 0 {
			b.WriteString(" (" + list + ")")
		}
	case len(words) > 0:
		b.WriteString("; in force during the row: " + list)
	}
	return b.String() + "."
}
