// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/hpl"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// hpccinf asks hpcc for two orders, of which the second is not a multiple of NB, on two grids.
// The threshold is so low that every residual fails: hpcc prints the norms only of those that
// do.
const hpccinf = `HPLinpack benchmark input file
-
HPL.out      output file name
8            device out
2            # of problems sizes (N)
240 157      Ns
1            # of NBs
48           NBs
0            PMAP process mapping (0=Row-,1=Column-major)
2            # of process grids (P x Q)
1 2          Ps
1 2          Qs
0.000001     threshold
1            # of panel fact
2            PFACTs (0=left, 1=Crout, 2=Right)
1            # of recursive stopping criterium
4            NBMINs (>= 1)
1            # of panels in recursion
2            NDIVs
1            # of recursive panel fact.
1            RFACTs (0=left, 1=Crout, 2=Right)
1            # of broadcast
1            BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1            # of lookahead depth
1            DEPTHs (>=0)
2            SWAP (0=bin-exch,1=long,2=mix)
64           swapping threshold
0            L1 in (0=transposed,1=no-transposed) form
0            U  in (0=transposed,1=no-transposed) form
1            Equilibration (0=no,1=yes)
8            memory alignment in double (> 0)
##### This line (no. 32) is ignored (it serves as a separator). ######
0            Number of additional problem sizes for PTRANS
1            values of N
0            number of additional blocking sizes for PTRANS
1            values of NB
`

const hpccLab = `name: hpcc
topology: {star: {hosts: 4}}
workloads:
  - hpl: {n: [240, 157], nb: [48], grids: [1x1, 2x2], bcast: [1ringM, cepheus]}
`

// TestHPCC: the five norms of each solved system are those that HPL prints for it, so that
// matrix and solution are HPL's.
func TestHPCC(t *testing.T) {
	program, mpirun := tool(t, "hpcc"), tool(t, "mpirun")
	want := hpcc(t, mpirun, program)
	l, err := lab.Parse("hpcc", []byte(hpccLab))
	if err != nil {
		t.Fatal(err)
	}
	r, err := runner.Simulate(t.Context(), l, runner.Options{Base: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Failures(); len(f) > 0 || len(r.Results) != 8 || len(want) != 4 {
		t.Fatalf("%d rows of ours, want 8; %d of hpcc, want 4; %v", len(r.Results), len(want), f)
	}
	for _, row := range r.Results {
		s := apps.DetailsOf[hpl.Solve](row)
		system := fmt.Sprintf("N %d, NB %d, %d x %d", s.N, s.NB, s.P, s.Q)
		if s.Norms == nil {
			t.Fatalf("%s: the report has no norms", system)
		}
		ours := [5]float64{s.Norms.AOo, s.Norms.A1, s.Norms.XOo, s.Norms.X1, s.Norms.BOo}
		for i, name := range []string{"||A||_oo", "||A||_1", "||x||_oo", "||x||_1", "||b||_oo"} {
			// hpcc prints six digits, and adds numbers in an order of its own.
			if math.Abs(ours[i]-want[system][i]) > 1e-6 {
				t.Errorf("%s: %s is %.6f, hpcc has %.6f", system, name, ours[i], want[system][i])
			}
		}
	}
}

// hpcc runs hpcc and returns the norms of each system: of A (oo, 1), x (oo, 1) and b.
func hpcc(t *testing.T, mpirun, program string) map[string][5]float64 {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hpccinf.txt"), []byte(hpccinf), 0o600); err != nil {
		t.Fatal(err)
	}
	// Waiting processes yield, since there may be fewer than four processors.
	cmd := exec.CommandContext(t.Context(), mpirun, "--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-n", "4", program)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("hpcc: %v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "hpccoutf.txt"))
	if err != nil {
		t.Fatal(err)
	}
	const norm = `\|\|\w\|\|_\w+[ .]+= +([0-9.]+)\n`
	found := regexp.MustCompile(`\nW\w+ +(\d+) +(\d+) +(\d+) +(\d+) .*\n(?:.*\n){3}` + norm + norm + norm + norm + norm)
	systems := map[string][5]float64{}
	for _, m := range found.FindAllSubmatch(text, -1) {
		var v [5]float64
		for i := range v {
			if v[i], err = strconv.ParseFloat(string(m[5+i]), 64); err != nil {
				t.Fatal(err)
			}
		}
		systems[fmt.Sprintf("N %s, NB %s, %s x %s", m[1], m[2], m[3], m[4])] = v
	}
	return systems
}
