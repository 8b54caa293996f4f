// SPDX-License-Identifier: Apache-2.0

package collective_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/apps/bcast"
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

// TestSchemes: every broadcast algorithm delivers the right bytes to random groups, from
// random roots, at random sizes, with random parameters, while links lose one frame in a
// thousand.
func TestSchemes(t *testing.T) {
	from, count := simlab.Seeds(t, 24)
	for _, name := range collective.Names() {
		for seed := from; seed < from+count; seed++ {
			runScheme(t, name, seed)
		}
	}
}

// randomOptions draws the parameters that a scheme has.
func randomOptions(r *rand.Rand, all []collective.Parameter, mtu int) (o collective.Options) {
	for _, p := range all {
		switch p.Name {
		case "slices":
			o.Slices = r.IntN(20)
		case "radix":
			o.Radix = 2 + r.IntN(7)
		case "block":
			o.Block = 1 + r.IntN(8*mtu)
		case "parallel":
			o.Parallel = 1 // the number of ranks bounds it
		case "subgroups":
			o.Subgroups = 1 + r.IntN(5)
		case "workers":
			o.Workers = 1 + r.IntN(o.Subgroups)
		case "staging":
			o.Staging = 1 + r.IntN(100)
			o.CopyTime = vtime.Duration(r.IntN(3)) * vtime.Microsecond
			o.PerChunk = vtime.Duration(r.IntN(3)*r.IntN(300)) * vtime.Nanosecond
			o.Alpha = vtime.Duration(r.IntN(2)*r.IntN(1000)) * vtime.Microsecond
			o.Pace = r.IntN(2) * r.IntN(101)
		case "chunk":
			o.Chunk = 1 + r.IntN(4*mtu)
		}
	}
	return o
}

// runScheme is one trial of a scheme.
func runScheme(t *testing.T, name string, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 77))
	g, err := topo.FatTree(4, topo.LinkParams{Rate: 100e9, Delay: vtime.Duration(100+r.IntN(1000)) * vtime.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	vlan := simlab.Framing(g, seed)
	rules := virtswitch.RulesFixed()
	if name == "gleam" {
		rules = virtswitch.RulesGleam()
	}
	n, err := sim.New(sim.Config{Check: true, Spec: fabric.Spec{
		Graph: g, Seed: seed, NIC: virtrnic.Settings{AckEvery: 1 + r.IntN(17)}, VLAN: vlan,
		Switch: fabric.Switch{
			Latency:  300 * vtime.Nanosecond,
			Settings: virtswitch.Settings{Buffer: 16 << 20, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: rules},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	hosts := r.Perm(g.Hosts)[:2+r.IntN(g.Hosts-1)]
	params := simlab.Params()
	params.MTU, params.Activate = 256<<r.IntN(5), rules.Activate
	o := randomOptions(r, collective.Parameters(name), params.MTU)
	for id := range n.Ports() {
		n.SetFault(id, &faults.Impairment{Loss: 1e-3, Random: simlab.Random(seed, fmt.Sprintf("fault/%d", id))})
	}
	memory := []rank.MemoryKind{rank.MemoryBytes, rank.MemoryHashed}[r.IntN(2)]
	if !collective.TakesHashed(name) {
		memory = rank.MemoryBytes
	}
	p := bcast.Params{
		Workload: "b", Root: r.IntN(len(hosts)), Iterations: 2, WarmUp: r.IntN(2), Memory: memory, Seed: seed,
		Sizes:   []int{r.IntN(20), r.IntN(params.MTU + 2), r.IntN(40 * params.MTU)},
		Schemes: []bcast.Scheme{{Label: name, Name: name, Options: o}},
	}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	records := make([][][]byte, len(hosts))
	what := fmt.Sprintf("%s %+v: %d ranks, root %d, sizes %v, MTU %d, %s; replay: go test ./rank/collective -run 'TestSchemes$' -from %d -seeds 1",
		name, o, len(hosts), p.Root, p.Sizes, params.MTU, memory, seed)
	if err := n.Run(sim.Job{
		Name: "b", Hosts: hosts, Params: params,
		Program: func(r *rank.Rank) error { return bcast.App{}.Run(r, raw) },
		Emit:    func(rank int, rec []byte) { records[rank] = append(records[rank], rec) },
	}); err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	rows, err := bcast.App{}.Reduce(raw, records)
	if err != nil || len(rows) != len(p.Sizes) {
		t.Fatalf("%s: %d rows, %v", what, len(rows), err)
	}
	for _, row := range rows {
		if row.Verified == nil || !*row.Verified || row.Iterations != 2 || row.WarmUp != p.WarmUp {
			t.Errorf("%s: %+v", what, row)
		}
	}
	if err := n.Leftover(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// TestWarmUp: errors of a warm-up count, and its times do not count.
func TestWarmUp(t *testing.T) {
	p := bcast.Params{Workload: "b", Sizes: []int{100}, Iterations: 2, WarmUp: 3, Schemes: named("unicast")}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range []int{-1, 0, 2, 4} {
		g, err := topo.Star(3, simlab.Link())
		n := newNet(t, g, err, 1)
		records := make([][][]byte, 3)
		seen, reports := 0, []string{}
		app := bcast.App{Delivered: func(r *rank.Rank, b *rank.Buffer) {
			if r.ID() == 2 {
				if seen == broken {
					b.Flip(7)
				}
				seen++
			}
		}}
		if err := n.Run(sim.Job{
			Name: "b", Hosts: []int{0, 1, 2}, Params: simlab.Params(), Program: func(r *rank.Rank) error { return app.Run(r, raw) },
			Emit:   func(rank int, rec []byte) { records[rank] = append(records[rank], rec) },
			Report: func(what string) { reports = append(reports, what) },
		}); err != nil {
			t.Fatal(err)
		}
		rows, err := app.Reduce(raw, records)
		if err != nil || len(rows) != 1 || rows[0].Iterations != 2 || rows[0].WarmUp != 3 || *rows[0].Verified != (broken < 0) {
			t.Errorf("message %d broken: %+v, %v", broken, rows, err)
		}
		if want := "b unicast, 100 bytes, warm-up 3 of 3"; len(reports) != 5 || !slices.Contains(reports, want) {
			t.Errorf("reports %q, want %q among five", reports, want)
		}
	}
}
