// SPDX-License-Identifier: Apache-2.0

// Package apps holds the parts that the workloads of a lab share: the interfaces by which a runtime
// starts them, and the rows that they report. GEN-12 defines the times of a row.
package apps

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// App is the program of a workload.
//
// Run is one rank's part. It takes the workload's parameters, and passes a record of each
// measurement to Rank.Emit while it runs. Parameters and records are JSON, because ranks may be
// separate processes.
//
// Reduce makes the report from the records of all ranks, which are given in rank order. It leaves out
// results that not every rank has recorded, so that an interrupted run reports the rest.
type App interface {
	Run(r *rank.Rank, params []byte) error
	Reduce(params []byte, records [][][]byte) ([]Row, error)
}

// Sharing is an App whose parameters all ranks of one process may share. Shared reads them once and returns a function that does the
// same as Run; to read them takes as long as a rank's part of a short broadcast, and a simulation has thousands of ranks.
type Sharing interface {
	Shared(params []byte) (func(r *rank.Rank) error, error)
}

// ProgramOf returns the function that runs the app on each rank of this process.
func ProgramOf(a App, params []byte) (func(r *rank.Rank) error, error) {
	if s, ok := a.(Sharing); ok {
		return s.Shared(params)
	}
	return func(r *rank.Rank) error { return a.Run(r, params) }, nil
}

// Share implements Sharing: it reads parameters, which run must not change.
func Share[P any](name string, raw []byte, run func(r *rank.Rank, p *P) error) (func(r *rank.Rank) error, error) {
	p := new(P)
	if err := Read(name, raw, p); err != nil {
		return nil, err
	}
	return func(r *rank.Rank) error { return run(r, p) }, nil
}

// Row is one line of a report: a scheme at a size. Field names are part of the
// schema mcastlab/run/v1.
type Row struct {
	Workload   string `json:"workload"`
	Scheme     string `json:"scheme"`
	SizeBytes  int    `json:"size_bytes"`
	Ranks      int    `json:"ranks"`
	Iterations int    `json:"iterations"`
	WarmUp     int    `json:"warm_up,omitempty"` // unmeasured iterations before them
	Payload    string `json:"payload"`           // bytes, hashed, phantom, or PayloadOwn
	// External names the ranks that are real devices. Nothing is claimed about their times.
	External []string `json:"external,omitempty"`
	Sum      string   `json:"sha256,omitempty"` // SHA-256 of the last message, if external hosts take part
	JCT      Summary  `json:"jct_us"`
	Source   Summary  `json:"source_us"`
	Verified *bool    `json:"verified"`       // null if the payload is phantom and cannot be compared
	Late     bool     `json:"late,omitempty"` // the computer could not keep up with the clock, so the times are not the lab's
	// Details holds the results that only this kind of workload reports. nil means none.
	Details Details `json:"-"`
	// Recovery counts the recoveries from loss of all ranks in all iterations, of a scheme whose
	// fast path may lose data.
	Recovery *collective.Recovery `json:"recovery,omitempty"`
	// Safety counts the actions of the fallback to unicast on all ranks, of a scheme that has one.
	Safety *collective.Safety `json:"fallback,omitempty"`
	// Others is the JCT of the receivers that multicast served while unicast served the others. It
	// is null if all receivers were served alike.
	Others *Summary `json:"others_jct_us,omitempty"`
	Lost   []string `json:"lost,omitempty"` // hosts that were given up; the row describes the others
	// Unconfirmed are external hosts of which it is not known that they have all, or as the root its acknowledgement. The row
	// is not verified then.
	Unconfirmed []collective.Lack `json:"unconfirmed,omitempty"`
	// Traffic is counted in simulations, for a workload that has one row.
	Traffic *Traffic `json:"traffic,omitempty"`
	// Faults are those of the lab file, as they met this row.
	Faults []RowFault `json:"faults,omitempty"`

	// Began and Ended are the times between which the row was under way, of a workload that is no Messenger. Without
	// Began it began when the row before it ended; without Ended its end is unknown, and it has the time of the whole
	// workload.
	Began vtime.Time `json:"-"`
	Ended vtime.Time `json:"-"`
}

