// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/rank/collective"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// ReportSchema names the format of summary.json and of run --format json.
const ReportSchema = "mcastlab/run/v1"

// Report is the result of a run. Its JSON is stable: fields are added, never changed.
type Report struct {
	Schema   string        `json:"schema"`
	Lab      string        `json:"lab"`
	Runtime  string        `json:"runtime"`
	Seed     uint64        `json:"seed"`
	Digest   string        `json:"digest"`
	RunDir   string        `json:"run_dir"`
	Fidelity Fidelity      `json:"fidelity"`
	Results  []apps.Row    `json:"results"`
	Expect   []Expectation `json:"expect"`
	// Outliers are the slowest iterations of rows with several that took much longer than the median, with their cause.
	Outliers []Outlier `json:"outliers,omitempty"`
	// Plots are pictures of JCT against size, of broadcasts with several sizes, and of flows' throughput over time. Beside each is its CSV.
	Plots []string `json:"plots,omitempty"`

	// Texts are the output of workloads beside tables of sizes.
	Texts []string `json:"texts,omitempty"`

	// Faults are those of the lab file and, in a running lab, those added by hand.
	Faults []FaultRow `json:"faults,omitempty"`

	// Acts are the manual faults of a run in virtual time.
	Acts []faults.Act `json:"acts,omitempty"`

	// External are the steps that the operators of external hosts were asked to take, in order.
	External []rankhost.Step `json:"external,omitempty"`

	// Counters are the totals by kind of node (docs/counters.md).
	Counters map[string]counters.Totals `json:"counters,omitempty"`

	// Nodes are the counters of each node, as in counters.json.
	Nodes []counters.Node `json:"-"`

	// Remarks are caveats for readers of the results.
	Remarks []string `json:"remarks,omitempty"`

	folder *Folder // nil: the report was read

	CaptureCut uint64 `json:"-"` // frames that no longer fitted into the captures

	// EventsCut are events that are missing because nodes had no room for them until they
	// could be sent. What is measured does not depend on them.
	EventsCut uint64 `json:"events_missing,omitempty"`
}

// Fidelity is the verdict on whether the server kept up with the lab's clock, so that the
// times are those of the lab.
type Fidelity struct {
	Verdict string `json:"verdict"` // ok, or violated
	Reason  string `json:"reason"`
	// Reasons is everything that was violated, Reason the first of it.
	Reasons  []string `json:"reasons,omitempty"`
	Dilation float64  `json:"dilation"`
	LagUS    float64  `json:"lag_us"`

	Rows []RowFidelity `json:"rows,omitempty"` // on a wall clock
}

// RowFidelity is the measure by which one row is judged: links that its last byte depends on, times the
// 99th percentile of a departure's lag, over its JCT.
type RowFidelity struct {
	Workload  string  `json:"workload"`
	Scheme    string  `json:"scheme"`
	SizeBytes int     `json:"size_bytes"`
	Dilation  float64 `json:"dilation"`
	Links     int     `json:"links"`
	LagUS     float64 `json:"lag_us"` // lab time
	Share     float64 `json:"share"`
	OK        bool    `json:"ok"`
	External  bool    `json:"external,omitempty"` // nothing is claimed of its times
	Repeats   int     `json:"repeats,omitempty"`  // times it was measured before, when the server was late
}

// of returns the verdict on one row: ok, violated, or not claimed for a row with external hosts.
func (f *Fidelity) of(row apps.Row) string {
	switch {
	case row.Late:
		return "violated"
	case len(row.External) > 0 || unclocked(&row):
		return "not claimed"
	}
	return f.Verdict
}

// unclocked reports whether the times of a row are not the lab's.
func unclocked(row *apps.Row) bool {
	_, is := row.Details.(apps.Unclocked)
	return is
}

// write writes the verdict on a run in real time; for a simulation it writes nothing.
func (f *Fidelity) write(b *strings.Builder) {
	if len(f.Rows) == 0 {
		return
	}
	fmt.Fprintf(b, "fidelity: %s, dilation up to %g\n", f.Verdict, f.Dilation)
	for _, reason := range f.Reasons {
		fmt.Fprintf(b, "  NOT TRUE TO TIME: %s\n", reason)
	}
	for _, r := range f.Rows {
		if r.Repeats > 0 {
			fmt.Fprintf(b, "  %s %s at %v was measured again, more slowly, because the server had been late (%d times)\n",
				r.Workload, r.Scheme, lab.Size(r.SizeBytes), r.Repeats)
		}
	}
}

// virtualClock is the fidelity of every simulated run: nothing can be late.
func virtualClock() Fidelity { return Fidelity{Verdict: "ok", Reason: "virtual clock", Dilation: 1} }

// Expectation is a line of the lab's expect and whether it held. Got is the value of its left side, null
// if there is none: a quantity that it names was not measured, or a side is infinite or not a number. Then
// Why has the reason in words, for JSON has no such numbers.
type Expectation struct {
	Text  string   `json:"text"`
	Basis string   `json:"basis,omitempty"` // CAL or PRED (lab.Expect)
	Got   *float64 `json:"got"`
	OK    bool     `json:"ok"`
	Why   string   `json:"why,omitempty"`
}

// Evaluate compares lines of expect with the values that look returns for the quantities in them.
func Evaluate(lines []string, look lab.Lookup) []Expectation {
	out := []Expectation{}
	for _, text := range lines {
		e := Expectation{Text: text}
		x, err := lab.ParseExpect(text)
		if err == nil {
			e.Basis = x.Basis
			var got float64
			if got, e.OK, err = x.Eval(look); err == nil {
				e.Got = &got
			}
		}
		if err != nil {
			e.OK, e.Why = false, err.Error()
		}
		out = append(out, e)
	}
	return out
}

