// SPDX-License-Identifier: Apache-2.0

package sim

// The event loop is compared with the driver that polls, which only a test of this package can put into
// its place, in situations that switches and workloads make difficult to get right.

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps/manycast"
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// squeeze runs an incast through small buffers, and returns the number of watchdogs that fired.
func squeeze(t *testing.T, q *simlab.Squeeze, polling bool) (n *Net, storms uint64) {
	t.Helper()
	n = newLab(t, Config{Spec: q.Spec})
	if polling {
		n.reference = n.poll
	}
	simlab.SendPauses(n, 0, q.Pauses)
	// A message that a watchdog or a pause holds up too long may fail, in both drivers alike.
	_ = n.Run(Job{Name: "squeeze", Hosts: simlab.Hosts(n.graph), Params: q.Params(), Program: q.Program})
	for i := n.graph.Hosts; i < len(n.graph.Nodes); i++ {
		storms += n.Switch(i).Stats().PauseStorms
	}
	return n, storms
}

// TestLosslessAgainstPolling compares the event loop with the driver that polls, with
// dynamic thresholds, weights, marking and watchdogs that fire.
func TestLosslessAgainstPolling(t *testing.T) {
	from, count := simlab.Seeds(t, 60)
	var storms uint64
	for seed := from; seed < from+count; seed++ {
		q := simlab.DrawSqueeze(t, seed)
		q.Size = min(q.Size, 30*q.MTU)
		if seed%3 == 0 {
			q.Spec.Switch.Watchdog = virtswitch.WatchdogConfig{Detect: 4 * vtime.Microsecond, Restore: 3 * vtime.Microsecond, Forward: seed%2 == 0}
		}
		fast, fired := squeeze(t, q, false)
		slow, want := squeeze(t, q, true)
		storms += fired
		if fast.Digest() != slow.Digest() || fired != want {
			t.Errorf("%v: loop %016x, polling %016x\nreplay: go test ./drivers/sim -run LosslessAgainstPolling -from %d -seeds 1", q, fast.Digest(), slow.Digest(), seed)
		}
	}
	t.Logf("%d storms", storms)
	if storms == 0 && count >= 30 {
		t.Error("no watchdog fired")
	}
}

// TestGroupQueuesAgainstPolling does so with broadcasts, loss, pauses and jittered links:
// several copies of a packet share one charge.
func TestGroupQueuesAgainstPolling(t *testing.T) {
	from, count := simlab.DaySeeds(t, 60)
	var storms uint64
	for seed := from; seed < from+count; seed++ {
		v := drawVariant(t, seed)
		r := rand.New(rand.NewPCG(seed, 21))
		sw := &v.cfg.Switch
		if r.IntN(2) == 0 {
			sw.PFC.XOFF, sw.PFC.Alpha = 0, []float64{1. / 32, 1. / 4, 2}[r.IntN(3)]
			sw.Buffer = simlab.Reserved(v.cfg.Spec) + 5000 + r.IntN(60000)
		}
		if r.IntN(2) == 0 {
			sw.ECN = virtswitch.ECNConfig{Classes: 0xff, Pmax: 0.3}
			sw.Marking = fabric.Marking{Kmin: 1 + r.IntN(5000), Kmax: 10000, Rate: 100e9}
		}
		if r.IntN(3) == 0 {
			sw.Weights = [8]uint8{3: 2, 6: 1}
		}
		if r.IntN(2) == 0 {
			sw.Watchdog = virtswitch.WatchdogConfig{Detect: 10 * vtime.Microsecond, Restore: 20 * vtime.Microsecond, Forward: r.IntN(2) == 0}
		}
		if r.IntN(3) == 0 {
			sw.FeedbackDelay = vtime.Duration(r.IntN(300)) * vtime.Nanosecond
		}
		v.cfg.Trace = func(int) machine.Tracer { return stormCounter{&storms} }
		fast, stats, out := runVariant(t, v, false)
		slow, ref, want := runVariant(t, v, true)
		if fast != slow || out != want {
			t.Errorf("seed %d (replay: go test ./drivers/sim -run GroupQueuesAgainstPolling -from %[1]d -seeds 1; %+v):\n loop    %016x %s %+v\n polling %016x %s %+v",
				seed, *sw, fast, out, stats, slow, want, ref)
		}
	}
	if storms == 0 && count >= 30 {
		t.Error("no watchdog fired")
	}
}

// stormCounter counts the watchdogs that fire.
type stormCounter struct{ n *uint64 }

// Trace implements machine.Tracer.
func (s stormCounter) Trace(_ vtime.Time, e machine.Event) {
	if e.Kind == machine.EventPauseStorm {
		*s.n++
	}
}

// TestLookAsideAgainstPolling does so with groups that go through an accelerator and a feedback
// processor, under loss, in a half of the labs with every invariant checked.
func TestLookAsideAgainstPolling(t *testing.T) {
	from, count := simlab.Seeds(t, 30)
	for seed := from; seed < from+count; seed++ {
		v := drawVariant(t, seed)
		var err error
		if v.graph, err = topo.Star(4, simlab.Link()); err != nil {
			t.Fatal(err)
		}
		v.cfg.Graph, v.cfg.Check = v.graph, seed%2 == 0
		v.cfg.Switch.LookAside = virtswitch.LookAsideConfig{Links: 4, Rate: 100e9, Delay: 300 * vtime.Nanosecond}
		if seed%3 > 0 {
			v.cfg.Switch.FeedbackDelay = vtime.Duration(seed%3*200) * vtime.Nanosecond
		}
		fast, _, out := runVariant(t, v, false)
		slow, _, want := runVariant(t, v, true)
		if fast != slow || out != want || strings.Contains(out, "invariant") {
			t.Errorf("seed %d: loop %016x %s, polling %016x %s", seed, fast, out, slow, want)
		}
	}
}

// TestManyToManyAgainstPolling does so where packets queue at the ingress, pauses are many and
// requests complete as they start.
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
