package sim

import (
	"encoding/json"
	"testing"

	"github.com/mcastlab/mcastlab/apps/manycast"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// TestManyToManyAgainstPolling: the event loop and the driver that polls agree where
// packets queue at the ingress, pauses are many and requests complete as they start.
func TestManyToManyAgainstPolling(t *testing.T) {
	from, count := simlab.Seeds(t, 4)
	for seed := from; seed < from+count; seed++ {
		for _, together := range []bool{false, true} {
			c := Config{Spec: simlab.NTree(t, 4, 2, seed%2 == 0, &virtswitch.InputConfig{Together: together})}
			c.Seed = seed
			p := manycast.Params{
				Workload: "m", M: 4, N: 2, Sizes: []int{64, 9000}, Sources: 5, Members: 6, PerSource: seed%4 > 1, Iterations: 2, Seed: seed,
			}
			for _, s := range manycast.Names() {
				p.Schemes = append(p.Schemes, manycast.Scheme{Label: s, Name: s})
			}
			fast, slow := manyToMany(t, c, p, false), manyToMany(t, c, p, true)
			if fast.Digest() != slow.Digest() {
				t.Errorf("seed %d, together %v: loop %016x, polling %016x\nreplay: go test ./drivers/sim -run ManyToManyAgainstPolling -from %[1]d -seeds 1",
					seed, together, fast.Digest(), slow.Digest())
			}
		}
	}
}

// manyToMany runs the workload and returns the network.
func manyToMany(t *testing.T, c Config, p manycast.Params, polling bool) *Net {
	t.Helper()
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if polling {
		n.reference = n.poll
	}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	params := simlab.Params()
	params.MTU = 4096
	if err := n.Run(Job{
		Name: "m", Hosts: simlab.Hosts(c.Graph), Params: params, Program: func(r *rank.Rank) error { return manycast.App{}.Run(r, raw) },
	}); err != nil {
		t.Fatalf("%+v, seed %d: %v", p, p.Seed, err)
	}
	if err := n.Leftover(); err != nil {
		t.Error(err)
	}
	return n
}