// quantity returns the value of WORKLOAD.SCHEME.SIZE.jct|source.STATISTIC in microseconds, or of a
// quantity of the row's details, as HPL's WORKLOAD.SCHEME.SIZE.sum.PHASE, or
// WORKLOAD.SCHEME.SIZE.bytes.links|payload|sent|received. Sizes that mean the same number of bytes are
// the same. WORKLOAD.SCHEME.SIZE.fallback|recovery.COUNT are counts of the row.
func quantity(name string, rows []apps.Row) (float64, error) {
	part := strings.Split(name, ".")
	if len(part) != 5 {
		return 0, fmt.Errorf("%s is not WORKLOAD.SCHEME.SIZE.jct.p50", name)
	}
	size, err := lab.ParseSize(part[2])
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	for _, r := range rows {
		if r.Workload != part[0] || r.Scheme != part[1] || r.SizeBytes != int(size) {
			continue
		}
		switch part[3] {
		case "jct":
			return r.JCT.Statistic(name, part[4])
		case "source":
			return r.Source.Statistic(name, part[4])
		case "bytes":
			return traffic(name, r.Traffic, part[4])
		case "fallback":
			return fellBack(name, r.Safety, part[4])
		case "recovery":
			return repairs(name, r.Recovery, part[4])
		}
		if r.Details != nil {
			if v, known, err := r.Details.Quantity(name, part[3], part[4]); known {
				return v, err
			}
		}
		return 0, fmt.Errorf("%s: no quantity %q: use jct, source, bytes, fallback or recovery", name, part[3])
	}
	return 0, fmt.Errorf("%s was not measured", name)
}

// remark adds facts that the results do not show by themselves.
func (r *Report) remark(l *lab.Lab) {
	if cc := l.NICs.Congestion; cc != "none" && len(r.Counters) > 0 && r.Counters["switch"].Counts["marked"] == 0 {
		r.Remarks = append(r.Remarks, fmt.Sprintf("Congestion control never acted: nics.congestion is %s, and no switch marked a packet.", cc))
	}
}

// Quantity returns the value of a quantity that a line of expect may name (lab.Expect).
func (r *Report) Quantity(name string) (float64, error) { return quantity(name, r.Results) }

// traffic returns the bytes that a workload of one row took.
func traffic(name string, t *apps.Traffic, which string) (float64, error) {
	if t == nil {
		return 0, fmt.Errorf("%s: bytes are counted only in the runtime sim, for a workload with one scheme and one size", name)
	}
	switch which {
	case "links":
		return float64(t.Links), nil
	case "payload":
		return float64(t.Payload), nil
	case "sent":
		return float64(t.Sent), nil
	case "received":
		return float64(t.Received), nil
	}
	return 0, fmt.Errorf("%s: no bytes %q: use links, payload, sent or received", name, which)
}

// fellBack returns a counter of the fallback to unicast, summed over all ranks.
func fellBack(name string, s *collective.Safety, which string) (float64, error) {
	if s == nil {
		return 0, fmt.Errorf("%s: the scheme has no fallback", name)
	}
	counts := map[string]int{"fallbacks": s.Fallbacks, "returns": s.Returns, "probes": s.Probes, "overlay": s.Overlay, "apart": s.Apart, "restarted": s.Restarted}
	return counted(name, counts, which)
}

// repairs returns a count of the recoveries from loss of all ranks.
func repairs(name string, r *collective.Recovery, which string) (float64, error) {
	if r == nil {
		return 0, fmt.Errorf("%s: the scheme loses nothing that its ranks recover", name)
	}
	counts := map[string]int{"cutoffs": r.Cutoffs, "requests": r.Requests, "fetched": r.Fetched, "duplicates": r.Duplicates, "stale": r.Stale}
	return counted(name, counts, which)
}

func counted(name string, counts map[string]int, which string) (float64, error) {
	n, ok := counts[which]
	if !ok {
		return 0, fmt.Errorf("%s: no count %q: use %s", name, which, strings.Join(slices.Sorted(maps.Keys(counts)), ", "))
	}
	return float64(n), nil
}

// WriteFile writes a file into the folder of a run that has ended in this process.
func (r *Report) WriteFile(name string, b []byte) error { return r.folder.WriteFile(name, b) }

// Failures returns one line for each row that did not verify and each expectation that
// does not hold.
func (r *Report) Failures() (lines []string) {
	for _, row := range r.Results {
		var own []string
		if j, ok := row.Details.(apps.Judge); ok {
			own = j.Failures(&row)
		}
		if len(row.Unconfirmed) > 0 {
			own = append(own, fmt.Sprintf("%s %s at %v: %s", row.Workload, row.Scheme, lab.Size(row.SizeBytes), apps.LacksText(row.Unconfirmed)))
		}
		if lines = append(lines, own...); len(own) == 0 && row.Verified != nil && !*row.Verified {
			lines = append(lines, fmt.Sprintf("%s %s at %v: a receiver got wrong bytes", row.Workload, row.Scheme, lab.Size(row.SizeBytes)))
		}
	}
	for _, e := range r.Expect {
		if why := e.Failure(); why != "" {
			lines = append(lines, why)
		}
	}
	return lines
}

// Failure returns the reason why the line fails, or nothing if it holds.
func (e *Expectation) Failure() string {
	switch {
	case e.OK:
		return ""
	case e.Why != "":
		return fmt.Sprintf("expect %q cannot be checked: %s", e.Text, e.Why)
	case e.Got == nil: // as older versions wrote it
		return fmt.Sprintf("expect %q cannot be checked", e.Text)
	default:
		return fmt.Sprintf("expect %q does not hold: its left side is %.6g", e.Text, *e.Got)
	}
}
