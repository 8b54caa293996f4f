// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// Quantities that noise cannot move have a gate: the number of events that a hop costs, and that it
// allocates nothing.

// TestEventsPerHop: one event per hop without PFC activity, for a broadcast with
// either kind of acknowledgement and a permutation; not many more with it.
func TestEventsPerHop(t *testing.T) {
	perHop := func(n *sim.Net, err error) float64 {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		s := n.Stats()
		return float64(s.Events) / float64(s.Hops)
	}
	for _, ack := range []int{1, 16} {
		g, err := topo.ThreeLayer(topo.FT1024(), benchLink)
		if err != nil {
			t.Fatal(err)
		}
		n, err := newBenchNet(g, ack, true)
		if err != nil {
			t.Fatal(err)
		}
		err = n.Run(sim.Job{Name: "b", Hosts: hostsOf(1024, 2), Params: benchParams, Program: bcastProgram(512<<10, 0, phantom, func() {})})
		if r := perHop(n, err); r > 1.02 {
			t.Errorf("broadcast, acknowledgement every %d: %.4f events per hop, want at most 1.02", ack, r)
		}
	}
	g, err := topo.FatTree(8, benchLink)
	if err != nil {
		t.Fatal(err)
	}
	n, err := newBenchNet(g, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	p := benchParams
	p.MTU = 1024
	err = n.Run(sim.Job{Name: "p", Hosts: hostsOf(128, 1), Params: p, Program: permProgram(1<<20, 0, func() {})})
	if r := perHop(n, err); r > 1.02 {
		t.Errorf("permutation: %.4f events per hop, want at most 1.02", r)
	}

	// Small thresholds on the same permutation, without a window: pauses everywhere.
	n, err = sim.New(sim.Config{NoDigest: true, Spec: fabric.Spec{
		Graph: g, Seed: 1, TrustICRC: true, NIC: virtrnic.Settings{AckEvery: 1},
		Switch: fabric.Switch{
			Settings: virtswitch.Settings{Buffer: 16e6, PFC: virtswitch.PFCConfig{Lossless: 1 << 3, XOFF: 60_000, XON: 30_000}, Rules: virtswitch.RulesFixed()},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	err = n.Run(sim.Job{Name: "p", Hosts: hostsOf(128, 1), Params: p, Program: permProgram(1<<20, 0, func() {})})
	pauses := uint64(0)
	for i := g.Hosts; i < len(g.Nodes); i++ {
		pauses += n.Switch(i).Stats().PausesSent
	}
	r := perHop(n, err)
	t.Logf("%d pause frames in %d hops: %.4f events per hop", pauses, n.Stats().Hops, r)
	if r > 1.35 || pauses < 1000 {
		t.Errorf("%d pause frames: %.4f events per hop, want at most 1.35 and at least 1000 pauses", pauses, r)
	}
}

// TestAllocationsPerHop: in the middle of a message the loop allocates nothing.
func TestAllocationsPerHop(t *testing.T) {
	for _, check := range []struct {
		name string
		run  func(n *sim.Net) error
	}{
		{"broadcast", func(n *sim.Net) error {
			return n.Run(sim.Job{Name: "b", Hosts: hostsOf(128, 1), Params: benchParams, Program: bcastProgram(16<<20, 1, phantom, func() {})})
		}},
		{"broadcast of bytes", func(n *sim.Net) error {
			return n.Run(sim.Job{Name: "b", Hosts: hostsOf(128, 8), Params: benchParams, Program: bcastProgram(16<<20, 1, rank.MemoryBytes, func() {})})
		}},
		{"permutation", func(n *sim.Net) error {
			return n.Run(sim.Job{Name: "p", Hosts: hostsOf(128, 1), Params: benchParams, Program: permProgram(4<<20, 1, func() {})})
		}},
	} {
		g, err := topo.FatTree(8, benchLink)
		if err != nil {
			t.Fatal(err)
		}
		n, err := newBenchNet(g, 4, false)
		if err != nil {
			t.Fatal(err)
		}
		wantNoAllocations(t, check.name, n, func() error { return check.run(n) })
	}
}

// wantNoAllocations runs a simulation and checks that the loop by itself allocates nothing.
func wantNoAllocations(t *testing.T, name string, n *sim.Net, run func() error) {
	t.Helper()
	// Observe is called every few ten thousand events; the fewest allocations between
	// two calls are those of the loop itself.
	least, last := uint64(1<<62), uint64(0)
	n.Observe = func() error {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if last != 0 {
			least = min(least, m.Mallocs-last)
		}
		last = m.Mallocs
		return nil
	}
	if err := run(); err != nil {
		t.Fatal(err)
	}
	if least != 0 {
		t.Errorf("%s: at least %d allocations in every 32,768 events", name, least)
	}
}

// TestAllocationsPaced: pacing, CNPs and selective repeat allocate nothing either.
func TestAllocationsPaced(t *testing.T) {
	g, err := topo.Star(9, benchLink)
	if err != nil {
		t.Fatal(err)
	}
	set, err := virtrnic.DCQCNByName("dcqcn-hpcc")
	if err != nil {
		t.Fatal(err)
	}
	n, err := sim.New(sim.Config{Spec: fabric.Spec{
		Graph: g, Seed: 1, TrustICRC: true,
		Switch: fabric.Switch{
			Settings: virtswitch.Settings{Buffer: 64e6, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed(), ECN: virtswitch.ECNConfig{Classes: 1 << 3, Pmax: 0.2}},
		},
		NIC: virtrnic.Settings{AckEvery: 4, Congestion: set, IRN: &virtrnic.IRN{RTOLow: virtrnic.RTOLowDefault, RTOHigh: virtrnic.RTOHighDefault}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	random := prng.New(1)
	for id := range n.Ports() {
		n.SetFault(id, &faults.Impairment{Loss: 1e-3, Random: random.Derive(strconv.Itoa(id))})
	}
	wantNoAllocations(t, "incast", n, func() error {
		return n.Run(sim.Job{Name: "p", Hosts: hostsOf(9, 1), Params: benchParams, Program: func(r *rank.Rank) error {
			const size = 64 << 20
			buf, err := r.Alloc(size, phantom)
			if err != nil {
				return err
			}
			var all []*rank.Request
			for peer := range 8 {
				var q *rank.Request
				switch {
				case r.ID() == 8:
					c, err := r.Connect(peer)
					if err != nil {
						return err
					}
					if q, err = c.Recv(buf, 0, size); err != nil {
						return err
					}
				case r.ID() == peer:
					c, err := r.Connect(8)
					if err != nil {
						return err
					}
					if q, err = c.Send(buf, 0, size); err != nil {
						return err
					}
				default:
					continue
				}
				all = append(all, q)
			}
			return r.Wait(all...)
		}})
	})
	if s := n.NIC(0).Stats(); s.CNPHandled == 0 || s.Retransmitted == 0 {
		t.Errorf("%d CNPs and %d repeats: the test tests nothing", s.CNPHandled, s.Retransmitted)
	}
}

// TestBareMovesTheSame: the benchmarks' bare loop moves exactly the frames of the run
// it is compared with.
func TestBareMovesTheSame(t *testing.T) {
	for _, ack := range []int{1, 16} {
		n, err := bcastNet(ack)
		if err != nil {
			t.Fatal(err)
		}
		const packets = 40
		real := n.Stats().Hops
		// The group of the first job stays; its tree is the bare loop's, and the second
		// job's group has the same shape.
		first := bareBcast(n, packets, ack).hops
		err = n.Run(sim.Job{Name: "again", Hosts: hostsOf(1024, 2), Params: benchParams, Keep: true, Program: bcastProgram(packets*4096, 1, phantom, func() { real = n.Stats().Hops })})
		if err != nil {
			t.Fatal(err)
		}
		if got := n.Stats().Hops - real; got != first {
			t.Errorf("acknowledgement every %d: the run has %d hops, the bare loop %d", ack, got, first)
		}
	}
}
