// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/lab"
)

// TestExamplesLeaveNothing: every workload of the examples passes with all invariants checked,
// one of which is that the lab is as good as new when a workload is over. Faults and HPL have
// tests of their own that check them.
func TestExamplesLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	files, err := filepath.Glob("../../examples/*.mcl.yml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	others := []string{"ft1024.mcl.yml", "hpl.mcl.yml"} // the first is the quickstart's, but larger
	for _, f := range files {
		if slices.Contains(others, filepath.Base(f)) {
			continue
		}
		l, err := lab.Read(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Simulate(t.Context(), l, Options{Base: t.TempDir(), Check: true}); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// failing is a lab whose storage workload ends with an error (a client gives up on replicas that only
// wait) while it has as many groups as switches have room for, and continues.
const failing = `
name: failing
topology: {leaf-spine: {leaves: 3, spines: 2, hosts: 2}}
links: {rate: 40Gbps, delay: 5us, ip: 6, vlan: 7}
switches: {ecn: {enabled: true}, watchdog: {enabled: true}, groups: 3, fan-out: 3}
nics: {mtu: 512, timeout: 262.144us, retransmit: irn}
workloads:
  - {storage: {client: h0, schemes: [multicast-shared, unicasts], bs: [8KiB], iodepth: 8, numjobs: 2, size: 128KiB, durability: fsync, on-failure: degrade}}
  - {bcast: {schemes: [cepheus], root: h0, sizes: [64KiB], iterations: 1}}
faults:
  - {in: run, at: 300us, for: 7ms, nic-stall: {nodes: [h1]}}
`

// TestFailedWorkloadLeavesNothing: a storage workload that fails gives its groups back, so that
// there is room for those of the same workload, and of the others, once the fault is over.
func TestFailedWorkloadLeavesNothing(t *testing.T) {
	l, err := lab.Parse("failing.mcl.yml", []byte(failing))
	if err != nil {
		t.Fatal(err)
	}
	r := newFaultRun(t, l, true)
	if _, err := r.work(0); err == nil || errors.Is(err, sim.ErrInvariant) {
		t.Fatalf("the first time the workload ends with %v, want an error of its own", err)
	}
	for i := range r.works {
		if _, err := r.work(i); err != nil {
			t.Errorf("workload %d, when the fault is over: %v", i, err)
		}
	}
	if err := r.net.Residue(); err != nil {
		t.Error(err)
	}
}

// voided is a lab in which agg0 crashes when a registration has passed it. core0, agg2 and agg4 are in no
// tree of the next attempt.
const voided = `
name: voided
topology: {three-layer: {radix: 6, pods: 3, leaves: 1, hosts: 2, aggs: 2, cores: 8, core-groups: 2}}
links: {delay: 14.22012us}
workloads:
  - {reduce-scatter: {schemes: [{name: in-network}], sizes: [1KiB], iterations: 1}}
faults:
`

// TestVoidedAttempt: switches forget the entries of an attempt that a crash has voided, also those that the
// crash cuts off from the leader. A switch whose neighbours have all crashed, and one to which a fault loses
// the removal, keep them, and that is no residue.
func TestVoidedAttempt(t *testing.T) {
	for _, c := range []struct {
		faults string
		keep   string // a switch that keeps the group, or none
	}{
		{"  - {in: run, at: 67.5us, crash: {nodes: [agg0]}}\n", ""},
		{"  - {in: run, at: 60us, crash: {nodes: [agg0, agg2, agg4]}}\n", "core0"},
		{"  - {in: run, at: 67.5us, crash: {nodes: [agg0]}}\n  - {in: run, at: 150us, loss: {links: [leaf1-agg2, leaf2-agg4], rate: 1}}\n", "agg2"},
	} {
		l, err := lab.Parse("voided.mcl.yml", []byte(voided+c.faults))
		if err != nil {
			t.Fatal(err)
		}
		r := newFaultRun(t, l, true)
		if _, err := r.work(0); err != nil {
			t.Errorf("%s: %v", c.faults, err)
		}
		keep := map[string]bool{}
		g := r.net.Graph()
		for i := g.Hosts; i < len(g.Nodes); i++ {
			if r.net.Switch(i).Holding().Groups > 0 {
				keep[g.Nodes[i].Name] = true
			}
		}
		if len(keep) > 0 != (c.keep != "") || c.keep != "" && !keep[c.keep] {
			t.Errorf("%s: %v keep the group, want %q", c.faults, keep, c.keep)
		}
	}
}
