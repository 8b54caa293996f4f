// SPDX-License-Identifier: Apache-2.0

// Package hpl is the High-Performance Linpack benchmark (APP-3). It solves a dense system of
// linear equations by LU factorisation with row exchanges on a grid of P by Q processes, and
// checks the solution as HPL does. The computation is real, and its lab time is modelled, so that
// results do not depend on the computer that runs the lab. A cost-only run sends the same messages
// and computes nothing (APP-4).
//
// One step of the factorisation (HPL_pdgesv):
//
//	panel factorisation  a process column finds pivots and eliminates NB columns
//	panel broadcast      each process row broadcasts the result to its processes
//	update               each process column swaps rows and gathers the block row U,
//	                     then every process solves for U and updates its part
package hpl

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// Name is the workload's name in lab files.
const Name = "hpl"

// Ways to swap rows and gather U (HPL.dat's SWAP).
const (
	SwapExchange  = "exchange"  // binary exchange
	SwapLong      = "long"      // spread, equalise, roll
	SwapMix       = "mix"       // exchange up to a number of columns, long above
	SwapMulticast = "multicast" // each owner sends its rows to the column's group
)

// Variants of panel factorisation. They differ in when a column is updated with the columns to its
// left.
const (
	Left  = "left"
	Crout = "crout"
	Right = "right"
)

// Distributions of pivots in a cost-only run.
const (
	PivotsUniform     = "uniform"     // the rows of U come from all process rows in equal shares
	PivotsCentralised = "centralised" // all of them come from the last process row
)

// Who broadcasts a panel in a cost-only run. Gleam's §5.3 has each process of a row "perform one" panel
// broadcast, which both give the same number of flows (APP-4).
const (
	RootsOwner = "owner" // the process that factorised it
	RootsAll   = "all"   // each process of the row an equal share, in turn
)

// Params holds the benchmark's parameters.
type Params struct {
	Workload  string  `json:"workload"` // label in reports
	Tests     []Test  `json:"tests"`
	Threshold float64 `json:"threshold"` // residuals below it pass; if negative, no residual is computed
	GFlops    float64 `json:"gflops"`    // rate of a host in 10^9 operations per second of lab time; 0 means that computing takes no time
	CostOnly  bool    `json:"cost_only"`
	Epochs    int     `json:"epochs"`             // cost-only: number of panels to factorise; 0 means all
	Pivots    string  `json:"pivots"`             // cost-only: distribution of pivots
	Roots     string  `json:"roots,omitempty"`    // cost-only: who broadcasts a panel; empty means its owner
	Fallback  string  `json:"fallback,omitempty"` // fallback of broadcasts and swaps by multicast (collective.Options)
}

// Test is one combination of HPL.dat's parameters.
type Test struct {
	Label         string `json:"label"` // scheme in reports
	N             int    `json:"n"`     // order of the matrix
	NB            int    `json:"nb"`
	P             int    `json:"p"`
	Q             int    `json:"q"`
	ColumnMajor   bool   `json:"column_major"` // PMAP: ranks go down the grid's columns first
	Bcast         string `json:"bcast"`
	Slices        int    `json:"slices"` // of broadcast chain; 0 means one per rank
	Depth         int    `json:"depth"`  // of look-ahead, 0 or 1
	Swap          string `json:"swap"`
	SwapThreshold int    `json:"swap_threshold"` // columns, for mix
	PFact         string `json:"pfact"`
	RFact         string `json:"rfact"`
	NBMin         int    `json:"nbmin"` // columns at which the recursion of rfact ends
	NDiv          int    `json:"ndiv"`  // parts of a panel in the recursion
}

// nbMax is the largest width of a panel. It keeps the buffers of a panel's factorisation small.
// HPL's manual uses up to 256.
const nbMax = 1024

// messageMax is the longest message, in bytes.
const messageMax = 1 << 31

