// SPDX-License-Identifier: Apache-2.0

package virtswitch_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
)

// writeTrial is everything a seed decides.
type writeTrial struct {
	seed                uint64
	graph               *topo.Graph
	hosts               []int
	mtu, ack            int
	psn                 wire.PSN
	loss, dup, late, ko float64
	plan                simlab.GroupWrites
	vlan                uint16
}

func drawWrites(t *testing.T, seed uint64, mode rank.MRMode) writeTrial {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 77))
	v := writeTrial{seed: seed, mtu: 256 << r.IntN(5), ack: 1 + r.IntN(17)}
	link := topo.LinkParams{Rate: 100e9, Delay: vtime.Duration(100+r.IntN(2000)) * vtime.Nanosecond}
	var err error
	if v.graph, err = topo.FatTree(4, link); r.IntN(3) == 0 {
		v.graph, err = topo.Star(2+r.IntN(9), link)
	}
	if err != nil {
		t.Fatal(err)
	}
	v.hosts = r.Perm(v.graph.Hosts)[:min(v.graph.Hosts, 2+r.IntN(14))]
	v.plan = simlab.GroupWrites{Mode: mode, Ranks: len(v.hosts), MTU: v.mtu, Size: 1 + r.IntN(12*v.mtu)}
	v.psn = wire.PSN([]uint32{0, 1 << 23, 1 << 24, r.Uint32()}[r.IntN(4)]-uint32(r.IntN(100))) & wire.PSNMask
	if r.IntN(5) > 0 {
		v.loss, v.dup, v.late, v.ko = 0.01*r.Float64(), 0.01*r.Float64(), 0.01*r.Float64(), 0.01*r.Float64()
	}
	v.plan.Draw(r)
	v.vlan = simlab.Framing(v.graph, seed)
	return v
}

// run returns the network after it.
func (v writeTrial) run(t *testing.T) *sim.Net {
	t.Helper()
	spec := simlab.Plain(v.graph)
	spec.Seed, spec.NIC.AckEvery, spec.VLAN, spec.Switch.Latency = v.seed, v.ack, v.vlan, 300*vtime.Nanosecond
	n, err := sim.New(sim.Config{Check: true, RetryAfter: 200 * vtime.Microsecond, RetriesMax: 20, Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	for id := range n.Ports() {
		to := n.Link(id)
		from := v.graph.Peer(int(to.Node), int(to.NodePort))
		link := fmt.Sprintf("%s>%s", v.graph.Nodes[from.Node].Name, v.graph.Nodes[to.Node].Name)
		n.SetFault(id, faults.Chain{
			simlab.NewOneRETH(t, fmt.Sprintf("seed %d, %s, %s", v.seed, v.plan.Mode, link)),
			&faults.Impairment{Loss: v.loss, Duplicate: v.dup, Reorder: v.late, Delay: 5 * vtime.Microsecond, Random: simlab.Random(v.seed, fmt.Sprintf("fault/%d", id))},
			&faults.Impairment{Corrupt: v.ko, Match: faults.MatchFunc(simlab.IsData), Random: simlab.Random(v.seed, fmt.Sprintf("flip/%d", id))},
		})
	}
	params := simlab.Params()
	params.MTU, params.FirstPSN = v.mtu, &v.psn
	if err := n.Run(sim.Job{Name: "w", Hosts: v.hosts, Params: params, Program: v.plan.Program}); err != nil {
		t.Fatalf("seed %d, %s, mtu %d, %d ranks, first PSN %v: %v (go test ./virtswitch -run '^%s$' -from %d -seeds 1)",
			v.seed, v.plan.Mode, v.mtu, len(v.hosts), v.psn, err, t.Name(), v.seed)
	}
	return n
}

// TestGroupWrites: WRITEs to a group in the three modes, with members that move, windows that change,
// more WRITEs at once than leaves keep regions for, and frames lost, doubled, late and damaged. After
// every round each byte of every window is right (CON-6).
func TestGroupWrites(t *testing.T) {
	from, count := simlab.Seeds(t, 60)
	for seed := from; seed < from+count; seed++ {
		for _, mode := range simlab.MRModes() {
			v := drawWrites(t, seed, mode)
			n := v.run(t)
			var rewritten, updates uint64
			for i := v.graph.Hosts; i < len(v.graph.Nodes); i++ {
				st := n.Switch(i).Stats()
				rewritten, updates = rewritten+st.RETHsRewritten, updates+st.MRUpdates
			}
			if (rewritten > 0) != (mode != rank.MRShared) || (updates > 0) != (mode == rank.MRPerRequest) {
				t.Errorf("seed %d, %s: switches rewrote %d WRITEs and took %d announcements", seed, mode, rewritten, updates)
			}
		}
	}
}
