// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"encoding/json"
	"io"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/command"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/traces"
)

// TestProgramsMeetFaults: a row of programs has met the faults that came while one of them ran, and none that came before the first began
// or while the lab became idle after the last had ended.
func TestProgramsMeetFaults(t *testing.T) {
	const ms = vtime.Time(vtime.Millisecond)
	l, err := lab.Parse("lab", []byte(`name: met
topology: {star: {hosts: 2}}
runtime: {clock: lockstep}
workloads:
  - command: {run: ["true"]}
faults:
  - {at: 1ms, for: 1ms, link-down: {links: "h0:0-*"}}
  - {at: 3ms, for: 1ms, link-down: {links: "h0:0-*"}}
  - {at: 2250ms, for: 1ms, link-down: {links: "h0:0-*"}}
`))
	if err != nil {
		t.Fatal(err)
	}
	g, err := labspec.Graph(l)
	if err != nil {
		t.Fatal(err)
	}
	r := &Record{Events: traces.NewEvents(io.Discard)}
	if err := r.Meet(l, g, 0); err != nil {
		t.Fatal(err)
	}
	r.RowBegins(0)
	var counted []FaultRow
	for i := range r.met.all {
		counted = append(counted, FaultRow{ID: r.met.all[i].ID, Seen: 5, Hit: 13})
	}
	r.RowEnds(counted, true)
	record, err := json.Marshal(apps.Exit{Host: "h0", From: 2 * ms, To: 1256 * ms})
	if err != nil {
		t.Fatal(err)
	}
	records := [][][]byte{{record}}
	w := &Workload{App: command.App{}, Params: []byte(`{"ranks":1}`)}
	rows, err := w.App.Reduce(w.Params, records)
	if err == nil {
		err = r.met.enter(w, rows, records, 2251*ms)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, came := range []bool{false, true, false} {
		f := rows[0].Faults[i]
		if hit := *f.Hit; f.Came != came || (hit > 0) != came || (*f.Seen > 0) != came {
			t.Errorf("fault %s has come: %v, and has hit %d", f.ID, f.Came, hit)
		}
	}
	if all := r.Faults(nil); len(all) != 3 || all[2].Hit != 13 {
		t.Errorf("the run's faults are %+v", all)
	}
}
