// SPDX-License-Identifier: Apache-2.0

package manycast_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/manycast"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// cast runs the benchmark and returns its rows and the network.
func cast(t *testing.T, c sim.Config, p manycast.Params, app manycast.App) ([]apps.Row, *sim.Net) {
	t.Helper()
	n, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range manycast.Names() {
		if len(p.Schemes) < len(manycast.Names()) {
			p.Schemes = append(p.Schemes, manycast.Scheme{Label: s, Name: s})
		}
	}
	p.Workload = "m"
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	params := simlab.Params()
	params.MTU = 4096
	var hosts []int
	for h := range c.Graph.Hosts {
		hosts = append(hosts, h)
	}
	records := make([][][]byte, len(hosts))
	if err := n.Run(sim.Job{
		Name: "m", Hosts: hosts, Params: params, Program: func(r *rank.Rank) error { return app.Run(r, raw) },
		Emit: func(rank int, rec []byte) { records[rank] = append(records[rank], rec) },
	}); err != nil {
		t.Fatalf("%+v, seed %d: %v", p, p.Seed, err)
	}
	if err := n.Leftover(); err != nil {
		t.Error(err)
	}
	rows, err := app.Reduce(raw, records)
	if err != nil {
		t.Fatal(err)
	}
	return rows, n
}

// oneToMany is F-24 in bytes on the wire, in microseconds: the time until the last member
// has the message of one source, alone in the fabric. Cut-through switches wait for 82
// bytes of each packet, others for all of it.
func oneToMany(g *topo.Graph, scheme string, size int, cut bool, src int, members []int) (us float64) {
	const perByte, link, hop, mtu = 4e-3, 0.020, 0.100, 4096
	first := float64(min(size, mtu) + simlab.SendOverhead)
	if cut {
		first = 82
	}
	sent := 0.0 // the bytes that went before
	for _, m := range members {
		if m == src {
			continue
		}
		links := float64(g.Hops(src, m))
		sent += float64(simlab.SendBytes(size, mtu))
		if scheme != manycast.Unicast {
			sent = float64(simlab.SendBytes(size, mtu))
		}
		us = max(us, sent*perByte+links*link+(links-1)*(hop+first*perByte))
	}
	return us
}

// TestOneToMany: R-Y1 (Fig. 8 to 10): every scheme at every size agrees with its closed
// form, cut-through and store-and-forward, with queues at either side, on the paper's
// fabric; cyclic and OpenSM take the same time for the same group.
func TestOneToMany(t *testing.T) {
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-13s %5s %7s %-12s %11s %11s %7s\n", "switches", "group", "bytes", "scheme", "expected us", "got us", "ratio")
	sizes := []int{32, 512, 4096, 8192, 131072}
	for _, mode := range []struct {
		name  string
		cut   bool
		input *virtswitch.InputConfig
	}{
		{"cut, input", true, &virtswitch.InputConfig{}}, {"cut, output", true, nil},
		{"store, input", false, &virtswitch.InputConfig{}}, {"store, output", false, nil},
	} {
		if mode.input == nil && testing.Short() {
			continue
		}
		for _, group := range []int{13, 51, 128} {
			c := sim.Config{Spec: simlab.NTree(t, 8, 3, mode.cut, mode.input)}
			p := manycast.Params{M: 8, N: 3, Sizes: sizes, Sources: 1, Members: group, Iterations: 2, Seed: 5, Memory: rank.MemoryPhantom}
			c.TrustICRC, c.NoDigest = true, true
			rows, _ := cast(t, c, p, manycast.App{})
			same := map[int]float64{}
			for _, row := range rows {
				want := 0.0
				for i := range p.Iterations {
					src, groups := p.Draw(i, c.Graph.Hosts)
					want += oneToMany(c.Graph, row.Scheme, row.SizeBytes, mode.cut, src[0], groups[0]) / float64(p.Iterations)
				}
				ratio := row.JCT.Avg / want
				fmt.Fprintf(&table, "%-13s %5d %7d %-12s %11.3f %11.3f %7.4f\n", mode.name, group, row.SizeBytes, row.Scheme, want, row.JCT.Avg, ratio)
				if math.Abs(ratio-1) > 0.001 {
					t.Errorf("%s, group of %d, %s at %d bytes: %.3f us, closed form %.3f us", mode.name, group, row.Scheme, row.SizeBytes, row.JCT.Avg, want)
				}
				if row.Scheme == manycast.Cyclic {
					same[row.SizeBytes] = row.JCT.Avg
				} else if row.Scheme == manycast.OpenSM && math.Abs(row.JCT.Avg/same[row.SizeBytes]-1) > 0.01 {
					t.Errorf("one source, %d bytes: opensm %.3f us, cyclic %.3f us", row.SizeBytes, row.JCT.Avg, same[row.SizeBytes])
				}
			}
		}
	}
	t.Log(table.String())
}

