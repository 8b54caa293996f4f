// SPDX-License-Identifier: Apache-2.0

package hpl

import (
	"reflect"
	"strings"
	"testing"
)

// dat is the HPL.dat of the distribution, with fewer values and two names.
const dat = `HPLinpack benchmark input file
Innovative Computing Laboratory, University of Tennessee
HPL.out      output file name (if any)
6            device out (6=stdout,7=stderr,file)
2            # of problems sizes (N)
29 30        Ns
2            # of NBs
1 2          NBs
0            PMAP process mapping (0=Row-,1=Column-major)
2            # of process grids (P x Q)
2 1          Ps
2 4          Qs
16.0         threshold
3            # of panel fact
0 1 2        PFACTs (0=left, 1=Crout, 2=Right)
2            # of recursive stopping criterium
2 4          NBMINs (>= 1)
1            # of panels in recursion
2            NDIVs
1            # of recursive panel fact.
1            RFACTs (0=left, 1=Crout, 2=Right)
3            # of broadcast
0 5 cepheus  BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1            # of lookahead depth
0            DEPTHs (>=0)
2            SWAP (0=bin-exch,1=long,2=mix)
64           swapping threshold
0            L1 in (0=transposed,1=no-transposed) form
0            U  in (0=transposed,1=no-transposed) form
1            Equilibration (0=no,1=yes)
8            memory alignment in double (> 0)
`

func TestParseDat(t *testing.T) {
	in, err := ParseDat(dat)
	if err != nil {
		t.Fatal(err)
	}
	want := &Input{
		N: []int{29, 30}, NB: []int{1, 2}, Grids: [][2]int{{2, 2}, {1, 4}}, Threshold: 16, PFact: []string{Left, Crout, Right},
		NBMin: []int{2, 4}, NDiv: []int{2}, RFact: []string{Crout}, Bcast: []string{"1ring", "longM", "cepheus"}, Depth: []int{0},
		Swap: SwapMix, SwapThreshold: 64,
	}
	if !reflect.DeepEqual(in, want) {
		t.Errorf("%+v, want %+v", in, want)
	}
	tests := in.Tests()
	if len(tests) != 2*2*2*3*3*2 {
		t.Errorf("%d tests", len(tests))
	}
	seen := map[string]bool{}
	for i := range tests {
		x := &tests[i]
		if err := x.Check(4); err != nil {
			t.Error(err)
		}
		seen[x.Label] = true
	}
	if got := tests[7].Label + " " + tests[7].TV(); got != "longM_2x2_nb1_WR05C2L4 WR05C2L4" {
		t.Errorf("the eighth test is %s", got)
	}
	if len(seen) != len(tests)/2 {
		t.Errorf("%d labels of %d tests of two sizes", len(seen), len(tests))
	}
}

func TestParseDatErrors(t *testing.T) {
	lines := strings.Split(dat, "\n")
	for i := range datLines { // every truncation
		if _, err := ParseDat(strings.Join(lines[:i], "\n")); err == nil {
			t.Errorf("the first %d lines are taken", i)
		}
	}
	for _, c := range []struct {
		line       int
		text, want string
	}{
		{5, "x Ns", "line 5: a value is not a whole number"},
		{5, "21", "line 5: a list has 1 to 20 values"},
		{5, "3", "line 6: a value is not a whole number"},
		{6, "29", "line 6: 1 values, it needs 2"},
		{9, "2", "line 9: a value is no choice there is: use 0 to 1, or row, column"},
		{13, "high", "line 13: the threshold is not a number"},
		{15, "0 1 3", "line 15: a value is no choice there is: use 0 to 2, or left"},
		{23, "0 9999 1", "line 23: a value is no choice there is: use 0 to "},
		{30, "", "line 30: 0 values, it needs 1"},
	} {
		l := strings.Split(dat, "\n")
		l[c.line-1] = c.text
		if _, err := ParseDat(strings.Join(l, "\n") + "\n"); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("line %d as %q: %v, want %s", c.line, c.text, err, c.want)
		}
	}
}

func FuzzParseDat(f *testing.F) {
	f.Add(dat)
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		in, err := ParseDat(text)
		if err != nil {
			return
		}
		if len(in.N) > valuesMax || len(in.PFact) > valuesMax || len(in.Grids) == 0 {
			t.Errorf("%+v", in)
		}
	})
}