// RowFault is a fault of the lab file as one row met it.
type RowFault struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	In   string `json:"in"`   // row or run: the start from which its times count
	Came bool   `json:"came"` // it was in force at some time of the row; false: the row did not reach it
	// Seen and Hit are as in the report's faults. They are null where several rows were measured in one
	// go, as with faults of the run they are.
	Seen *uint64 `json:"seen"`
	Hit  *uint64 `json:"hit"`
	// Numbered is set if it hits frames by their numbers, of which some rows have none if they count
	// through the run.
	Numbered bool `json:"-"`
}

// LacksText lists external hosts with their missing messages or acknowledgements, in one line.
func LacksText(all []collective.Lack) string {
	var words []string
	for _, l := range all {
		words = append(words, fmt.Sprintf("external host %s %s", l.Host, l.Why))
	}
	return strings.Join(words, "; ")
}

// PayloadOwn is the Payload of a user's program, which handles its own payload.
const PayloadOwn = "program"

// Traffic is the traffic of a workload in bytes, control packets and warm-up included. Frames are
// counted without FCS, preamble and interframe gap.
type Traffic struct {
	Links    uint64 `json:"links_bytes"`    // on all links, both directions
	Payload  uint64 `json:"payload_bytes"`  // of messages, without headers, on all links
	Sent     uint64 `json:"sent_bytes"`     // by the workload's hosts
	Received uint64 `json:"received_bytes"` // by them
}

// Recovered adds a rank's recoveries to the row. nil adds nothing.
func (r *Row) Recovered(o *collective.Recovery) {
	if o == nil {
		return
	}
	if r.Recovery == nil {
		r.Recovery = &collective.Recovery{}
	}
	r.Recovery.Add(*o)
}

// Safeguarded adds a rank's use of the fallback to the row. nil adds nothing.
func (r *Row) Safeguarded(o *collective.Safety) {
	if o == nil {
		return
	}
	if r.Safety == nil {
		r.Safety = &collective.Safety{}
	}
	r.Safety.Add(*o)
}

// Printer is an App that prints its rows itself, because they are not a table of sizes.
type Printer interface {
	// Print returns the rows as text. Each line ends with a newline.
	Print(params []byte, rows []Row) (string, error)
}

// Teller is an App whose ranks print lines.
type Teller interface {
	// Lines returns the lines of all ranks as text. Each line ends with a newline.
	Lines(records [][][]byte) (string, error)
}

// Summary is the distribution of a time over iterations, in microseconds.
type Summary struct {
	Avg float64  `json:"avg"`
	Min float64  `json:"min"`
	Max float64  `json:"max"`
	P50 float64  `json:"p50"`
	P99 *float64 `json:"p99"` // null if there are fewer than 100 samples
}

// Statistic returns the statistic avg, min, max, p50 or p99, in microseconds. name is the name of
// the quantity in errors. It is an error to ask for another statistic, or for a p99 that is null.
func (s Summary) Statistic(name, which string) (float64, error) {
	switch which {
	case "avg":
		return s.Avg, nil
	case "min":
		return s.Min, nil
	case "max":
		return s.Max, nil
	case "p50":
		return s.P50, nil
	case "p99":
		if s.P99 == nil {
			return 0, fmt.Errorf("%s needs at least 100 iterations", name)
		}
		return *s.P99, nil
	}
	return 0, fmt.Errorf("%s: no statistic %q: use avg, min, max, p50 or p99", name, which)
}

// p99Samples is the number of samples from which on a 99th percentile is reported.
const p99Samples = 100

// Summarize returns the distribution of samples in microseconds. There must be at least one.
func Summarize(samples []float64) Summary {
	s := slices.Clone(samples)
	slices.Sort(s)
	sum := 0.0
	for _, v := range s {
		sum += v
	}
	out := Summary{Avg: sum / float64(len(s)), Min: s[0], Max: s[len(s)-1], P50: quantile(s, 50)}
	if len(s) >= p99Samples {
		v := quantile(s, 99)
		out.P99 = &v
	}
	return out
}

// quantile returns the nearest-rank percentile of sorted samples. The median of an even number of
// samples is the mean of the middle two.
func quantile(s []float64, percent int) float64 {
	if percent == 50 && len(s)%2 == 0 {
		return (s[len(s)/2-1] + s[len(s)/2]) / 2
	}
	i := (len(s)*percent + 99) / 100
	return s[max(1, i)-1]
}
