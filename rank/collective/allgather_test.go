// SPDX-License-Identifier: Apache-2.0

package collective_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/allgather"
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

// gathering is an Allgather in a lab of its own.
type gathering struct {
	graph *topo.Graph
	hosts []int
	check bool
	ack   int
	mtu   int
	seed  uint64
	vlan  uint16
	fault func(n *sim.Net, id int) faults.Link // by port; may be nil
	p     allgather.Params
	app   allgather.App
}

func (g *gathering) run() (n *sim.Net, rows []apps.Row, err error) {
	n, err = sim.New(sim.Config{Check: g.check, Spec: fabric.Spec{
		Graph: g.graph, Seed: g.seed, NIC: virtrnic.Settings{AckEvery: g.ack}, VLAN: g.vlan, TrustICRC: !g.check,
		Switch: fabric.Switch{
			Latency:  400 * vtime.Nanosecond,
			Settings: virtswitch.Settings{Buffer: 32e6, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
		},
	}})
	if err != nil {
		return nil, nil, err
	}
	if g.fault != nil {
		for id := range n.Ports() {
			n.SetFault(id, g.fault(n, id))
		}
	}
	params := simlab.Params()
	params.MTU = g.mtu
	rows, err = ofApp(n, g.hosts, params, g.app, g.p)
	return n, rows, err
}

// TestAllgathers: every Allgather brings the right bytes to random groups, at random
// sizes, while links lose one frame in a thousand.
func TestAllgathers(t *testing.T) {
	from, count := simlab.Seeds(t, 24)
	for _, name := range collective.AllgatherNames() {
		for seed := from; seed < from+count; seed++ {
			runAllgather(t, name, seed)
		}
	}
}

// runAllgather is one trial of an Allgather.
func runAllgather(t *testing.T, name string, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 78))
	graph, err := topo.FatTree(4, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	g := gathering{graph: graph, check: true, ack: 1 + r.IntN(17), mtu: 256 << r.IntN(5), seed: seed, vlan: simlab.Framing(graph, seed)}
	g.hosts = r.Perm(graph.Hosts)[:2+r.IntN(graph.Hosts-1)]
	g.fault = func(_ *sim.Net, id int) faults.Link {
		return &faults.Impairment{Loss: 1e-3, Random: simlab.Random(seed, fmt.Sprintf("fault/%d", id))}
	}
	o := randomOptions(r, collective.AllgatherParameters(name), g.mtu)
	if o.Parallel > 0 {
		o.Parallel = r.IntN(len(g.hosts) + 1)
	}
	g.p = allgather.Params{
		Workload: "a", Sizes: []int{r.IntN(20), r.IntN(5 * g.mtu)}, Iterations: []int{2, 2}, WarmUp: r.IntN(2), Seed: seed,
		Schemes: []apps.Scheme{{Label: name, Name: name, Options: o}},
	}
	what := fmt.Sprintf("%s %+v: %d ranks, sizes %v, MTU %d; replay: go test ./rank/collective -run 'TestAllgathers$' -from %d -seeds 1",
		name, o, len(g.hosts), g.p.Sizes, g.mtu, seed)
	_, rows, err := g.run()
	if err != nil || len(rows) != 2 {
		t.Errorf("%s: %d rows, %v", what, len(rows), err)
	}
	for _, row := range rows {
		if row.Verified == nil || !*row.Verified || row.Iterations != 2 || row.WarmUp != g.p.WarmUp {
			t.Errorf("%s: %+v", what, row)
		}
	}
}

