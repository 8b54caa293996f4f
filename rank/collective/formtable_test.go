// SPDX-License-Identifier: Apache-2.0

package collective_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/allgather"
	"github.com/mcastlab/mcastlab/apps/bcast"
	"github.com/mcastlab/mcastlab/apps/fsdp"
	"github.com/mcastlab/mcastlab/apps/hpl"
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

// formTable holds the closed forms F-2 to F-15 of the papers, a row or more of each: its value beside
// that of a simulation around one switch (F-14 on a fat-tree).
type formTable struct {
	t      *testing.T
	text   strings.Builder
	forms  map[string]bool     // that have a row
	scheme map[string][]string // that have, by kind
}

func (x *formTable) row(form, kind, scheme, of string, want, got float64) {
	x.forms[form] = true
	x.scheme[kind] = append(x.scheme[kind], scheme)
	ratio := got / want
	fmt.Fprintf(&x.text, "%-5s %-15s %-24s %-22s %12.3f %12.3f %7.4f\n", form, kind, scheme, of, want, got, ratio)
	if ratio < 0.95 || ratio > 1.05 {
		x.t.Errorf("%s, %s %s, %s: %.4f, the form says %.4f", form, kind, scheme, of, got, want)
	}
}

func starForms(t *testing.T, ranks int) (*topo.Graph, forms) {
	t.Helper()
	g, err := topo.Star(ranks, topo.LinkParams{Rate: 100e9, Delay: 600 * vtime.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	f := forms{g: g, rate: 12.5e9, delay: 600e-9, latency: 400e-9, mtu: 4096}
	for h := range g.Hosts {
		f.hosts = append(f.hosts, h)
	}
	return g, f
}

// broadcasts are F-2 to F-10 and F-12.
func (x *formTable) broadcasts(ranks int) {
	form := map[string]string{
		"cepheus": "F-2", "gleam": "F-2", "unicast": "F-3", "binomial": "F-4", "chain": "F-5", "rdmc": "F-6", "1ring": "F-7", "1ringM": "F-7",
		"2ring": "F-7", "2ringM": "F-7", "long": "F-8", "longM": "F-8", "k-nomial": "F-9", "scatter-allgather": "F-9", "binary-tree": "F-10",
		"pipelined-binary-tree": "F-10", "double-binary-tree": "F-10", "ud-multicast": "F-12", "uc-multicast": "F-12",
	}
	g, f := starForms(x.t, ranks)
	sizes := []int{64, 64 << 10, 4 << 20}
	for _, name := range collective.Names() {
		if form[name] == "" {
			x.t.Errorf("broadcast %s has no closed form here", name)
		}
		s := bcast.Scheme{Label: name, Name: name}
		switch name {
		case "k-nomial", "scatter-allgather":
			s.Options.Radix = 4
		case "rdmc":
			s.Options.Block = 256 << 10
		}
		rules := virtswitch.RulesFixed()
		if name == "gleam" {
			rules = virtswitch.RulesGleam()
		}
		for _, row := range measureBy(x.t, rules, g, f.hosts, []bcast.Scheme{s}, sizes) {
			if name == "scatter-allgather" && row.SizeBytes < 1<<20 {
				continue // senders that reach a round at different times share a receiver's port: TestSchemeForms
			}
			want := f.of(name, row.SizeBytes)
			if !slices.Contains([]string{"F-2", "F-3", "F-4", "F-5", "F-12"}, form[name]) {
				want = f.scheme(s, row.SizeBytes)
			}
			x.row(form[name], "bcast", name, fmt.Sprintf("%d ranks, %d B, us", ranks, row.SizeBytes), want*1e6, row.JCT.Avg)
		}
	}
}

// swaps are F-8 as HPL's row swap has it: (2+e)(P-1)/P U/B.
func (x *formTable) swaps() {
	const n, nb, epochs, ranks = 4096, 128, 4, 4
	g, f := starForms(x.t, ranks)
	u := 0.0
	for k := range epochs {
		u += f.wire(nb*(n+1-nb*(k+1))*8) / f.rate * 1e6
	}
	for e, pivots := range []string{hpl.PivotsUniform, hpl.PivotsCentralised} {
		p := hpl.Params{Workload: "hpl", CostOnly: true, Epochs: epochs, Pivots: pivots, Tests: []hpl.Test{{
			Label: "1ring", N: n, NB: nb, P: ranks, Q: 1, Bcast: "1ring", Swap: hpl.SwapLong, SwapThreshold: 64, PFact: hpl.Right, RFact: hpl.Right, NBMin: 4, NDiv: 2,
		}}}
		raw, err := json.Marshal(p)
		if err != nil {
			x.t.Fatal(err)
		}
		net, err := sim.New(sim.Config{NoDigest: true, Spec: fabric.Spec{
			Graph: g, Seed: 1, TrustICRC: true, NIC: virtrnic.Settings{AckEvery: 16},
			Switch: fabric.Switch{
				Latency:  400 * vtime.Nanosecond,
				Settings: virtswitch.Settings{Buffer: 32e6, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
			},
		}})
		if err != nil {
			x.t.Fatal(err)
		}
		params := simlab.Params()
		params.MTU = f.mtu
		records := make([][][]byte, ranks)
		if err := net.Run(sim.Job{
			Name: "hpl", Hosts: f.hosts, Params: params, Program: func(r *rank.Rank) error { return hpl.App{}.Run(r, raw) },
			Emit: func(i int, rec []byte) { records[i] = append(records[i], rec) },
		}); err != nil {
			x.t.Fatal(err)
		}
		rows, err := hpl.App{}.Reduce(raw, records)
		if err != nil || len(rows) != 1 {
			x.t.Fatalf("%d rows, %v", len(rows), err)
		}
		x.row("F-8", "row swap", "long", pivots+" pivots, us", (2+float64(e))*(ranks-1)/ranks*u, apps.DetailsOf[hpl.Solve](rows[0]).SwapUS)
	}
}

// gathers are F-11 and F-13.
func (x *formTable) gathers(ranks int) {
	form := map[string]string{
		"ring": "F-11", "linear": "F-11", "recursive-doubling": "F-11", "multicast": "F-13", "uc-multicast": "F-13", "cepheus": "F-13",
	}
	graph, f := starForms(x.t, ranks)
	for _, name := range collective.AllgatherNames() {
		if form[name] == "" {
			x.t.Errorf("allgather %s has no closed form here", name)
		}
		o := collective.Options{}
		if form[name] == "F-13" {
			o.Parallel = 2
		}
		g := gathering{graph: graph, hosts: f.hosts, ack: 16, mtu: f.mtu}
		g.p = allgather.Params{
			Workload: "a", Sizes: []int{64, 64 << 10, 1 << 20}, Iterations: []int{1, 1, 1}, Memory: rank.MemoryPhantom,
			Schemes: []apps.Scheme{{Label: name, Name: name, Options: o}},
		}
		_, rows, err := g.run()
		if err != nil {
			x.t.Fatal(err)
		}
		for _, row := range rows {
			want := f.allgather(name, row.SizeBytes, o.Parallel) * 1e6
			x.row(form[name], "allgather", name, fmt.Sprintf("%d ranks, %d B, us", ranks, row.SizeBytes), want, row.JCT.Avg)
		}
	}
}

// sums are F-11's form for a Reduce-scatter round a ring, and F-15's for one in the network.
func (x *formTable) sums() {
	form := map[string]string{"ring": "F-11", "in-network": "F-15"}
	g, f := starForms(x.t, 5)
	for _, name := range collective.ReduceScatterNames() {
		if form[name] == "" {
			x.t.Errorf("reduce-scatter %s has no closed form here", name)
		}
		for _, size := range []int{64, 64 << 10, 1 << 20} {
			took, _ := reduceTime(x.t, name, g, f.mtu, size)
			x.row(form[name], "reduce-scatter", name, fmt.Sprintf("5 ranks, %d B, us", size), f.reduceScatter(name, size)*1e6, took)
		}
	}
}

// loads are F-14: payload over all links of a fat-tree, ranks in depth-first order, of
// multicast P E n, of the ring 2 (P-1) E n.
func (x *formTable) loads() {
	graph, err := topo.FatTree(4, simlab.Link())
	if err != nil {
		x.t.Fatal(err)
	}
	const n, edges = 4096, 16 + 8 + 4                                                                     // of hosts, leaves, pods
	for name, want := range map[string]float64{"ring": 15 * 2 * edges * n, "multicast": 16 * edges * n} { // independent of each other
		var sum traffic
		g := gathering{graph: graph, ack: 4, mtu: 1024, fault: func(*sim.Net, int) faults.Link { return &sum }}
		for h := range graph.Hosts {
			g.hosts = append(g.hosts, h)
		}
		g.p = allgather.Params{Workload: "a", Sizes: []int{n}, Iterations: []int{1}, Schemes: []apps.Scheme{{Label: name, Name: name}}}
		if _, _, err := g.run(); err != nil {
			x.t.Fatal(err)
		}
		if float64(sum.payload) != want {
			x.t.Errorf("%s: %d bytes of payload on all links, want %.0f", name, sum.payload, want)
		}
		x.row("F-14", "allgather", name, "16 ranks, bytes", want, float64(sum.payload))
	}
}

// overlaps are F-15: the time of ring and ring over that of multicast and sums in the
// network is 2 - 2/P, if all ranks multicast at a time and none faster than the receivers
// take it: else queues, or the turn of one rank after the other, hold the sums up.
func (x *formTable) overlaps() {
	const n = 1 << 20
	for _, ranks := range []int{4, 8, 16} {
		graph, f := starForms(x.t, ranks)
		o := overlapping{graph: graph, ack: 16, mtu: f.mtu, hosts: f.hosts}
		o.p = fsdp.Params{Workload: "o", Sizes: []int{n}, Iterations: []int{1}, Memory: rank.MemoryPhantom, Pairs: []fsdp.Pair{
			{Label: "ring-ring", Allgather: fsdp.Scheme{Name: "ring"}, ReduceScatter: fsdp.Scheme{Name: "ring"}},
			{
				Label: "multicast-in-network", Allgather: fsdp.Scheme{Name: "multicast", Options: collective.Options{Parallel: ranks, Pace: 100}},
				ReduceScatter: fsdp.Scheme{Name: "in-network"},
			},
		}}
		_, rows, err := o.run()
		if err != nil {
			x.t.Fatal(err)
		}
		x.row("F-15", "fsdp", "ring-ring", fmt.Sprintf("%d ranks, %d B, us", ranks, n), 2*float64(ranks-1)*f.wire(n)/f.rate*1e6, rows[0].JCT.Avg)
		x.row("F-15", "fsdp", "2 - 2/P", fmt.Sprintf("%d ranks, %d B", ranks, n), 2-2/float64(ranks), rows[0].JCT.Avg/rows[1].JCT.Avg)
	}
}

// TestFormTable holds every broadcast, Allgather and Reduce-scatter that there is against
// its closed form within 5 %, and no form from F-2 to F-15 is without a row. (With more
// sizes, ranks and fabrics: TestClosedForms, TestSchemeForms, TestAllgatherForms.)
func TestFormTable(t *testing.T) {
	x := &formTable{t: t, forms: map[string]bool{}, scheme: map[string][]string{}}
	fmt.Fprintf(&x.text, "\n%-5s %-15s %-24s %-22s %12s %12s %7s\n", "form", "kind", "scheme", "of", "expected", "got", "ratio")
	for _, ranks := range []int{4, 7} {
		x.broadcasts(ranks)
	}
	x.swaps()
	x.gathers(8)
	x.sums()
	x.loads()
	x.overlaps()
	for i := 2; i <= 15; i++ {
		if f := fmt.Sprintf("F-%d", i); !x.forms[f] {
			t.Errorf("%s has no row", f)
		}
	}
	for kind, names := range map[string][]string{
		"bcast": collective.Names(), "allgather": collective.AllgatherNames(), "reduce-scatter": collective.ReduceScatterNames(),
	} {
		for _, name := range names {
			if !slices.Contains(x.scheme[kind], name) {
				t.Errorf("%s %s has no row", kind, name)
			}
		}
	}
	t.Log(x.text.String())
}
