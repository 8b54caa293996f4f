// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"strings"
	"testing"
)

// rowsLab is a lab whose faults outlive every row, with the order of its two schemes.
func rowsLab(name, schemes, more string) string {
	return "name: " + name + "\ntopology: {leaf-spine: {leaves: 2, spines: 2, hosts: 2}}\nswitches: {reconverge: 50us}\n" + more + `
workloads:
  - bcast: {schemes: [` + schemes + `], sizes: [64KiB, 256KiB], iterations: 2}
faults:
  - {at: 10us, link-down: {links: leaf0-spine1}}
  - {at: 15us, slow-receiver: {nodes: h3, rate: 40Gbps}}
  - {at: 20us, for: 1s, pause-storm: {node: h2, gap: 400us}}
  - {at: 90ms, restart: {nodes: leaf1}}
  - {in: run, duplicate: {links: h1-leaf0, every-nth: 9}}
`
}

// TestLockstepRows: a run in virtual time begins and lifts the faults of each row as its simulation does.
func TestLockstepRows(t *testing.T) {
	need(t)
	file := write(t, rowsLab("t-step-rows", "chain, unicast", "runtime: {clock: lockstep}"))
	got, want := exact(t, "netns", file, "--check-digest"), exact(t, "sim", file)
	sameRun(t, got, want)
	if a, b := asJSON(t, got.Faults), asJSON(t, want.Faults); a != b || len(got.Results) != 4 || got.Faults[0].Seen != 4 {
		t.Errorf("%s\nin the simulation\n%s", a, b)
	}
}

// TestLiveRows: on a wall clock every row meets the faults of the row, too, and finds the lab whole.
func TestLiveRows(t *testing.T) {
	need(t)
	file := write(t, rowsLab("t-rows", "chain, unicast", ""))
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", "t-rows") })
	r := runLab(t, "netns", file, "--dilation", "2000")
	if len(r.Results) != 4 || len(r.Faults) != 5 {
		t.Fatalf("%d rows, faults %+v", len(r.Results), r.Faults)
	}
	for _, row := range r.Results {
		if row.Verified == nil || !*row.Verified || len(row.Faults) != 5 {
			t.Fatalf("%+v", row)
		}
		for _, f := range row.Faults[:2] {
			if !f.Came || f.Seen == nil || *f.Seen != 1 || f.In != "row" {
				t.Errorf("%s at %d: %+v", row.Scheme, row.SizeBytes, f)
			}
		}
	}
	if n := r.Faults[0].Seen; n != 4 || !strings.Contains(r.Faults[0].What, "link-down") {
		t.Errorf("%+v came %d times in 4 rows", r.Faults[0], n)
	}
}
