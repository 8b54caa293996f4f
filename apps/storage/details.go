// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/setting"
)

// IO holds the details of a row of storage. JCT of the row is the time from the submission of an IO
// to its end, and Source the time to the acknowledgement of its last copy, over all IOs.
type IO struct {
	Mode        string       `json:"rw"` // write or randwrite
	Durability  string       `json:"durability"`
	Depth       int          `json:"iodepth"`
	Jobs        int          `json:"numjobs"`
	Replicas    int          `json:"replicas"` // replicas that are left at the end
	IOs         int          `json:"ios"`      // IOs that have ended
	RuntimeUS   float64      `json:"runtime_us"`
	IOPS        float64      `json:"iops"`
	Submit      apps.Summary `json:"slat_us"`
	Percentiles []float64    `json:"percentiles_us"` // of the latency, one for each of IOPercentiles
	Deviation   float64      `json:"stdev_us"`
	Lost        []string     `json:"lost,omitempty"` // replicas that failed
	LostWhy     string       `json:"lost_why,omitempty"`
	Found       int          `json:"found"`             // writes that the stores had when the IOs began
	Copied      int          `json:"copied"`            // blocks that recoveries copied
	Problem     string       `json:"problem,omitempty"` // the first mistake that the read-back found
	Error       string       `json:"error,omitempty"`   // the error with which the IOs ended
}

// IOPercentiles returns the percentiles that fio reports.
func IOPercentiles() []float64 {
	return []float64{1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99}
}

// Key implements apps.Details.
func (*IO) Key() string { return Name }

// AfterTraffic implements apps.Trailing.
func (*IO) AfterTraffic() {}

// Quantity implements apps.Details.
func (o *IO) Quantity(name, of, which string) (v float64, known bool, err error) {
	if of != "io" {
		return 0, false, nil
	}
	switch which {
	case "iops":
		return o.IOPS, true, nil
	case "replicas":
		return float64(o.Replicas), true, nil
	case "copied":
		return float64(o.Copied), true, nil
	}
	return 0, true, fmt.Errorf("%s: no quantity %q: use iops, replicas or copied", name, which)
}

// Failures implements apps.Judge.
func (o *IO) Failures(row *apps.Row) []string {
	if o.Problem == "" {
		return nil
	}
	return []string{fmt.Sprintf("%s %s at %v: %s", row.Workload, row.Scheme, setting.Size(row.SizeBytes), o.Problem)}
}

// OwnText implements apps.Untabled.
func (*IO) OwnText() {}

// TookUS implements apps.Timed.
func (o *IO) TookUS() float64 { return o.RuntimeUS }
