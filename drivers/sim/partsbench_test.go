// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/rank"
)

// BenchmarkParted is a permutation, and a broadcast to every second host, in parts that one goroutine does one
// after the other.
func BenchmarkParted(b *testing.B) {
	ft1024, err := topo.ThreeLayer(topo.FT1024(), benchLink)
	if err != nil {
		b.Fatal(err)
	}
	k16, err := topo.FatTree(16, benchLink)
	if err != nil {
		b.Fatal(err)
	}
	for _, parts := range []int{1, 8, 16, 32} {
		b.Run(fmt.Sprintf("bcast/parts=%d", parts), func(b *testing.B) {
			benchParts(b, ft1024, parts, 2, 4096, func(start func()) func(*rank.Rank) error { return bcastProgram(16<<20, b.N, phantom, start) })
		})
		b.Run(fmt.Sprintf("k=16/parts=%d", parts), func(b *testing.B) {
			benchParts(b, k16, parts, 1, 1024, func(start func()) func(*rank.Rank) error { return permProgram(1<<20, b.N, start) })
		})
	}
}

func benchParts(b *testing.B, g *topo.Graph, parts, every, mtu int, program func(start func()) func(*rank.Rank) error) {
	c := benchConfig(g, 1, true)
	c.OutOfBand = benchLink.Delay // parts cannot reach each other in no time
	n, err := sim.NewParts(c, sim.Divide(g, parts), 1)
	if err != nil {
		b.Fatal(err)
	}
	n.Observe = watched(b)
	p := benchParams
	p.MTU = mtu
	var hops uint64
	var cpu time.Duration
	start := func() { hops, cpu = n.Stats().Hops, cpuTime(); b.ResetTimer() }
	if err := n.Run(sim.Job{Name: "b", Hosts: hostsOf(g.Hosts, every), Params: p, Program: program(start)}); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(n.Stats().Hops-hops)/(cpuTime()-cpu).Seconds()/1e6, "Mhops/cpu-s")
	b.ReportMetric(0, "ns/op")
}
