// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import (
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator"
)

// TestRoundTripLinks: whose window is what a round trip takes pays the lag of all its links in
// each of them; whose window is wide or who sends less than one does not.
func TestRoundTripLinks(t *testing.T) {
	for _, c := range []struct {
		nics string
		size string
		want bool
	}{
		{"{}", "4MiB", false},
		{"{retransmit: irn}", "4MiB", true},
		{"{retransmit: irn}", "64KiB", false},
		{"{retransmit: irn, irn: {cap: 1MB}}", "4MiB", false},
		{"{window: 16}", "4MiB", true},
		{"{window: 1000}", "4MiB", false},
	} {
		text := "name: w\ntopology: {leaf-spine: {leaves: 2, spines: 1, hosts: 4}}\nnics: " + c.nics +
			"\nworkloads:\n  - bcast: {schemes: [cepheus], sizes: [" + c.size + "], iterations: 1, memory: phantom}\n"
		l, err := lab.Parse("w.mcl.yml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		g, err := labspec.Graph(l)
		if err != nil {
			t.Fatal(err)
		}
		r, err := runner.Simulate(t.Context(), l, runner.Options{Base: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		d := &orchestrator.Deployed{Lab: l, Graph: g}
		d.Access = orchestrator.LocalAccess(d)
		row := apps.Row{Workload: "bcast", Scheme: "cepheus", SizeBytes: r.Results[0].SizeBytes, JCT: r.Results[0].JCT}
		got := roundTripLinks(d, row)
		s := labspec.Fabric(l, g)
		want := 0
		if c.want {
			want = 2 * 4 * int(row.JCT.P50/s.RTT().Microseconds())
		}
		if got != want || c.want != (want > 0) {
			t.Errorf("nics %s, %s: %d links, want %d (round trip %v, %d bytes)", c.nics, c.size, got, want, s.RTT(), s.BDP())
		}
	}
}