// TestManyToManyExact: R-Y6: over random sources and groups every message arrives once, byte by byte,
// with every invariant checked, and no packet reaches another host; by the loads of links, no link of a
// multicast tree carries a message twice.
func TestManyToManyExact(t *testing.T) {
	from, count := simlab.DaySeeds(t, 6)
	for seed := from; seed < from+count; seed++ {
		for _, shape := range [][2]int{{4, 2}, {4, 3}, {8, 2}} {
			for k, input := range []*virtswitch.InputConfig{nil, {}, {Together: true}, {Credits: true}, {Together: true, Credits: true}} {
				c := sim.Config{Spec: simlab.NTree(t, shape[0], shape[1], (int(seed)+k)%2 == 0, input)}
				c.Check, c.Seed = true, seed
				hosts := c.Graph.Hosts
				p := manycast.Params{
					M: shape[0], N: shape[1], Sizes: []int{32, 10000}, Sources: 1 + int(seed*7+uint64(k))%hosts, Members: 1 + int(seed*5+uint64(k)*3)%hosts,
					Iterations: 2, Seed: seed,
				}
				for _, p.PerSource = range []bool{false, true} {
					castExactly(t, c, p)
				}
			}
		}
	}
}

// castExactly runs the benchmark: every message comes right and once, and no switch has a
// packet that it knows no way for.
func castExactly(t *testing.T, c sim.Config, p manycast.Params) {
	t.Helper()
	hosts := c.Graph.Hosts
	what := fmt.Sprintf("seed %d, IBFT(%d, %d), %d sources to groups of %d (each its own: %v)", p.Seed, p.M, p.N, p.Sources, p.Members, p.PerSource)
	replay := fmt.Sprintf("replay: go test ./apps/manycast -run ManyToManyExact -from %d -seeds 1", p.Seed)
	rows, n := cast(t, c, p, manycast.App{})
	for _, row := range rows {
		if row.Verified == nil || !*row.Verified {
			t.Errorf("%s, %s at %d bytes: not every message came right and once\n%s", what, row.Scheme, row.SizeBytes, replay)
		}
		if want := simlab.Messages(p, hosts); apps.DetailsOf[manycast.Spread](row).Messages != want {
			t.Errorf("%s, %s: %v messages came, want %v\n%s", what, row.Scheme, apps.DetailsOf[manycast.Spread](row).Messages, want, replay)
		}
	}
	for i := hosts; i < len(c.Graph.Nodes); i++ {
		if d := n.Switch(i).Stats().Dropped(); d != 0 {
			t.Errorf("%s: %s dropped %d packets: %v\n%s", what, c.Graph.Nodes[i].Name, d, n.Switch(i).Stats().Drops, replay)
		}
	}
}

