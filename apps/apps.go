// Package apps is what the workloads of a lab have in common: how a runtime starts
// them and the rows they report, with times as GEN-12 has them.
package apps

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/collective"
	"github.com/mcastlab/mcastlab/rank"
)

// App is a workload. Run is one rank's part; it gets the workload's parameters and
// hands records of what the rank measured to Rank.Emit as it goes, all as JSON, since
// ranks may be processes of their own. Reduce makes the report of the records of all
// ranks, in rank order; what not every rank has recorded yet is left out, so a run
// that is interrupted reports what it has.
type App interface {
	Run(r *rank.Rank, params []byte) error
	Reduce(params []byte, records [][][]byte) ([]Row, error)
}

// Row is one line of a report: a scheme at a size. Field names are part of the
// schema mcastlab/run/v1.
type Row struct {
	Workload   string `json:"workload"`
	Scheme     string `json:"scheme"`
	SizeBytes  int    `json:"size_bytes"`
	Ranks      int    `json:"ranks"`
	Iterations int    `json:"iterations"`
	WarmUp     int    `json:"warm_up,omitempty"` // iterations before them, which are not in the times
	Payload    string `json:"payload"`           // bytes, hashed, phantom, or PayloadOwn
	// External names the ranks that are real devices: of their times nothing is claimed.
	External []string `json:"external,omitempty"`
	Sum      string   `json:"sha256,omitempty"` // of the last message, if external hosts take part
	JCT      Summary  `json:"jct_us"`
	Source   Summary  `json:"source_us"`
	Verified *bool    `json:"verified"`       // null: phantom, nothing to compare
	Late     bool     `json:"late,omitempty"` // the clock was too fast for the machine: the times are not the lab's
	// Details are what the row says of its own kind of workload; nil: nothing.
	Details Details `json:"-"`
	// Recovery is what all ranks did, all iterations together, beside the fast path of a
	// scheme that may lose data.
	Recovery *collective.Recovery `json:"recovery,omitempty"`
	// Safety is what all ranks did beside multicast, of a scheme with a fallback.
	Safety *collective.Safety `json:"fallback,omitempty"`
	// Others is JCT of the receivers that were not served by unicast while others were on the
	// tree; null: all were alike.
	Others *Summary `json:"others_jct_us,omitempty"`
	Lost   []string `json:"lost,omitempty"` // hosts that were given up; the row is of the others
	// Traffic is counted on the event clock, of a workload that has one row.
	Traffic *Traffic `json:"traffic,omitempty"`
}

// PayloadOwn is the Payload of a program of the user's own, whose business it is.
const PayloadOwn = "program"

// Traffic is what a workload's frames took on links, control and warm-up included: bytes
// without FCS, preamble and gap.
type Traffic struct {
	Links    uint64 `json:"links_bytes"`    // on all links, both directions
	Payload  uint64 `json:"payload_bytes"`  // of messages, without headers, on all links
	Sent     uint64 `json:"sent_bytes"`     // by the workload's hosts
	Received uint64 `json:"received_bytes"` // by them
}

// Recovered adds what a rank did to the row; nil is nothing to tell.
func (r *Row) Recovered(o *collective.Recovery) {
	if o == nil {
		return
	}
	if r.Recovery == nil {
		r.Recovery = &collective.Recovery{}
	}
	r.Recovery.Add(*o)
}

// Safeguarded adds what a rank did beside multicast to the row; nil is nothing to tell.
func (r *Row) Safeguarded(o *collective.Safety) {
	if o == nil {
		return
	}
	if r.Safety == nil {
		r.Safety = &collective.Safety{}
	}
	r.Safety.Add(*o)
}

// Printer is an App whose rows are not a table of sizes: it prints them itself.
type Printer interface {
	// Print returns the rows as text, lines with their ends.
	Print(params []byte, rows []Row) (string, error)
}

// Teller is an App whose ranks print lines of their own.
type Teller interface {
	// Lines returns them as text, with their ends.
	Lines(records [][][]byte) (string, error)
}

// Summary is the distribution of a time over iterations, in microseconds.
type Summary struct {
	Avg float64  `json:"avg"`
	Min float64  `json:"min"`
	Max float64  `json:"max"`
	P50 float64  `json:"p50"`
	P99 *float64 `json:"p99"` // null under p99Samples samples
}

// Statistic returns avg, min, max, p50 or p99; name is of the quantity, for messages.
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

// p99Samples is how many samples a 99th percentile needs to mean something.
const p99Samples = 100

// Summarize returns the distribution of samples, of which there is at least one.
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

// quantile returns the nearest-rank percentile of sorted samples; for an even number
// of samples the median is the mean of the middle two.
func quantile(s []float64, percent int) float64 {
	if percent == 50 && len(s)%2 == 0 {
		return (s[len(s)/2-1] + s[len(s)/2]) / 2
	}
	i := (len(s)*percent + 99) / 100
	return s[max(1, i)-1]
}
