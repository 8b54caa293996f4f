// SPDX-License-Identifier: Apache-2.0

package collective_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/allgather"
	"github.com/mcastlab/mcastlab/apps/fsdp"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// overlapping is an Allgather and a Reduce-scatter at one time, in a lab of their own.
type overlapping struct {
	graph *topo.Graph
	hosts []int
	check bool
	ack   int
	mtu   int
	seed  uint64
	loss  float64
	p     fsdp.Params
	app   fsdp.App
}

func (o *overlapping) run() (*sim.Net, []apps.Row, error) {
	n, err := sim.New(sim.Config{Check: o.check, Spec: fabric.Spec{
		Graph: o.graph, Seed: o.seed, NIC: virtrnic.Settings{AckEvery: o.ack}, TrustICRC: !o.check,
		Switch: fabric.Switch{
			Latency:  400 * vtime.Nanosecond,
			Settings: virtswitch.Settings{Buffer: 32e6, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
		},
	}})
	if err != nil {
		return nil, nil, err
	}
	for id := range n.Ports() {
		if o.loss > 0 {
			n.SetFault(id, &faults.Impairment{Loss: o.loss, Random: simlab.Random(o.seed, fmt.Sprintf("fault/%d", id))})
		}
	}
	params := simlab.Params()
	params.MTU = o.mtu
	rows, err := ofApp(n, o.hosts, params, o.app, o.p)
	return n, rows, err
}

// pairsOf returns every pair of an Allgather and a Reduce-scatter that there is.
func pairsOf() (all []fsdp.Pair) {
	for _, a := range collective.AllgatherNames() {
		for _, r := range collective.ReduceScatterNames() {
			all = append(all, fsdp.Pair{Label: a + "-" + r, Allgather: fsdp.Scheme{Name: a}, ReduceScatter: fsdp.Scheme{Name: r}})
		}
	}
	return all
}

// runPair is one trial of a pair: random ranks, sizes and parameters, while links lose one
// frame in a thousand.
func runPair(t *testing.T, pair fsdp.Pair, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 80))
	g, err := topo.FatTree(4, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	o := overlapping{graph: g, check: true, ack: 1 + r.IntN(17), mtu: 256 << r.IntN(5), seed: seed, loss: 1e-3}
	o.hosts = r.Perm(g.Hosts)[:2+r.IntN(g.Hosts-1)]
	pair.Allgather.Options = randomOptions(r, collective.AllgatherParameters(pair.Allgather.Name), o.mtu)
	if pair.Allgather.Options.Parallel > 0 {
		pair.Allgather.Options.Parallel = r.IntN(len(o.hosts) + 1)
	}
	o.p = fsdp.Params{
		Workload: "o", Sizes: []int{4 * r.IntN(5), 4 * r.IntN(o.mtu)}, Iterations: []int{2, 2}, WarmUp: r.IntN(2), Seed: seed,
		Float32: r.IntN(2) == 0, Pairs: []fsdp.Pair{pair},
	}
	what := fmt.Sprintf("%s %+v: %d ranks, sizes %v, MTU %d; replay: go test ./rank/collective -run 'TestOverlaps$' -from %d -seeds 1",
		pair.Label, pair.Allgather.Options, len(o.hosts), o.p.Sizes, o.mtu, seed)
	_, rows, err := o.run()
	if err != nil || len(rows) != 2 {
		t.Errorf("%s: %d rows, %v", what, len(rows), err)
	}
	for _, row := range rows {
		if row.Verified == nil || !*row.Verified || row.Iterations != 2 || row.WarmUp != o.p.WarmUp {
			t.Errorf("%s: %+v", what, row)
		}
		if v := apps.DetailsOf[fsdp.Overlap](row); row.JCT.Max != max(v.Gathered.Max, v.Reduced.Max) || v.Gathered.Min > row.JCT.Min || v.Reduced.Min > row.JCT.Min {
			t.Errorf("%s: %+v of %+v", what, v, row.JCT)
		}
	}
}

// TestOverlaps: an Allgather and a Reduce-scatter, any of each, bring the right bytes and
// sums to random groups while they share links that lose one frame in a thousand.
func TestOverlaps(t *testing.T) {
	from, count := simlab.Seeds(t, 6)
	for _, pair := range pairsOf() {
		for seed := from; seed < from+count; seed++ {
			runPair(t, pair, seed)
		}
	}
}

// TestOverlapChecks: a wrong byte in either half is seen.
func TestOverlapChecks(t *testing.T) {
	graph, err := topo.Star(3, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	for _, half := range []string{"", "gathered", "reduced"} {
		o := overlapping{graph: graph, check: true, ack: 1, mtu: 1024, hosts: []int{0, 1, 2}}
		o.p = fsdp.Params{Workload: "o", Sizes: []int{100}, Iterations: []int{1}, Pairs: pairsOf()[:2]}
		o.app.Delivered = func(r *rank.Rank, gathered, reduced *rank.Buffer) {
			switch {
			case r.ID() == 1 && half == "gathered":
				gathered.Flip(299)
			case r.ID() == 1 && half == "reduced":
				reduced.Flip(150)
			}
		}
		_, rows, err := o.run()
		if err != nil || len(rows) != 2 || *rows[0].Verified != (half == "") || *rows[1].Verified != (half == "") {
			t.Errorf("a byte of what is %q broken: %+v, %v", half, rows, err)
		}
	}
}

// TestPace: ranks that multicast at the same time together take the configured part of a link, and then
// nothing queues: an empty message gets through without delay.
func TestPace(t *testing.T) {
	const ranks, n = 8, 1 << 20
	graph, f := starForms(t, ranks)
	for _, pace := range []int{0, 100, 50} {
		g := gathering{graph: graph, hosts: f.hosts, ack: 16, mtu: f.mtu}
		g.p = allgather.Params{
			Workload: "a", Sizes: []int{n}, Iterations: []int{1}, Memory: rank.MemoryPhantom,
			Schemes: []apps.Scheme{{Label: "a", Name: "multicast", Options: collective.Options{Parallel: ranks, Pace: pace}}},
		}
		most := 0
		g.fault = func(net *sim.Net, _ int) faults.Link { return &deepest{net: net, node: ranks, most: &most} }
		_, rows, err := g.run()
		if err != nil {
			t.Fatal(err)
		}
		want := f.castGather("multicast", n, ranks)
		if pace > 0 {
			want += f.castWire("multicast", n) / f.rate * (ranks*100/float64(pace) - (ranks - 1)) // its own block is in its turn as well
		}
		t.Logf("pace %d: %.1f us, closed form %.1f, at most %d frames wait in the switch", pace, rows[0].JCT.Avg, want*1e6, most)
		if ratio := rows[0].JCT.Avg / want / 1e6; ratio < 0.95 || ratio > 1.05 {
			t.Errorf("pace %d: %.1f us, want %.1f", pace, rows[0].JCT.Avg, want*1e6)
		}
		if few := most <= ranks*ranks; few != (pace > 0) {
			t.Errorf("pace %d: %d frames wait in the switch", pace, most)
		}
	}
}

// deepest notes the most frames that wait in a switch.
type deepest struct {
	net  *sim.Net
	node int
	most *int
}

// Arrive implements faults.Link.
func (d *deepest) Arrive(vtime.Time, *wire.Frame) faults.Verdict {
	*d.most = max(*d.most, d.net.Switch(d.node).Queued())
	return faults.Verdict{}
}
