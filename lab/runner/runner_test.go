// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// TestFolder: numbers continue from the highest in the folder; look-alike names do not count.
func TestFolder(t *testing.T) {
	base := filepath.Join(t.TempDir(), "deep", "runs")
	for i, want := range []string{"a-1", "a-2"} {
		dir, err := NewFolder(base, "a")
		if err != nil || filepath.Base(dir) != want {
			t.Fatalf("run %d: %s, %v; want %s", i, dir, err, want)
		}
	}
	for _, name := range []string{"a-b-7", "a-9", "ab-30", "a-x"} {
		if err := os.Mkdir(filepath.Join(base, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if dir, err := NewFolder(base, "a"); err != nil || filepath.Base(dir) != "a-10" {
		t.Errorf("after a-9: %s, %v", dir, err)
	}
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := NewFolder(file, "a"); err == nil || !strings.HasPrefix(err.Error(), "make run folder: ") {
		t.Errorf("a file in place of the folder: %v", err)
	}
}

func row(workload, scheme string, size int, us float64, verified *bool) apps.Row {
	return apps.Row{
		Workload: workload, Scheme: scheme, SizeBytes: size, Ranks: 4, Iterations: 1, Payload: "bytes",
		JCT: apps.Summary{Avg: us, Min: us, Max: us, P50: us}, Source: apps.Summary{P50: us + 1}, Verified: verified,
	}
}

// of gives a row iterations, the slowest of which takes max.
func of(iterations int, max float64, r apps.Row) apps.Row {
	r.Iterations, r.JCT.Max = iterations, max
	return r
}

func TestSentences(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		rows []apps.Row
		want string
	}{
		{nil, ""},
		{[]apps.Row{row("b", "x", 64, 2, &yes)}, "64B to 4 ranks: x 2.00 us. Every byte was right at every receiver."},
		{
			[]apps.Row{row("b", "x", 64, 4, &yes), row("b", "y", 64, 2, nil)},
			"64B to 4 ranks: y 2.00 us, x 2.00x. Every byte that was there to compare was right; the payload of 1 row was phantom.",
		},
		{
			[]apps.Row{row("b", "x", 64, 2, nil), row("c", "x", 1024, 2, &no), row("c", "y", 1024, 3, &yes), row("c", "z", 1024, 5, &yes)},
			"64B to 4 ranks: x 2.00 us. The payload was phantom: no byte was compared.\n" +
				"1KiB to 4 ranks: x 2.00 us, y 1.50x, z 2.50x. Wrong bytes arrived in 1 of 3 rows.",
		},
		{
			[]apps.Row{of(3, 4, row("b", "x", 64, 2, &yes)), of(3, 8.1, row("b", "y", 64, 4, &yes))},
			"64B to 4 ranks: x 2.00 us (median of 3), y 2.00x. Every byte was right at every receiver.",
		},
		{
			[]apps.Row{of(2, 5, row("b", "x", 64, 2, &yes))},
			"64B to 4 ranks: x 2.00 us (median of 2). Every byte was right at every receiver.",
		},
	} {
		if got := sentences(c.rows); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// TestExpectations: quantities are found by their parts, however the size is written; a quantity that
// was not measured is a failure that says so.
func TestExpectations(t *testing.T) {
	rows := []apps.Row{row("b", "x", 1<<20, 100, nil), row("b", "y", 1<<20, 250, nil)}
	r := Report{Results: rows}
	r.Expect = Evaluate([]string{
		"b.y.1024KiB.jct.p50 / b.x.1048576B.jct.max == 2.5",
		"b.x.1MiB.source.p50 > 102",
		"b.x.1MiB.jct.p99 > 0",
		"b.z.1MiB.jct.avg > 0",
		"b.x.1MiB.jct.mode > 0",
		"b.x.1MiB.time.avg > 0",
		"b.x.1MiB.bytes.links > 0",
	}, r.Quantity)
	got := strings.Join(r.Failures(), "\n")
	want := `expect "b.x.1MiB.source.p50 > 102" does not hold: its left side is 101
expect "b.x.1MiB.jct.p99 > 0" cannot be checked: b.x.1MiB.jct.p99 needs at least 100 iterations
expect "b.z.1MiB.jct.avg > 0" cannot be checked: b.z.1MiB.jct.avg was not measured
expect "b.x.1MiB.jct.mode > 0" cannot be checked: b.x.1MiB.jct.mode: no statistic "mode": use avg, min, max, p50 or p99
expect "b.x.1MiB.time.avg > 0" cannot be checked: b.x.1MiB.time.avg: no quantity "time": use jct, source, bytes, fallback or recovery
expect "b.x.1MiB.bytes.links > 0" cannot be checked: b.x.1MiB.bytes.links: bytes are counted only in the runtime sim, for a workload with one scheme and one size`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if e := r.Expect; !e[0].OK || e[0].Got == nil || *e[0].Got != 2.5 || e[1].OK || e[3].Got != nil {
		t.Errorf("%+v", e)
	}
}

func TestMatchPorts(t *testing.T) {
	g, err := topo.FatTree(4, topo.LinkParams{Rate: 1e9, Delay: vtime.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		patterns string
		want     int
		err      string
	}{
		{"*:*", 96, ""}, {"h0:0", 1, ""}, {"h0:0,h*:0", 16, ""}, {"leaf[01]:*,core3:2", 9, ""},
		{"h0:1", 0, `capture "h0:1": no port has that name: ports are NODE:NUMBER, such as h0:0`},
		{"h0:0,[", 0, `capture "[": syntax error in pattern`},
	} {
		ends, err := MatchPorts(g, strings.Split(c.patterns, ","))
		if len(ends) != c.want || c.err == "" != (err == nil) || err != nil && err.Error() != c.err {
			t.Errorf("%s: %d ports, %v", c.patterns, len(ends), err)
		}
	}
}
