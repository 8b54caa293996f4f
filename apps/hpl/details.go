package hpl

import (
	"fmt"

	"github.com/mcastlab/mcastlab/apps"
)

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

// Key implements apps.Details.
func (*Solve) Key() string { return Name }

// Quantity implements apps.Details: what a phase took, summed over all panels.
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
	}
	return 0, true, fmt.Errorf("%s: no phase %q: use broadcast, swap or factor", name, which)
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