// Check returns an error if the test is not valid for the given number of ranks.
func (t *Test) Check(ranks int) error {
	swaps := Swaps()
	facts := []string{Left, Crout, Right}
	switch {
	case t.N < 1:
		return fmt.Errorf("a matrix of order %d: N must be at least 1", t.N)
	case t.N > math.MaxInt32:
		return fmt.Errorf("a matrix of order %d: N is at most %d", t.N, math.MaxInt32)
	case t.NB < 1 || t.NB > t.N:
		return fmt.Errorf("blocks of %d columns do not fit a matrix of order %d: NB must be from 1 to N", t.NB, t.N)
	case t.NB > nbMax:
		return fmt.Errorf("blocks of %d columns: NB is at most %d", t.NB, nbMax)
	case t.P < 1 || t.Q < 1 || t.P > ranks || t.Q > ranks || t.P*t.Q > ranks:
		return fmt.Errorf("a grid of %d x %d does not fit %d ranks", t.P, t.Q, ranks)
	case (t.N/min(t.P, t.Q)+2*t.NB)*t.NB*word > messageMax:
		return fmt.Errorf("order %d with blocks of %d on %d x %d makes messages of more than the 2GiB that RoCE allows", t.N, t.NB, t.P, t.Q)
	case !slices.Contains(Bcasts(), t.Bcast):
		return fmt.Errorf("no panel broadcast %q: use %s", t.Bcast, strings.Join(Bcasts(), ", "))
	case t.Depth < 0 || t.Depth > 1:
		return fmt.Errorf("look-ahead of depth %d: use 0 or 1", t.Depth)
	case !slices.Contains(swaps, t.Swap):
		return fmt.Errorf("no row swap %q: use %s", t.Swap, strings.Join(swaps, ", "))
	case !slices.Contains(facts, t.PFact) || !slices.Contains(facts, t.RFact):
		return fmt.Errorf("panel factorisations %q and %q: use %s", t.PFact, t.RFact, strings.Join(facts, ", "))
	case t.NBMin < 1 || t.NDiv < 2 || t.SwapThreshold < 0 || t.Slices < 0:
		return fmt.Errorf("nbmin %d, ndiv %d, swap threshold %d, slices %d: they are at least 1, 2, 0 and 0", t.NBMin, t.NDiv, t.SwapThreshold, t.Slices)
	}
	return nil
}

// Check returns an error if the parameters are not valid for the given number of ranks.
func (p *Params) Check(ranks int) error {
	switch {
	case len(p.Tests) == 0:
		return fmt.Errorf("no test: give at least one N, NB, grid and broadcast")
	case p.GFlops < 0:
		return fmt.Errorf("%v GFLOP/s: give the rate of a host, or 0 for computing that takes no time", p.GFlops)
	case p.CostOnly && p.Pivots != PivotsUniform && p.Pivots != PivotsCentralised:
		return fmt.Errorf("pivots cannot be %q: use %s or %s", p.Pivots, PivotsUniform, PivotsCentralised)
	case !slices.Contains([]string{"", RootsOwner, RootsAll}, p.Roots):
		return fmt.Errorf("panel-roots cannot be %q: use %s or %s", p.Roots, RootsOwner, RootsAll)
	case p.Roots == RootsAll && !p.CostOnly:
		return fmt.Errorf("panel-roots: %s divides panels among processes that do not have them: set cost-only: true", RootsAll)
	case p.Epochs < 0 || p.Epochs > 0 && !p.CostOnly:
		return fmt.Errorf("%d epochs: a run of some panels only is for cost-only", p.Epochs)
	}
	for i := range p.Tests {
		if err := p.Tests[i].Check(ranks); err != nil {
			return err
		}
	}
	return nil
}

