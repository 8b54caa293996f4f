// Package apps is what the workloads of a lab have in common: how a runtime starts
// them and the rows they report.
package apps

import (
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
	Payload    string `json:"payload"`           // bytes, hashed, phantom, or program: its own business
	// External names the ranks that are real devices: of their times nothing is claimed.
	External []string `json:"external,omitempty"`
	Sum      string   `json:"sha256,omitempty"` // of the last message, if external hosts take part
	JCT      Summary  `json:"jct_us"`
	Source   Summary  `json:"source_us"`
	Verified *bool    `json:"verified"`        // null: phantom, nothing to compare
	Late     bool     `json:"late,omitempty"`  // the clock was too fast for the machine: the times are not the lab's
	Wrong    []string `json:"wrong,omitempty"` // checks of a program that failed, the first ones
	Solve    *Solve   `json:"hpl,omitempty"`
	Spread   *Spread  `json:"many_to_many,omitempty"`
	Overlap  *Overlap `json:"fsdp,omitempty"`
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
	// IO is what a row of storage says beside its times: JCT is from when an IO is submitted
	// to its end, Source to the acknowledgement of its last copy, each over all IOs.
	IO *IO `json:"storage,omitempty"`
}

// Spread is what a row of many-to-many says beside its time.
type Spread struct {
	Sources  int     `json:"sources"`
	Members  int     `json:"members"`
	Messages float64 `json:"messages"`     // that came in an iteration, mean
	Entries  int     `json:"entries"`      // of the switches' multicast tables, most of any iteration
	Latency  Summary `json:"latency_us"`   // of an iteration: mean over its messages
	Goodput  Summary `json:"goodput_gbps"` // of an iteration: what all members got, over its time
}

// Overlap is what a row of fsdp says beside its time, which is until both halves are done.
type Overlap struct {
	Allgather     string  `json:"allgather"`
	ReduceScatter string  `json:"reduce_scatter"`
	Gathered      Summary `json:"allgather_us"`      // until the last rank has all blocks
	Reduced       Summary `json:"reduce_scatter_us"` // until the last rank has its sums
}

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

// IO is what a row of storage says beside its times.
type IO struct {
	Mode        string    `json:"rw"` // write or randwrite
	Durability  string    `json:"durability"`
	Depth       int       `json:"iodepth"`
	Jobs        int       `json:"numjobs"`
	Replicas    int       `json:"replicas"` // that are left at the end
	IOs         int       `json:"ios"`      // that have ended
	RuntimeUS   float64   `json:"runtime_us"`
	IOPS        float64   `json:"iops"`
	Submit      Summary   `json:"slat_us"`
	Percentiles []float64 `json:"percentiles_us"` // IOPercentiles, of the whole latency
	Deviation   float64   `json:"stdev_us"`
	Lost        []string  `json:"lost,omitempty"` // replicas that failed, and why
	LostWhy     string    `json:"lost_why,omitempty"`
	Found       int       `json:"found"`             // writes that the stores had when the IOs began
	Copied      int       `json:"copied"`            // blocks that recoveries copied
	Problem     string    `json:"problem,omitempty"` // what the read-back found
	Error       string    `json:"error,omitempty"`   // what the IOs ended with
}

// IOPercentiles returns the percentiles that fio reports.
func IOPercentiles() []float64 {
	return []float64{1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99}
}

// Solve is what a row of HPL says beside its time.
type Solve struct {
	N        int      `json:"n"`
	NB       int      `json:"nb"`
	P        int      `json:"p"`
	Q        int      `json:"q"`
	Variant  string   `json:"variant"` // HPL's T/V
	Bcast    string   `json:"bcast"`
	Swap     string   `json:"swap"`
	Depth    int      `json:"depth"`
	Epochs   int      `json:"epochs"`   // panels factorised
	GFlops   *float64 `json:"gflops"`   // of all hosts, in lab time; null: not all panels
	Residual *float64 `json:"residual"` // null: cost-only, or not asked for
	Passed   *bool    `json:"passed"`
	Norms    *Norms   `json:"norms,omitempty"`     // absent where there is no residual
	Factors  string   `json:"lu_sha256,omitempty"` // of L, U and what became of b
	// Times of the phases, each summed over the panels: broadcasts from the root's post to
	// the last receiver, row swaps from the last process that begins to the last that ends
	// (of the slowest process column), panel factorisations with their messages.
	BroadcastUS float64 `json:"broadcast_us"`
	SwapUS      float64 `json:"swap_us"`
	FactorUS    float64 `json:"factor_us"`
	// Bytes that ranks received, over all of them.
	BroadcastBytes int `json:"broadcast_bytes"`
	SwapBytes      int `json:"swap_bytes"`
}

// Norms are the norms of a system A x = b, as HPL prints them: _oo is the largest sum of
// a row's absolute values, _1 that of a column's.
type Norms struct {
	AOo float64 `json:"a_oo"`
	A1  float64 `json:"a_1"`
	XOo float64 `json:"x_oo"`
	X1  float64 `json:"x_1"`
	BOo float64 `json:"b_oo"`
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
