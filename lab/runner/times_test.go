// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"encoding/csv"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
)

// TestTimes: the file of times has each rank in each iteration (GEN-11), and the report's JCT and source's
// time are statistics of its values. It has no warm-up.
func TestTimes(t *testing.T) {
	const text = `name: times
topology: {leaf-spine: {leaves: 2, spines: 1, hosts: 2}}
times: WHICH
workloads:
  - bcast: {schemes: [cepheus, chain], root: h1, sizes: [64B, 64KiB], iterations: 3, warm-up: 1}
  - allgather: {schemes: [ring], sizes: [16KiB], iterations: 2}
  - storage: {client: h0, schemes: [unicasts], bs: [512B], size: 4KiB}
`
	none, _ := simulated(t, strings.Replace(text, "times: WHICH\n", "", 1))
	if _, err := os.Stat(filepath.Join(none.RunDir, TimesFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a run that is not asked for times: %v", err)
	}
	r, _ := simulated(t, strings.Replace(text, "WHICH", "ranks", 1))
	if r.Digest != none.Digest {
		t.Errorf("digest %s with times, %s without", r.Digest, none.Digest)
	}
	f, err := os.Open(filepath.Join(r.RunDir, TimesFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(lines[0], ",") + "\n"; got != timesHead {
		t.Errorf("the head is %s", got)
	}
	if want := 4*3*4 + 2*4; len(lines)-1 != want {
		t.Errorf("%d lines, want %d", len(lines)-1, want)
	}
	for _, row := range r.Results {
		last, source, spread := timesOf(t, lines[1:], &row)
		if row.Workload == "storage" {
			if len(last) > 0 {
				t.Errorf("storage has iterations of a collective: %v", last)
			}
			continue
		}
		if got := apps.Summarize(last); got != row.JCT || len(last) != row.Iterations {
			t.Errorf("%s %s %d: JCT of %+v by the file, %+v in the report", row.Workload, row.Scheme, row.SizeBytes, got, row.JCT)
		}
		if row.Workload == "bcast" && apps.Summarize(source) != row.Source {
			t.Errorf("%s %d: source %+v by the file, %+v in the report", row.Scheme, row.SizeBytes, apps.Summarize(source), row.Source)
		}
		if row.Scheme == "chain" && !spread {
			t.Errorf("chain: all ranks of an iteration have one time")
		}
	}
}

// timesOf returns the last receiver's and the source's time of each iteration of a row, and whether receivers of
// an iteration differ.
func timesOf(t *testing.T, lines [][]string, row *apps.Row) (last, source []float64, spread bool) {
	t.Helper()
	seen := map[string]bool{}
	for _, l := range lines {
		if l[0] != row.Workload || l[1] != row.Scheme || l[2] != strconv.Itoa(row.SizeBytes) {
			continue
		}
		k, _ := strconv.Atoi(l[3])
		us, err := strconv.ParseFloat(l[8], 64)
		if err != nil || k < 1 || l[5] != "h"+l[4] || seen[l[3]+" "+l[4]] {
			t.Fatalf("line %v: %v", l, err)
		}
		seen[l[3]+" "+l[4]] = true
		for len(last) < k {
			last, source = append(last, 0), append(source, 0)
		}
		if l[6] == "source" {
			if l[5] != "h1" {
				t.Errorf("%s is a source", l[5])
			}
			source[k-1] = us
			continue
		}
		spread = spread || last[k-1] > 0 && us != last[k-1]
		last[k-1] = max(last[k-1], us)
	}
	return last, source, spread
}
