// SPDX-License-Identifier: Apache-2.0

package collective_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/flows"
	"github.com/mcastlab/mcastlab/apps/fsdp"
	"github.com/mcastlab/mcastlab/apps/hpl"
	"github.com/mcastlab/mcastlab/apps/manycast"
	"github.com/mcastlab/mcastlab/apps/storage"
	"github.com/mcastlab/mcastlab/apps/storage/pebblestore"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// kindTrials is the schemes of a kind of workload, and how one of them is tried.
type kindTrials struct {
	schemes []string
	trial   func(t *testing.T, scheme string, seed uint64)
}

// trials are those of all kinds of workloads, by their keys in a lab file. A program of the
// user's own has no schemes, and neither has a command.
func trials() map[string]kindTrials {
	pairs := map[string]fsdp.Pair{}
	var labels []string
	for _, p := range pairsOf() {
		pairs[p.Label] = p
		labels = append(labels, p.Label)
	}
	var solvers []string
	for _, b := range hpl.Bcasts() {
		solvers = append(solvers, "broadcast "+b)
	}
	for _, s := range hpl.Swaps() {
		solvers = append(solvers, "swap "+s)
	}
	return map[string]kindTrials{
		"bcast":     {collective.Names(), runScheme},
		"allgather": {collective.AllgatherNames(), runAllgather},
		"alltoall":  {collective.AlltoallNames(), runAlltoall},
		"reduce-scatter": {collective.ReduceScatterNames(), func(t *testing.T, name string, seed uint64) {
			lossyJob(t, seed, 2+int(seed)%15, 1e-3, func(r *rank.Rank) error { return sums(r, name, []int{1 + int(seed*seed*37)%900}, false, nil) })
		}},
		"fsdp":         {labels, func(t *testing.T, label string, seed uint64) { runPair(t, pairs[label], seed) }},
		"hpl":          {solvers, runSolver},
		"storage":      {storage.Schemes(), runStorage},
		"many-to-many": {manycast.Names(), runManyToMany},
		"program":      {},
		"command":      {},
		"flows":        {[]string{"connection", "multicast"}, runFlows},
	}
}

// TestEveryScheme: no kind of workload that a lab may have, and none of its schemes, is
// without a trial: random groups, roots, sizes and parameters, ranks that are no power of
// two, one frame in a thousand lost on every link, and each byte, sum or residual verified.
// (Messages of many-to-many are not sent again: there nothing is lost.)
func TestEveryScheme(t *testing.T) {
	from, count := simlab.Seeds(t, 3)
	all := trials()
	kinds := reflect.TypeFor[lab.Workload]()
	for i := range kinds.NumField() {
		kind := kinds.Field(i).Tag.Get("yaml")
		k, ok := all[kind]
		if !ok {
			t.Errorf("workload %s has no trial: add it to trials", kind)
		}
		for _, scheme := range k.schemes {
			for seed := from + 1000; seed < from+1000+count; seed++ {
				k.trial(t, scheme, seed)
			}
			if t.Failed() {
				t.Fatalf("%s %s failed; replay: go test ./rank/collective -run 'TestEveryScheme$' -from %d -seeds %d", kind, scheme, from, count)
			}
		}
	}
	if len(all) != kinds.NumField() {
		t.Errorf("trials of %d kinds of workloads, of which there are %d", len(all), kinds.NumField())
	}
}

// lossyOn is a net on which one frame in a thousand is lost.
func lossyOn(t *testing.T, g *topo.Graph, seed uint64, rules virtswitch.Rules) *sim.Net {
	t.Helper()
	return impairedNet(t, g, seed, rules, faults.Impairment{Loss: 1e-3})
}