// TV returns the code T/V that HPL prints for the variant of the test. The code of a broadcast that HPL does not have is X.
func (t *Test) TV() string {
	pmap := "R"
	if t.ColumnMajor {
		pmap = "C"
	}
	b := "X"
	if i := slices.Index(ringNames(), t.Bcast); i >= 0 {
		b = fmt.Sprint(i)
	}
	fact := func(s string) string { return strings.ToUpper(s[:1]) }
	return fmt.Sprintf("W%s%d%s%s%d%s%d", pmap, t.Depth, b, fact(t.RFact), t.NDiv, fact(t.PFact), t.NBMin)
}

// String describes the test for the progress line.
func (t *Test) String() string {
	return fmt.Sprintf("%s, N %d, NB %d, %d x %d, %s", t.TV(), t.N, t.NB, t.P, t.Q, t.Bcast)
}

// panelRoots returns the number of processes of a row that broadcast a panel.
func (p *Params) panelRoots(t *Test) int {
	if p.Roots == RootsAll {
		return t.Q
	}
	return 1
}

// SerialMessages returns an upper bound of the number of messages of a test that depend on each
// other, if the given number of processes of a row broadcast each panel. The delay of each departure
// may add to the test's time.
func (t *Test) SerialMessages(roots int) (n int) {
	g := &geometry{Test: *t}
	pivots := len(agreement(0, t.P))
	for k := range g.panels() {
		n += g.width(k)*pivots + roots*(t.Q+exchanges(t.Q)) + t.P + exchanges(t.P) + exchanges(t.Q) + exchanges(t.P)
	}
	return n
}

// ringNames returns the names of HPL's own panel broadcasts (HPL_bcast.c), in the order of HPL.dat's
// BCAST.
func ringNames() []string { return []string{"1ring", "1ringM", "2ring", "2ringM", "long", "longM"} }

// Swaps returns the names of all row swaps.
func Swaps() []string { return []string{SwapExchange, SwapLong, SwapMix, SwapMulticast} }

// Bcasts returns the names of all panel broadcasts: HPL's in the order of HPL.dat, then
// the others of package collective.
func Bcasts() []string {
	names := ringNames()
	for _, n := range collective.Names() {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// App is the benchmark. It implements apps.App and apps.Printer.
type App struct {
	// Spoil, if set, is called on each rank before the solution is checked. Tests use it to damage
	// the solution and see that the check fails.
	Spoil func(r *rank.Rank, x []float64)
}

// Run implements apps.App.
func (a App) Run(r *rank.Rank, raw []byte) error {
	program, err := a.Shared(raw)
	if err != nil {
		return err
	}
	return program(r)
}

// Shared implements apps.Sharing.
func (a App) Shared(raw []byte) (func(r *rank.Rank) error, error) {
	return apps.Share(Name, raw, a.run)
}

// run runs all tests. It changes nothing of the parameters.
func (a App) run(r *rank.Rank, p *Params) error {
	if err := p.Check(r.Size()); err != nil {
		return fmt.Errorf("hpl: %w", err)
	}
	for i := range p.Tests {
		if err := a.runTest(r, p, i); err != nil {
			return p.failed(i, err)
		}
	}
	return nil
}

// failed returns the error of a test.
func (p *Params) failed(test int, err error) error {
	return fmt.Errorf("%s %s: %w", p.Workload, p.Tests[test].TV(), err)
}

// runTest runs one test. Ranks outside the grid wait for its end.
//
// It is in parts that each leave the stack before the next begins: all ranks of a large job wait in one of them at once.
func (a App) runTest(r *rank.Rank, p *Params, i int) error {
	t := &p.Tests[i]
	if r.ID() == 0 {
		r.Report(p.Workload + " " + t.String())
	}
	if r.ID() >= t.P*t.Q {
		r.Sync()
		return nil
	}
	s := newSolver(r, p, i)
	s.spoil = a.Spoil
	if err := s.connect(); err != nil {
		return err
	}
	if err := s.prepare(); err != nil {
		return err
	}
	if err := s.run(); err != nil {
		return err
	}
	if err := s.emit(); err != nil {
		return err
	}
	r.Sync()
	return s.close()
}
