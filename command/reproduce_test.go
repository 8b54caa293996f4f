// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// reproduced runs the command with arguments, and returns what it says.
func reproduced(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), append([]string{"mcastlab", "reproduce"}, args...), nil, &o, &e, hooks{})
	return code, o.String(), e.String()
}

// TestReproduce: one result by its id and one by its figure, in the order of the papers, with their files; a
// second time nothing is run.
func TestReproduce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	for i, args := range [][]string{{"gleam-fig-9", "r-c22", "-o", dir}, {"-j", "3", "-o", dir, "R-C22", "R-G1"}} {
		code, out, said := reproduced(t, args...)
		if code != exitOK || !strings.HasPrefix(out, "R-C22 ") || !strings.Contains(out, "\nR-G1 ") || !strings.Contains(out, "2 results: 2 in band") {
			t.Fatalf("%v: exit %d\n%s%s", args, code, out, said)
		}
		if !strings.Contains(said, "\n3 labs took ") {
			t.Errorf("%v: nothing is said of the time:\n%s", args, said)
		}
		if again := strings.Count(said, "measured before"); again != 3*i {
			t.Errorf("%v: %d labs were measured before:\n%s", args, again, said)
		}
	}
	var figures struct {
		Schema string
		Lines  []struct {
			ID  string
			Got *float64
			OK  bool `json:"in_band"`
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "reproduction.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &figures); err != nil || len(figures.Lines) != 5 {
		t.Fatalf("%v: %s", err, b)
	}
	for _, l := range figures.Lines {
		if l.Got == nil || !l.OK {
			t.Errorf("%s: %v, %v", l.ID, l.Got, l.OK)
		}
	}
	for _, name := range []string{"reproduction.html", "reproduction.md", "figures/gleam-fig-9.svg", "figures/gleam-fig-9.csv"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReproduceUsage: what is asked wrongly is said in one line, and nothing is run or written.
func TestReproduceUsage(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		args []string
		code int
		said string
	}{
		{[]string{"unknown"}, exitUsage, `no result or figure is called "unknown"`},
		{[]string{"cepheus-fig-80"}, exitUsage, "did you mean"},
		{[]string{"--quick", "--full"}, exitUsage, "--quick or --full"},
		{[]string{"--jobs", "0"}, exitUsage, "--jobs 0: use 1 to 64"},
		{[]string{"R-C19", "-o", "/dev/null/x"}, exitRuntime, "not a directory"},
	} {
		code, out, said := reproduced(t, c.args...)
		if code != c.code || out != "" || !strings.Contains(said, c.said) || strings.Count(said, "\n") != 1 {
			t.Errorf("%v: exit %d, %q, %q", c.args, code, out, said)
		}
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	code, out, said := reproduced(t, "--list")
	if code != exitOK || said != "" || !strings.Contains(out, "R-A20") || !strings.Contains(out, "figures: cyclic-fig-17") {
		t.Errorf("--list: exit %d, %s\n%s", code, said, out)
	}
}
