// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// reduce returns the rows of the ranks' records.
func reduce(t *testing.T, p params, exits ...apps.Exit) []apps.Row {
	t.Helper()
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	records := make([][][]byte, p.Ranks)
	for i := range exits {
		b, err := json.Marshal(&exits[i])
		if err != nil {
			t.Fatal(err)
		}
		records[i] = append(records[i], b)
	}
	rows, err := App{}.Reduce(raw, records)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestReduce: a row lasts from the first rank's start to the last one's end, is verified if all have ended well, and
// names those that have not.
func TestReduce(t *testing.T) {
	const us = vtime.Time(vtime.Microsecond)
	p := params{Workload: "bw", Scheme: "ib_write_bw", Ranks: 2}
	good := []apps.Exit{{Rank: 0, Host: "h3", From: 5 * us, To: 9 * us}, {Rank: 1, Host: "h1", From: 4 * us, To: 8 * us}}
	rows := reduce(t, p, good...)
	if len(rows) != 1 || rows[0].JCT.Max != 5 || !*rows[0].Verified || rows[0].Ranks != 2 || rows[0].Workload != "bw" || rows[0].Scheme != "ib_write_bw" ||
		rows[0].Began != 4*us || rows[0].Ended != 9*us {
		t.Fatalf("rows %+v", rows)
	}
	if f := rows[0].Details.(apps.Judge).Failures(&rows[0]); f != nil {
		t.Errorf("failures %q", f)
	}
	bad := slices.Clone(good)
	bad[0].Code, bad[0].Last, bad[1].Why = 7, "no device", "its timeout was over"
	rows = reduce(t, p, bad...)
	want := []string{"bw ib_write_bw: rank 0 at h3 ended with exit code 7: no device", "bw ib_write_bw: rank 1 at h1 ended with exit code 0, because its timeout was over"}
	if got := rows[0].Details.(apps.Judge).Failures(&rows[0]); !slices.Equal(got, want) || *rows[0].Verified {
		t.Errorf("failures %q", got)
	}
	if rows := reduce(t, p, good[0]); rows != nil {
		t.Errorf("of an interrupted run there are rows: %+v", rows)
	}
	p.MPI = true
	rows = reduce(t, p, apps.Exit{Rank: -1, Host: "h3", Code: 1, To: us})
	if got := rows[0].Details.(apps.Judge).Failures(&rows[0]); len(got) != 1 || got[0] != "bw ib_write_bw: mpirun ended with exit code 1" || rows[0].Ranks != 2 {
		t.Errorf("of mpirun: %q, %+v", got, rows)
	}
	for _, bad := range [][2]string{{"", "{}"}, {"{}", ""}} { // parameters and a record that are not JSON
		if _, err := (App{}).Reduce([]byte(bad[0]), [][][]byte{{[]byte(bad[1])}}); err == nil {
			t.Errorf("no error of %q", bad)
		}
	}
	if err := (App{}).Run(nil, nil); err == nil {
		t.Error("it runs in a process of mcastlab's")
	}
}

// TestExitsJSON: a report's JSON has how each rank has ended.
func TestExitsJSON(t *testing.T) {
	row := reduce(t, params{Ranks: 1}, apps.Exit{Host: "h0", Code: 143, Why: "its timeout was over", To: 3})[0]
	b, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	var back apps.Row
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if e := apps.DetailsOf[apps.Exits](back); e == nil || fmt.Sprint(*e) != fmt.Sprint(*row.Details.(*apps.Exits)) {
		t.Errorf("%s is read as %+v", b, e)
	}
}

// TestOutcome: a table's cell summarises the ends of the programs, and names one that failed by itself.
func TestOutcome(t *testing.T) {
	for want, all := range map[string]apps.Exits{
		"not run": nil, "exit 0": {{}, {Rank: 1}}, "exit 3 (1 of 2)": {{}, {Rank: 1, Code: 3}},
		"killed after 2s (timeout)": {{Code: 143, Why: "its timeout was over", Timeout: 2 * vtime.Second}},
		"ended (2 of 2)":            {{Code: 143, Why: "its timeout was over"}, {Rank: 1, Code: 143, Why: "its time was over"}},
		"exit 7 (2 of 2)":           {{Code: 143, Why: "another rank had failed"}, {Rank: 1, Code: 7}},
	} {
		if got := all.Outcome(); got != want {
			t.Errorf("%v: %q, want %q", all, got, want)
		}
	}
}
