package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/mcastlab/mcastlab/apps/bcast"
	"github.com/mcastlab/mcastlab/fabric"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/topo"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// trial is everything a seed of the sweep decides.
type trial struct {
	seed            uint64
	graph           *topo.Graph
	shape           string
	hosts           []int
	root            int
	sizes           []int
	schemes         []string
	mtu, ack        int
	psn             wire.PSN
	loss, dup, late float64
	cut             bool
	irn             *virtrnic.IRN
}

func (v trial) String() string {
	return fmt.Sprintf("seed %d: %s, %d ranks, root %d, sizes %v, %v, mtu %d, ack every %d, first PSN %v, loss %.4f, duplication %.4f, reordering %.4f, cut-through %v, IRN %v",
		v.seed, v.shape, len(v.hosts), v.root, v.sizes, v.schemes, v.mtu, v.ack, v.psn, v.loss, v.dup, v.late, v.cut, v.irn != nil)
}

func drawTrial(t testing.TB, seed uint64) trial {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 5))
	link := topo.LinkParams{Rate: []int64{25e9, 100e9, 200e9}[r.IntN(3)], Delay: vtime.Duration(100+r.IntN(2000)) * vtime.Nanosecond}
	v := trial{seed: seed, mtu: 256 << r.IntN(5), ack: 1 + r.IntN(17), cut: r.IntN(4) == 0}
	var err error
	switch r.IntN(4) {
	case 0:
		n := 2 + r.IntN(9)
		v.shape = fmt.Sprintf("star of %d", n)
		v.graph, err = topo.Star(n, link)
	case 1:
		v.shape = "k=4"
		v.graph, err = topo.FatTree(4, link)
	case 2:
		v.shape = "k=6"
		v.graph, err = topo.FatTree(6, link)
	default:
		s := topo.LeafSpineSpec{Leaves: 2 + r.IntN(4), Spines: 1 + r.IntN(3), Hosts: 1 + r.IntN(4), Parallel: 1 + r.IntN(2)}
		v.shape = fmt.Sprintf("leaf-spine %+v", s)
		v.graph, err = topo.LeafSpine(s, link)
	}
	if err != nil {
		t.Fatal(err)
	}
	n := min(v.graph.Hosts, 2+r.IntN(14))
	v.hosts = r.Perm(v.graph.Hosts)[:n]
	v.root = r.IntN(n)
	v.schemes = []string{"cepheus"}
	if r.IntN(2) == 0 {
		v.schemes = append(v.schemes, []string{"binomial", "chain", "unicast"}[r.IntN(3)])
	}
	// Sizes are drawn so that a run stays below about 50,000 hops.
	budget := 45000 / (len(v.schemes) * 10 * n) * v.mtu
	v.sizes = []int{r.IntN(v.mtu + 2), r.IntN(budget)}
	v.psn = wire.PSN(r.Uint32()) & wire.PSNMask
	if r.IntN(2) == 0 {
		v.psn = wire.PSN(0).Add(-r.IntN(60)) // the wrap comes soon
	}
	if r.IntN(5) > 0 {
		v.loss = 0.01 * r.Float64()
	}
	if r.IntN(2) == 0 {
		v.dup = 0.01 * r.Float64()
	}
	if r.IntN(2) == 0 {
		v.late = 0.01 * r.Float64()
	}
	if r.IntN(2) == 0 {
		v.irn = &virtrnic.IRN{RTOLow: virtrnic.RTOLowDefault, RTOHigh: virtrnic.RTOHighDefault}
		if r.IntN(2) == 0 {
			v.irn.Cap = 1 + r.IntN(50_000)
		}
	}
	return v
}

// run runs the trial with all invariants checked and returns digest and hops.
func (v trial) run() (digest, hops uint64, err error) {
	cfg := Config{Check: true, Spec: fabric.Spec{
		Graph: v.graph, Seed: v.seed, NIC: fabric.NIC{AckEvery: v.ack, IRN: v.irn},
		Switch: fabric.Switch{
			Buffer: 16 << 20, Latency: 300 * vtime.Nanosecond, Lossless: 1 << 3, Rules: virtswitch.RulesFixed(), CutThrough: v.cut,
		},
	}}
	if *traceEvents {
		cfg.Trace = printEvents(v.graph)
	}
	n, err := New(cfg)
	if err != nil {
		return 0, 0, err
	}
	for id := range n.Ports() {
		n.SetFault(id, &faults.Impairment{
			Loss: v.loss, Duplicate: v.dup, Reorder: v.late, Delay: 5 * vtime.Microsecond,
			Random: n.random.Derive(fmt.Sprintf("fault/%d", id)),
		})
	}
	p := bcast.Params{Workload: "sweep", Root: v.root, Sizes: v.sizes, Iterations: 2, Seed: v.seed}
	for _, s := range v.schemes {
		p.Schemes = append(p.Schemes, bcast.Scheme{Label: s, Name: s})
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return 0, 0, err
	}
	params := testParams
	params.MTU, params.FirstPSN = v.mtu, &v.psn
	records := make([][][]byte, len(v.hosts))
	err = n.Run(Job{
		Name: "sweep", Hosts: v.hosts, Params: params,
		Program: func(r *rank.Rank) error { return bcast.App{}.Run(r, raw) },
		Emit:    func(rank int, rec []byte) { records[rank] = append(records[rank], rec) },
	})
	if err != nil {
		return n.Digest(), n.stats.Hops, err
	}
	rows, err := bcast.App{}.Reduce(raw, records)
	for _, row := range rows {
		if err == nil && (row.Verified == nil || !*row.Verified) {
			err = fmt.Errorf("%s at %d bytes: a receiver got wrong bytes", row.Scheme, row.SizeBytes)
		}
	}
	if want := len(v.schemes) * len(v.sizes); err == nil && len(rows) != want {
		err = fmt.Errorf("%d rows, want %d", len(rows), want)
	}
	return n.Digest(), n.stats.Hops, err
}

// TestSeedSweep runs random labs under loss, duplication and reordering with every
// invariant checked after every event, each twice and to one digest, the second time
// with another number of processors.
func TestSeedSweep(t *testing.T) {
	from, count := seeds(t, 300)
	var hops, all uint64
	for seed := from; seed < from+count; seed++ {
		v := drawTrial(t, seed)
		first, h, err := v.run()
		hops += h
		all = wire.MixWord(all, first)
		if err != nil {
			t.Errorf("%v\n%v\nreplay: go test ./sim -run SeedSweep -from %d -seeds 1", v, err, seed)
			continue
		}
		procs := runtime.GOMAXPROCS(1 + int(seed%4))
		second, _, _ := v.run()
		runtime.GOMAXPROCS(procs)
		if first != second {
			t.Errorf("%v\ntwo runs, two digests: %016x and %016x\nreplay: go test ./sim -run SeedSweep -from %d -seeds 1", v, first, second, seed)
		}
	}
	t.Logf("seeds %d..%d: %d packet-hops, digest %016x", from, from+count-1, hops, all)
}
