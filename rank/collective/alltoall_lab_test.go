// SPDX-License-Identifier: Apache-2.0

package collective_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/alltoall"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// TestAlltoalls: every Alltoall brings the right bytes to random ranks, at random sizes, none
// and one byte among them, while links lose one frame in a thousand.
func TestAlltoalls(t *testing.T) {
	from, count := simlab.Seeds(t, 24)
	for _, name := range collective.AlltoallNames() {
		for seed := from; seed < from+count; seed++ {
			runAlltoall(t, name, seed)
		}
	}
}

// runAlltoall is one trial of an Alltoall.
func runAlltoall(t *testing.T, name string, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 80))
	n := lossyNet(t, seed, faults.Impairment{Loss: 1e-3})
	params := simlab.Params()
	params.MTU = 256 << r.IntN(5)
	hosts := r.Perm(n.Graph().Hosts)[:2+r.IntN(n.Graph().Hosts-1)]
	p := apps.Blocks{
		Workload: "a", Sizes: []int{0, 1, r.IntN(5 * params.MTU)}, Iterations: []int{1, 2, 2}, WarmUp: r.IntN(2), Seed: seed,
		Schemes: []apps.Scheme{{Label: name, Name: name}},
	}
	what := fmt.Sprintf("%s: %d ranks, sizes %v, MTU %d; replay: go test ./rank/collective -run 'TestAlltoalls$' -from %d -seeds 1", name, len(hosts), p.Sizes, params.MTU, seed)
	rows, err := ofApp(n, hosts, params, alltoall.App{}, p)
	if err != nil || len(rows) != 3 {
		t.Errorf("%s: %d rows, %v", what, len(rows), err)
	}
	for i, row := range rows {
		if row.Verified == nil || !*row.Verified || row.Iterations != p.Iterations[i] || row.WarmUp != p.WarmUp {
			t.Errorf("%s: %+v", what, row)
		}
	}
}

// alltoallStar is a net of hosts around one switch.
func alltoallStar(t *testing.T, hosts int) (*sim.Net, []int) {
	t.Helper()
	graph, err := topo.Star(hosts, topo.LinkParams{Rate: 100e9, Delay: 600 * vtime.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	n, err := sim.New(sim.Config{Check: true, Spec: fabric.Spec{
		Graph: graph, NIC: virtrnic.Settings{AckEvery: 16},
		Switch: fabric.Switch{
			Latency:  400 * vtime.Nanosecond,
			Settings: virtswitch.Settings{Buffer: 32e6, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	all := make([]int, hosts)
	for i := range all {
		all[i] = i
	}
	return n, all
}

// TestAlltoallChecks: the check finds a wrong byte anywhere, also in the block that a rank has for
// itself.
func TestAlltoallChecks(t *testing.T) {
	for _, name := range collective.AlltoallNames() {
		for _, broken := range []int{-1, 0, 99, 150, 299} {
			n, hosts := alltoallStar(t, 3)
			app := alltoall.App{Delivered: func(r *rank.Rank, b *rank.Buffer) {
				if r.ID() == 1 && broken >= 0 {
					b.Flip(broken)
				}
			}}
			p := apps.Blocks{Workload: "a", Sizes: []int{100}, Iterations: []int{1}, Schemes: []apps.Scheme{{Label: name, Name: name}}}
			rows, err := ofApp(n, hosts, simlab.Params(), app, p)
			if err != nil || len(rows) != 1 || *rows[0].Verified != (broken < 0) {
				t.Errorf("%s, byte %d broken: %+v, %v", name, broken, rows, err)
			}
		}
	}
}

// alltoall is the closed form of an Alltoall around one switch: all blocks of a rank share
// its link, or go one after the other.
func (f *forms) alltoall(name string, n int) float64 {
	others, l := float64(len(f.hosts)-1), f.links(0, 1)
	if name == "pairwise" {
		return others * f.send(n, l)
	}
	return (others-1)*f.wire(n)/f.rate + f.send(n, l)
}

// TestAlltoallForms holds every Alltoall to its closed form within 5 %.
func TestAlltoallForms(t *testing.T) {
	sizes := []int{0, 1, 64, 4 << 10, 64 << 10, 1 << 20}
	var table strings.Builder
	fmt.Fprintf(&table, "\n%5s %-10s %9s %12s %12s %7s\n", "ranks", "scheme", "bytes", "expected us", "got us", "ratio")
	for _, ranks := range []int{2, 4, 7, 16} {
		n, hosts := alltoallStar(t, ranks)
		f := forms{g: n.Graph(), rate: 12.5e9, delay: 600e-9, latency: 400e-9, mtu: 4096, hosts: hosts}
		params := simlab.Params()
		params.MTU = f.mtu
		p := apps.Blocks{Workload: "a", Sizes: sizes, Iterations: []int{1, 1, 1, 1, 1, 1}, Memory: rank.MemoryPhantom}
		for _, name := range collective.AlltoallNames() {
			p.Schemes = append(p.Schemes, apps.Scheme{Label: name, Name: name})
		}
		rows, err := ofApp(n, hosts, params, alltoall.App{}, p)
		if err != nil || len(rows) != len(sizes)*len(p.Schemes) {
			t.Fatalf("%d rows, %v", len(rows), err)
		}
		for _, row := range rows {
			want := f.alltoall(row.Scheme, row.SizeBytes) * 1e6
			ratio := row.JCT.Avg / want
			fmt.Fprintf(&table, "%5d %-10s %9d %12.3f %12.3f %7.4f\n", ranks, row.Scheme, row.SizeBytes, want, row.JCT.Avg, ratio)
			if ratio < 0.95 || ratio > 1.05 {
				t.Errorf("%s of %d at %d bytes: %.3f us, closed form %.3f us", row.Scheme, ranks, row.SizeBytes, row.JCT.Avg, want)
			}
		}
	}
	t.Log(table.String())
}