// TestAllgatherChecks: a byte that is wrong anywhere is seen.
func TestAllgatherChecks(t *testing.T) {
	graph, err := topo.Star(3, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range []int{-1, 0, 150, 299} {
		g := gathering{graph: graph, check: true, ack: 1, mtu: 1024, hosts: []int{0, 1, 2}}
		g.p = allgather.Params{Workload: "a", Sizes: []int{100}, Iterations: []int{1}, Schemes: []apps.Scheme{{Label: "ring", Name: "ring"}}}
		g.app.Delivered = func(r *rank.Rank, b *rank.Buffer) {
			if r.ID() == 1 && broken >= 0 {
				b.Flip(broken)
			}
		}
		_, rows, err := g.run()
		if err != nil || len(rows) != 1 || *rows[0].Verified != (broken < 0) {
			t.Errorf("byte %d broken: %+v, %v", broken, rows, err)
		}
	}
}

// allgather is F-11 and F-13 with start-up terms, around one switch.
func (f *forms) allgather(name string, n, parallel int) float64 {
	ranks := len(f.hosts)
	l := f.links(0, 1)
	bytes := f.wire(n) / f.rate
	switch name {
	case "ring":
		return float64(ranks-1) * f.send(n, l)
	case "linear":
		return float64(ranks-1)*bytes + f.send(n, l) - bytes
	case "recursive-doubling":
		t := 0.0
		for d := 1; d < ranks; d *= 2 {
			t += f.send(n*d, l)
		}
		return t
	}
	if name != "cepheus" {
		return f.castGather(name, n, parallel)
	}
	steps := float64((ranks + parallel - 1) / parallel)
	all := float64(parallel-1)*bytes + f.send(n, l)
	if parallel == ranks {
		return float64(ranks-2)*bytes + f.send(n, l)
	}
	if n <= f.mtu {
		all = f.send(n, l) // after the first steps single packets no longer meet
	}
	return (steps-1)*(all+f.back(l)+f.send(0, l)) + all
}

// TestAllgatherForms compares every Allgather with its closed form.
func TestAllgatherForms(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector, which has nothing to find in one goroutine at a time")
	}
	sizes := []int{0, 64, 4 << 10, 64 << 10, 1 << 20}
	var table strings.Builder
	fmt.Fprintf(&table, "\n%5s %-20s %9s %12s %12s %7s\n", "ranks", "scheme", "bytes", "expected us", "got us", "ratio")
	for _, ranks := range []int{4, 6, 16} {
		graph, err := topo.Star(ranks, topo.LinkParams{Rate: 100e9, Delay: 600 * vtime.Nanosecond})
		if err != nil {
			t.Fatal(err)
		}
		f := forms{g: graph, rate: 12.5e9, delay: 600e-9, latency: 400e-9, mtu: 4096}
		for h := range graph.Hosts {
			f.hosts = append(f.hosts, h)
		}
		g := gathering{graph: graph, hosts: f.hosts, ack: 16, mtu: 4096}
		g.p = allgather.Params{Workload: "a", Sizes: sizes, Iterations: []int{1, 1, 1, 1, 1}, Memory: rank.MemoryPhantom}
		names, parallel := []string{"ring", "linear", "recursive-doubling"}, []int{1, 2, ranks}
		switch ranks {
		case 6:
			names = names[:2] // doubling has no closed form
		case 16:
			parallel = parallel[:2] // and this one incast
		}
		for _, name := range names {
			g.p.Schemes = append(g.p.Schemes, apps.Scheme{Label: name, Name: name})
		}
		for _, name := range []string{"cepheus", "multicast", "uc-multicast"} {
			for _, m := range parallel {
				g.p.Schemes = append(g.p.Schemes, apps.Scheme{Label: fmt.Sprintf("%s/%d", name, m), Name: name, Options: collective.Options{Parallel: m}})
			}
		}
		_, rows, err := g.run()
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range rows {
			s := g.p.Schemes[i/len(sizes)]
			want := f.allgather(s.Name, row.SizeBytes, s.Options.Parallel) * 1e6
			ratio := row.JCT.Avg / want
			fmt.Fprintf(&table, "%5d %-20s %9d %12.3f %12.3f %7.4f\n", ranks, row.Scheme, row.SizeBytes, want, row.JCT.Avg, ratio)
			if ratio < 0.95 || ratio > 1.05 {
				t.Errorf("%s of %d at %d bytes: %.3f us, closed form %.3f us", row.Scheme, ranks, row.SizeBytes, row.JCT.Avg, want)
			}
		}
	}
	t.Log(table.String())
}

// traffic counts the payload of data and all other bytes of the frames of a link.
type traffic struct{ payload, control int }

// Arrive implements faults.Link.
func (c *traffic) Arrive(_ vtime.Time, f *wire.Frame) faults.Verdict {
	if n := f.PayloadLen(); simlab.IsData(f) && n > 0 {
		c.payload += n
	} else {
		c.control += f.Len()
	}
	return faults.Verdict{}
}

// TestAllgatherTraffic: over all links, in both directions, the ring carries 2 - 2/P
// times the payload of multicast, exactly (F-14, R-A1), with ranks in depth-first order.
func TestAllgatherTraffic(t *testing.T) {
	star, err := topo.Star(5, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	k4, err := topo.FatTree(4, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	spine, err := topo.LeafSpine(topo.LeafSpineSpec{Leaves: 3, Spines: 2, Hosts: 4}, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	const n = 10000
	for name, graph := range map[string]*topo.Graph{"star": star, "k=4": k4, "leaf-spine": spine} {
		payload := map[string]int{}
		for _, s := range []apps.Scheme{
			{Label: "ring", Name: "ring"}, {Label: "cepheus", Name: "cepheus"},
			{Label: "cepheus/all", Name: "cepheus", Options: collective.Options{Parallel: graph.Hosts}},
			{Label: "multicast", Name: "multicast"},
			{Label: "multicast/all", Name: "multicast", Options: collective.Options{Parallel: graph.Hosts, Subgroups: 3, Workers: 2}},
			{Label: "uc-multicast", Name: "uc-multicast", Options: collective.Options{Parallel: 2, Chunk: 3000}},
		} {
			var sum traffic
			g := gathering{graph: graph, check: true, ack: 4, mtu: 1024, fault: func(*sim.Net, int) faults.Link { return &sum }}
			for h := range graph.Hosts {
				g.hosts = append(g.hosts, h)
			}
			g.p = allgather.Params{Workload: "a", Sizes: []int{n}, Iterations: []int{1}, Schemes: []apps.Scheme{s}}
			if _, rows, err := g.run(); err != nil || !*rows[0].Verified {
				t.Fatalf("%s %s: %v", name, s.Label, err)
			}
			payload[s.Label] = sum.payload
			t.Logf("%s, %d ranks, %s: %d bytes of payload on all links, %d of control", name, graph.Hosts, s.Label, sum.payload, sum.control)
		}
		p := graph.Hosts
		for label := range payload { // independent of each other
			if label == "ring" {
				continue
			}
			if payload["ring"]*p != payload[label]*(2*p-2) || payload[label]%(p*n) != 0 {
				t.Errorf("%s: the ring carries %d bytes of payload, %s %d: the ratio is not 2 - 2/%d", name, payload["ring"], label, payload[label], p)
			}
		}
	}
}
