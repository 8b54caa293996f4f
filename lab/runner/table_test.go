// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
)

// TestTableFits: rows fit a terminal of 80 columns, those of several workloads and with P99, too, and what is left out is named; wide
// terminals and files have all columns.
func TestTableFits(t *testing.T) {
	right, p99 := true, 44.5
	jct := apps.Summary{Avg: 5141.2, Min: 5141.2, Max: 5141.2, P50: 5141.2}
	with99 := jct
	with99.P99 = &p99
	row := func(workload, scheme string, s apps.Summary) apps.Row {
		return apps.Row{Workload: workload, Scheme: scheme, SizeBytes: 1 << 20, Ranks: 4, Iterations: 120, Payload: "bytes", JCT: s, Source: jct, Verified: &right}
	}
	for _, c := range []struct {
		rows    []apps.Row
		columns int
		left    string
	}{
		{[]apps.Row{row("bcast", "cepheus", jct)}, 0, ""},
		{[]apps.Row{row("bcast", "cepheus", jct)}, 120, ""},
		{[]apps.Row{row("bcast", "cepheus", jct)}, 80, "Source(us)"},
		{[]apps.Row{row("bcast", "cepheus", jct), row("allgather", "ring-of-rings", jct)}, 80, "Source(us), Iter"},
		{[]apps.Row{row("bcast", "double-binary-tree", with99)}, 80, "Source(us), Iter, Min(us)"},
	} {
		var b strings.Builder
		if err := (&Report{Results: c.rows, Fidelity: Fidelity{Verdict: "ok"}}).WriteTableFor(&b, c.columns); err != nil {
			t.Fatal(err)
		}
		table, _, _ := strings.Cut(b.String(), " to 4 ranks")
		for line := range strings.Lines(table) {
			if n := len(line) - 1; c.columns > 0 && n > c.columns {
				t.Errorf("%d columns: %d in\n%s", c.columns, n, line)
			}
		}
		if named := strings.Contains(table, "columns have no room for"); named != (c.left != "") || named && !strings.Contains(table, " for "+c.left+": see") {
			t.Errorf("%d columns: not without %q:\n%s", c.columns, c.left, table)
		}
	}
}

// TestWriteBaseline: of two workloads with one name each row is beside its own, a row that was not reached has a dash, and a run of
// workloads without rows has no table.
func TestWriteBaseline(t *testing.T) {
	row := func(us float64) apps.Row {
		return apps.Row{Workload: "bcast", Scheme: "cepheus", SizeBytes: 64, JCT: apps.Summary{P50: us}}
	}
	without := &Report{RunDir: "runs/b-1", Results: []apps.Row{row(2), row(8), row(5)}}
	with := &Report{RunDir: "runs/b-2", Results: []apps.Row{row(4), row(10)}}
	var b strings.Builder
	if err := with.WriteBaseline(&b, without); err != nil {
		t.Fatal(err)
	}
	const want = `
Without the faults (runs/b-1) and with them (runs/b-2):
  # Scheme  Size  Without      With  Ratio
   cepheus   64B  2.00 us   4.00 us  2.00x
   cepheus   64B  8.00 us  10.00 us  1.25x
   cepheus   64B  5.00 us         -      -
`
	if b.String() != want {
		t.Errorf("%s\nis not\n%s", b.String(), want)
	}
	b.Reset()
	if err := with.WriteBaseline(&b, &Report{}); err != nil || b.Len() > 0 {
		t.Errorf("without rows: %q, %v", b.String(), err)
	}
}
