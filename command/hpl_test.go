// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/hpl"
)

// TestHPL runs the example, whose parameters are in an HPL.dat, and reads its JSON.
func TestHPL(t *testing.T) {
	o := call(t, hooks{}, "", "run", "--format", "json", "--runs", t.TempDir(), "-q", "--check", "../examples/hpl.mcl.yml")
	if o.code != 0 || o.err != "" {
		t.Fatalf("exit %d, %s", o.code, o.err)
	}
	var r struct {
		Results []apps.Row
		Texts   []string
		Expect  []struct{ OK bool }
	}
	if err := json.Unmarshal([]byte(o.out), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Results) != 10 || len(r.Texts) != 2 || len(r.Expect) != 3 {
		t.Fatalf("%d rows, %d texts, %d expectations", len(r.Results), len(r.Texts), len(r.Expect))
	}
	for _, x := range r.Results {
		s := apps.DetailsOf[hpl.Solve](x)
		if s == nil || s.Passed == nil || !*s.Passed || x.Verified == nil || !*x.Verified || *s.GFlops <= 0 || *s.GFlops > 200 || len(s.Factors) != 64 || s.Norms == nil || x.JCT.Avg <= 0 {
			t.Errorf("row %+v %+v", x, s)
		}
	}
	for _, key := range []string{"a_oo", "a_1", "x_oo", "x_1", "b_oo"} {
		if n := strings.Count(o.out, `"`+key+`": `); n != 10 {
			t.Errorf("the report has norm %s of %d rows, not 10", key, n)
		}
	}
	if n := strings.Count(strings.Join(r.Texts, ""), " ...... PASSED\n"); n != 10 {
		t.Errorf("%d of 10 tests are printed as passed:\n%s", n, r.Texts)
	}
}

// TestHPLFails: a residual that is not below the threshold fails the run; a mistake in the
// file is found before it.
func TestHPLFails(t *testing.T) {
	const text = "name: small\ntopology: {star: {hosts: 4}}\nworkloads:\n  - hpl: {n: [48], nb: [16], grids: [2x2], bcast: [1ring], threshold: 0.000001}\n"
	for _, c := range []struct {
		lab       string
		code      int
		out, err  string
		arguments []string
	}{
		{text, 1, " ...... FAILED\n", "hpl 1ring: the residual of ", nil},
		{text, 1, ",1ring,", "is not below the threshold", []string{"--format", "csv"}},
		{strings.Replace(text, "2x2", "4x2", 1), 3, "", "a grid of 4 x 2 does not fit 4 ranks", nil},
		{strings.Replace(text, "[48]", "[0]", 1), 3, "", "N must be at least 1", nil},
		{strings.Replace(text, "[16]", "[49]", 1), 3, "", "NB must be from 1 to N", nil},
	} {
		o := call(t, hooks{}, "", append(append([]string{"run", "--runs", t.TempDir(), "-q"}, c.arguments...), write(t, c.lab))...)
		if o.code != c.code || !strings.Contains(o.out, c.out) || !strings.Contains(o.err, c.err) {
			t.Errorf("exit %d, want %d with %q and %q\n%s%s", o.code, c.code, c.out, c.err, o.out, o.err)
		}
	}
}
