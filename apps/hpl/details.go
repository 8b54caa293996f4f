// SPDX-License-Identifier: Apache-2.0

package hpl

import (
	"fmt"

	"github.com/mcastlab/mcastlab/apps"
)

// Solve holds the details of a row of HPL.
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
	GFlops   *float64 `json:"gflops"`   // of all hosts, in lab time; null if not all panels were factorised
	Residual *float64 `json:"residual"` // null in a cost-only run, or if it was not requested
	Passed   *bool    `json:"passed"`
	Norms    *Norms   `json:"norms,omitempty"`     // absent without a residual
	Factors  string   `json:"lu_sha256,omitempty"` // SHA-256 of L, U and the transformed b
	// Times of the phases, each summed over the panels. A broadcast lasts from the root's post to
	// the last receiver. A row swap lasts from the last process that begins to the last that ends,
	// in the slowest process column. A panel factorisation includes its messages.
	BroadcastUS float64 `json:"broadcast_us"`
	SwapUS      float64 `json:"swap_us"`
	FactorUS    float64 `json:"factor_us"`
	// Bytes that ranks received, over all of them.
	BroadcastBytes int `json:"broadcast_bytes"`
	SwapBytes      int `json:"swap_bytes"`
}

// Norms holds the norms of a system A x = b that HPL prints. _oo is the largest sum of the absolute
// values of a row, and _1 that of a column.
type Norms struct {
	AOo float64 `json:"a_oo"`
	A1  float64 `json:"a_1"`
	XOo float64 `json:"x_oo"`
	X1  float64 `json:"x_1"`
	BOo float64 `json:"b_oo"`
}

// Key implements apps.Details.
func (*Solve) Key() string { return Name }

// Quantity implements apps.Details. A quantity is the time of a phase, summed over all panels.
func (s *Solve) Quantity(name, of, which string) (v float64, known bool, err error) {
	if of != "sum" {
		return 0, false, nil
	}
	switch which {
	case "broadcast":
		return s.BroadcastUS, true, nil
	case "swap":
		return s.SwapUS, true, nil
	case "factor":
		return s.FactorUS, true, nil
	case "broadcast-bytes":
		return float64(s.BroadcastBytes), true, nil
	case "swap-bytes":
		return float64(s.SwapBytes), true, nil
	}
	return 0, true, fmt.Errorf("%s: no phase %q: use broadcast, swap or factor, or broadcast-bytes or swap-bytes", name, which)
}

// Failures implements apps.Judge.
func (s *Solve) Failures(row *apps.Row) []string {
	if s.Passed == nil || *s.Passed {
		return nil
	}
	return []string{fmt.Sprintf("%s %s: the residual of %.6g is not below the threshold", row.Workload, row.Scheme, *s.Residual)}
}

// OwnText implements apps.Untabled.
func (*Solve) OwnText() {}