// impairedNet is a net each of whose links does something to frames.
func impairedNet(t *testing.T, g *topo.Graph, seed uint64, rules virtswitch.Rules, m faults.Impairment) *sim.Net {
	t.Helper()
	n, err := sim.New(sim.Config{Check: true, Spec: fabric.Spec{
		Graph: g, Seed: seed, NIC: virtrnic.Settings{AckEvery: 4},
		Switch: fabric.Switch{
			Latency:  400 * vtime.Nanosecond,
			Settings: virtswitch.Settings{Buffer: 16 << 20, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: rules},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for id := range n.Ports() {
		one := m
		one.Random = simlab.Random(seed, fmt.Sprintf("fault/%d", id))
		n.SetFault(id, &one)
	}
	return n
}

// ofApp runs an app on hosts of a net and returns its rows. Nothing may be left over.
func ofApp(n *sim.Net, hosts []int, params rankhost.Params, app apps.App, p any) ([]apps.Row, error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	records := make([][][]byte, len(hosts))
	if err := n.Run(sim.Job{
		Name: "app", Hosts: hosts, Params: params, Program: func(r *rank.Rank) error { return app.Run(r, raw) },
		Emit: func(i int, rec []byte) { records[i] = append(records[i], rec) },
	}); err != nil {
		return nil, err
	}
	rows, err := app.Reduce(raw, records)
	if err == nil {
		err = n.Leftover()
	}
	return rows, err
}

// runSolver is one trial of a panel broadcast or a row swap of HPL: a random system on a
// random grid.
func runSolver(t *testing.T, what string, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 81))
	g, err := topo.FatTree(4, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	x := hpl.Test{
		Label: "x", N: 20 + r.IntN(60), P: 1 + r.IntN(4), Q: 1 + r.IntN(4), Bcast: hpl.Bcasts()[r.IntN(6)], Swap: hpl.Swaps()[r.IntN(4)],
		SwapThreshold: r.IntN(40), Depth: r.IntN(2), PFact: hpl.Crout, RFact: hpl.Left, NBMin: 1 + r.IntN(4), NDiv: 2, ColumnMajor: r.IntN(2) == 0,
	}
	x.NB = 1 + r.IntN(20)
	kind, name, _ := strings.Cut(what, " ")
	if kind == "broadcast" {
		x.Bcast = name
	} else {
		x.Swap = name
	}
	rules := virtswitch.RulesFixed()
	if x.Bcast == "gleam" {
		rules = virtswitch.RulesGleam()
	}
	params := simlab.Params()
	params.MTU, params.Activate = 256<<r.IntN(5), rules.Activate
	hosts := r.Perm(g.Hosts)[:max(2, x.P*x.Q)]
	rows, err := ofApp(lossyOn(t, g, seed, rules), hosts, params, hpl.App{}, hpl.Params{Workload: "hpl", Threshold: 16, GFlops: 50, Tests: []hpl.Test{x}})
	if err != nil || len(rows) != 1 || apps.DetailsOf[hpl.Solve](rows[0]).Passed == nil || !*apps.DetailsOf[hpl.Solve](rows[0]).Passed {
		t.Errorf("seed %d, HPL %+v: %+v, %v", seed, x, rows, err)
	}
}

// runStorage is one trial of a way to write to replicas.
func runStorage(t *testing.T, scheme string, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 82))
	g, err := topo.FatTree(4, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	hosts := r.Perm(g.Hosts)[:2+r.IntN(6)]
	p := storage.Params{
		Workload: "s", Schemes: []string{scheme}, Sizes: []int{1 + r.IntN(9000)}, Client: r.IntN(len(hosts)), Depth: 1 + r.IntN(8), Jobs: 1 + r.IntN(2),
		Random: r.IntN(2) == 0, Volume: 60000, IOs: 20 + r.IntN(40), Durability: []string{storage.Memory, storage.Fsync}[r.IntN(2)], OnFailure: storage.Stop,
		Commit: 20 * vtime.Microsecond, Seed: seed,
	}
	rows, err := ofApp(lossyOn(t, g, seed, virtswitch.RulesFixed()), hosts, simlab.Params(), storage.App{Open: pebblestore.NewMemory().Open}, p)
	if err != nil || len(rows) != 1 || !*rows[0].Verified || apps.DetailsOf[storage.IO](rows[0]).IOs != p.IOs*p.Jobs {
		t.Errorf("seed %d, storage %+v: %+v, %v", seed, p, rows, err)
	}
}

// runManyToMany is one trial of a way to send to many.
func runManyToMany(t *testing.T, scheme string, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 83))
	levels := 2 + r.IntN(2)
	c := sim.Config{Check: true, Spec: simlab.NTree(t, 4, levels, r.IntN(2) == 0, []*virtswitch.InputConfig{nil, {}, {Together: true}}[r.IntN(3)])}
	c.Seed = seed
	p := manycast.Params{
		Workload: "m", M: 4, N: levels, Sizes: []int{1 + r.IntN(20000)}, Sources: 1 + r.IntN(c.Graph.Hosts), Members: 1 + r.IntN(c.Graph.Hosts),
		PerSource: r.IntN(2) == 0, Iterations: 2, Seed: seed, Schemes: []manycast.Scheme{{Label: scheme, Name: scheme}},
	}
	n, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := ofApp(n, simlab.Hosts(c.Graph), simlab.Params(), manycast.App{}, p)
	if err != nil || len(rows) != 1 || !*rows[0].Verified || apps.DetailsOf[manycast.Spread](rows[0]).Messages != simlab.Messages(p, c.Graph.Hosts) {
		t.Errorf("seed %d, %+v: %+v, %v", seed, p, rows, err)
	}
}

// runFlows is one trial of flows that begin and end beside each other, each to one host or to all but one of the others.
func runFlows(t *testing.T, kind string, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 84))
	g, err := topo.FatTree(4, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	hosts := r.Perm(g.Hosts)[:5]
	p := flows.Params{
		Workload: "f", Message: 1 + r.IntN(20_000), Outstanding: 1 + r.IntN(5), Interval: 50 * vtime.Microsecond, Memory: rank.MemoryBytes, Seed: seed,
	}
	for i := range 3 {
		begin := vtime.Duration(r.IntN(200)) * vtime.Microsecond
		f := flows.Flow{Name: string(rune('a' + i)), From: i, To: []int{4}, Begin: begin, End: begin + vtime.Duration(1+r.IntN(300))*vtime.Microsecond}
		if kind == "multicast" {
			f.To = append(f.To, (i+1)%4, (i+2)%4)
		}
		p.Flows = append(p.Flows, f)
	}
	rows, err := ofApp(lossyOn(t, g, seed, virtswitch.RulesFixed()), hosts, simlab.Params(), flows.App{}, p)
	if err != nil || len(rows) != len(p.Flows) {
		t.Fatalf("seed %d, flows %+v: %d rows, %v", seed, p, len(rows), err)
	}
	for _, row := range rows {
		if !*row.Verified || apps.DetailsOf[flows.Course](row).Messages == 0 {
			t.Errorf("seed %d, flows %+v: %+v", seed, p, row)
		}
	}
}
