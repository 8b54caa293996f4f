// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/lab"
)

// TestQuantities: what the kinds of workloads say that their rows have, which validate holds lines
// of expect to, rows have.
func TestQuantities(t *testing.T) {
	for _, c := range []struct{ topology, workload string }{
		{"{star: {hosts: 4}}", "storage: {client: h0, schemes: [unicasts], bs: [512B], size: 4KiB}"},
		{"{star: {hosts: 4}}", "hpl: {n: [32], nb: [8], grids: [2x2], bcast: [cepheus]}"},
		{"{star: {hosts: 4}}", "fsdp: {schemes: [{allgather: ring, reduce-scatter: ring}], sizes: [4KiB], iterations: 1}"},
		{"{m-port-n-tree: {m: 4, n: 2}}", "many-to-many: {schemes: [opensm], sizes: [4KiB], iterations: 1}"},
		{"{star: {hosts: 4}}", "flows: {flows: [{name: a, from: h0, to: [h1, h2], end: 200us}, {name: b, from: h3, to: [h1], begin: 50us, end: 150us}], message: 4KiB, interval: 10us}"},
	} {
		l, err := lab.Parse("lab.mcl.yml", fmt.Appendf(nil, "name: q\ntopology: %s\nworkloads: [{%s}]\n", c.topology, c.workload))
		if err != nil {
			t.Fatal(err)
		}
		r, err := Simulate(t.Context(), l, Options{Base: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		own, ok := l.Workloads[0].Chosen().Kind.(apps.Measurer)
		if !ok {
			t.Fatalf("%s has no quantities of its own", c.workload)
		}
		row := r.Results[0]
		for of, parts := range own.Quantities() {
			for _, part := range parts {
				text := fmt.Sprintf("%s.%s.%dB.%s.%s >= 0", row.Workload, row.Scheme, row.SizeBytes, of, part)
				if e := Evaluate([]string{text}, r.Quantity)[0]; e.Got == nil && !strings.Contains(e.Why, "needs at least 100") {
					t.Errorf("%s: %s", text, e.Why)
				}
			}
		}
	}
}

// TestCounts: expect may ask for counts of a fallback or of the repair of losses, where a scheme has
// one.
func TestCounts(t *testing.T) {
	l, err := lab.Parse("lab.mcl.yml", []byte("name: q\ntopology: {star: {hosts: 3}}\nworkloads:\n"+
		"  - bcast: {schemes: [{cepheus: {fallback: full}}, ud-multicast, chain], sizes: [64KiB], iterations: 1}\n"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Simulate(t.Context(), l, Options{Base: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"bcast.cepheus.64KiB.fallback.fallbacks":     "",
		"bcast.cepheus.64KiB.fallback.restarted":     "",
		"bcast.ud-multicast.64KiB.recovery.fetched":  "",
		"bcast.ud-multicast.64KiB.recovery.cutoffs":  "",
		"bcast.chain.64KiB.fallback.returns":         "the scheme has no fallback",
		"bcast.cepheus.64KiB.recovery.fetched":       "loses nothing that its ranks recover",
		"bcast.cepheus.64KiB.fallback.fetched":       "use apart, fallbacks, overlay, probes, restarted, returns",
		"bcast.ud-multicast.64KiB.recovery.restarts": "use cutoffs, duplicates, fetched, requests, stale",
	} {
		got, err := r.Quantity(name)
		if want == "" && (err != nil || got != 0) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %g, %v", name, got, err)
		}
	}
}