// TestManyToManyDraws: all sources have one group, or each one of its own, the first of
// them the same; a draw is of the numbers asked for, and another in each iteration.
func TestManyToManyDraws(t *testing.T) {
	p := manycast.Params{Sources: 51, Members: 13, Seed: 1}
	sources, shared := p.Draw(0, 128)
	p.PerSource = true
	again, apart := p.Draw(0, 128)
	_, next := p.Draw(1, 128)
	if !slices.Equal(sources, again) || len(sources) != 51 || len(shared) != 51 || len(apart) != 51 || !slices.Equal(shared[0], apart[0]) {
		t.Fatalf("%d sources with %d groups, %d with %d", len(sources), len(shared), len(again), len(apart))
	}
	for i := range sources {
		if !slices.Equal(shared[i], shared[0]) || i > 0 && slices.Equal(apart[i], apart[i-1]) || slices.Equal(apart[i], next[i]) {
			t.Errorf("source %d sends to %v and to %v, the one before to %v, in the next iteration to %v", i, shared[i], apart[i], apart[max(i, 1)-1], next[i])
		}
		if g := apart[i]; len(g) != 13 || !slices.IsSorted(g) || len(slices.Compact(slices.Clone(g))) != 13 {
			t.Errorf("source %d has the group %v", i, g)
		}
	}
}

// TestManyToManyLoads: one source to all: a multicast message crosses each link of its
// tree once: in IBFT(4, 3) 16 to hosts (its own up, 15 down) and those between switches
// that the table says; unicast crosses as many as there are on all its paths.
func TestManyToManyLoads(t *testing.T) {
	for _, scheme := range manycast.Names() {
		c := sim.Config{Spec: simlab.NTree(t, 4, 3, true, &virtswitch.InputConfig{})}
		g := c.Graph
		p := manycast.Params{M: 4, N: 3, Sizes: []int{1000}, Sources: 1, Members: g.Hosts, Iterations: 1, Seed: 3}
		for range manycast.Names() {
			p.Schemes = append(p.Schemes, manycast.Scheme{Label: fmt.Sprint("s", len(p.Schemes)), Name: scheme})
		}
		_, n := cast(t, c, p, manycast.App{})
		got := uint64(0)
		for id := range n.Ports() {
			got += n.Link(id).Frames
		}
		src, _ := p.Draw(0, g.Hosts)
		links := 0
		switch scheme {
		case manycast.Unicast:
			for h := range g.Hosts {
				if h != src[0] {
					links += g.Hops(src[0], h)
				}
			}
		default:
			links = 1 // the source's own
			var tree []wire.MulticastEntry
			var err error
			switch scheme {
			case manycast.Cyclic:
				tree, err = g.CyclicTree(src[0], simlab.Hosts(g))
			case manycast.CyclicClass:
				tree, err = g.ClassTree(g.NTree().Class(src[0]), simlab.Hosts(g))
			default:
				tree, err = g.SpanningTree(simlab.Hosts(g), src, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			links += reach(g, tree, src[0])
		}
		if want := uint64(links * len(p.Schemes)); got != want {
			t.Errorf("%s: links carried %d packets, want %d", scheme, got, want)
		}
	}
}

// reach counts the links that a packet of a source crosses by a table, its own left out.
func reach(g *topo.Graph, tree []wire.MulticastEntry, src int) (links int) {
	for queue := []topo.End{g.Peer(src, 0)}; len(queue) > 0; queue = queue[1:] {
		e := queue[0]
		i := slices.IndexFunc(tree, func(b wire.MulticastEntry) bool { return b.Switch == e.Node })
		if i < 0 {
			continue // a host
		}
		for _, p := range tree[i].Ports {
			if int(p) != e.Port {
				links++
				queue = append(queue, g.Peer(e.Node, int(p)))
			}
		}
	}
	return links
}

// TestManyToManyNotices: a wrong byte at one member is noticed.
func TestManyToManyNotices(t *testing.T) {
	c := sim.Config{Spec: simlab.NTree(t, 4, 2, true, nil)}
	p := manycast.Params{M: 4, N: 2, Sizes: []int{64}, Sources: 3, Members: 4, Iterations: 1, Seed: 2}
	_, groups := p.Draw(0, c.Graph.Hosts)
	app := manycast.App{Delivered: func(r *rank.Rank, b *rank.Buffer) {
		if r.ID() == groups[0][0] {
			b.Flip(64*2 + 10) // of the second source, or of a third if that is this host
			b.Flip(64*3 + 10)
		}
	}}
	rows, _ := cast(t, c, p, app)
	for _, row := range rows {
		if row.Verified == nil || *row.Verified {
			t.Errorf("%s: a wrong byte was not noticed", row.Scheme)
		}
	}
}
