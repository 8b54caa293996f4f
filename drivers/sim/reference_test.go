// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/apps/bcast"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// poll is the plain driver: it looks at everything for the next event, wakes a port at
// every instant at which it may start a frame, and so never finds a machine's state
// stale. It shares with the loop only the machines and the ranks.
func (n *Net) poll() bool {
	best := polled{at: vtime.Never, class: classTask + 1}
	for id := range n.links.Len() {
		l := n.links.At(id)
		if l.InFlight() > 0 {
			best.offer(n, l.Flying(0).At, classArrival, id)
		}
		if l.Next() != vtime.Never {
			best.offer(n, l.Next(), classStart, id)
		}
	}
	for port := range n.late {
		if at := n.late[port].first(); at != vtime.Never {
			best.offer(n, at, classLate, port)
		}
	}
	for i := range n.nodes {
		if at, armed := n.nodes[i].m.NextTimeout(); armed {
			best.offer(n, max(at, n.now), classTimer, i)
		}
		if h := n.nodes[i].host; h != nil && h.news() {
			best.offer(n, n.now, classTimer, i)
		}
	}
	for i, t := range n.timed {
		if t.f != nil {
			best.offer(n, t.at, classCall, i)
		}
	}
	for i, t := range n.tasks {
		if t.asleep && !t.done && t.until != vtime.Never {
			best.offer(n, t.until, classTask, i)
		}
	}
	if best.at == vtime.Never {
		return false
	}
	n.now = best.at
	n.stats.Events++
	n.pastStarts = best.class > classStart
	switch best.class {
	case classArrival:
		n.pollArrival(best.id)
	case classLate:
		n.arriveLate(best.id)
	case classStart:
		n.nodes[n.ports[best.id].node].m.Settle(n.now, int(n.ports[best.id].port))
	case classTimer:
		if at, armed := n.nodes[best.id].m.NextTimeout(); armed && at <= n.now {
			n.nodes[best.id].m.HandleTimeout(n.now)
		}
		if h := n.nodes[best.id].host; h != nil {
			h.look()
		}
	case classCall:
		call := n.timed[best.id]
		n.timed[best.id] = timed{}
		if call.fault {
			n.makeCall(call, n.now)
		} else {
			call.f(n.now)
		}
	case classTask:
		n.makeReady(n.tasks[best.id])
	}
	if len(n.ready) > 0 {
		n.runTasks()
	}
	n.links.Listed()
	if n.check != nil {
		n.check.afterEvent()
	}
	return true
}

type polled struct {
	at    vtime.Time
	class int
	rank  uint64
	id    int
}

func (b *polled) offer(n *Net, at vtime.Time, class, id int) {
	c := polled{at, class, uint64(id) ^ n.order.Mask(at), id}
	if c.at < b.at || c.at == b.at && (c.class < b.class || c.class == b.class && c.rank < b.rank) {
		*b = c
	}
}

func (n *Net) pollArrival(id int) {
	l := n.links.At(id)
	f := l.Land().Frame
	n.stats.Hops++
	if n.fault != nil && n.fault[id] != nil {
		n.arriveFaulty(id, f)
		return
	}
	l.Account(n.now, f, false)
	n.deliver(l, f)
}

// variant is one random setting of the comparison.
type variant struct {
	seed  uint64
	graph *topo.Graph
	cfg   Config
	loss  float64
	pause bool
	sizes []int
	ack   int
	mark  int // one frame of a link in that many is marked; 0: none
}

func drawVariant(t *testing.T, seed uint64) variant {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 77))
	link := topo.LinkParams{Rate: []int64{10e9, 100e9, 400e9}[r.IntN(3)], Delay: []vtime.Duration{0, 1, vtime.Nanosecond, 600 * vtime.Nanosecond, 3 * vtime.Microsecond}[r.IntN(5)]}
	var g *topo.Graph
	var err error
	switch r.IntN(3) {
	case 0:
		g, err = topo.Star(3+r.IntN(5), link)
	case 1:
		g, err = topo.FatTree(4, link)
	default:
		g, err = topo.LeafSpine(topo.LeafSpineSpec{Leaves: 2 + r.IntN(2), Spines: 2, Hosts: 2 + r.IntN(3), Parallel: 1 + r.IntN(2)}, link)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range g.Links { // no two links alike
		g.Links[i].Delay += vtime.Duration(r.IntN(3) * r.IntN(99991))
		if r.IntN(4) == 0 {
			g.Links[i].Rate /= 4
		}
	}
	v := variant{seed: seed, graph: g, pause: r.IntN(3) == 0, sizes: []int{r.IntN(300), r.IntN(60000), 100_000 + r.IntN(200_000)}, ack: 1 + r.IntN(8)}
	if r.IntN(2) == 0 {
		v.loss = 0.01 * r.Float64()
	}
	sw := fabric.Switch{
		Latency: []vtime.Duration{0, 400 * vtime.Nanosecond}[r.IntN(2)], CutThrough: r.IntN(3) == 0,
		Settings: virtswitch.Settings{Buffer: 8 << 20, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
	}
	switch r.IntN(3) {
	case 0:
		sw.PFC.XOFF = 5000 + r.IntN(20000) // tiny: pauses all the time
	case 1:
		sw.PFC.Lossless, sw.Buffer = 0, 64<<10
	}
	v.cfg = Config{Spec: fabric.Spec{Graph: g, Seed: seed, Switch: sw, NIC: virtrnic.Settings{AckEvery: v.ack}}}
	if r.IntN(2) == 0 {
		name := []string{"dcqcn", "dcqcn-connectx", "dcqcn-hpcc"}[r.IntN(3)]
		v.cfg.NIC.Congestion, _ = virtrnic.DCQCNByName(name)
		v.mark = 1 + r.IntN(20)
	}
	if r.IntN(2) == 0 {
		v.cfg.NIC.IRN = &virtrnic.IRN{RTOLow: virtrnic.RTOLowDefault, RTOHigh: virtrnic.RTOHighDefault}
	}
	if r.IntN(3) == 0 {
		v.cfg.Switch.Input = &virtswitch.InputConfig{Together: r.IntN(2) == 0}
	}
	return v
}

// marker sets the congestion mark on every n-th frame of a link.
type marker struct{ n, seen int }

// Arrive implements faults.Link.
func (m *marker) Arrive(_ vtime.Time, f *wire.Frame) faults.Verdict {
	if m.seen++; m.seen%m.n == 0 && f.Kind() == wire.KindRoCE {
		f.SetECN(wire.ECNCE)
	}
	return faults.Verdict{}
}

// runVariant runs a broadcast by all schemes at once crossing traffic and returns the digest, the stats
// and the outcome. The objects of a job that fails are destroyed when no event is left. The loop has
// visited by then the instants for which something was armed that was stopped since, and the driver
// that polls has not: its clock stands earlier, and what follows is earlier, too. So all of such a job
// is compared except these instants.
func runVariant(t *testing.T, v variant, polling bool) (uint64, Stats, string) {
	t.Helper()
	digest, stats, out := runJob(t, v, polling, false)
	if out != fmt.Sprint(error(nil)) {
		return runJob(t, v, polling, true)
	}
	return digest, stats, out
}

func runJob(t *testing.T, v variant, polling, keep bool) (uint64, Stats, string) {
	t.Helper()
	n, err := New(v.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if polling {
		n.reference = n.poll
	}
	for id := range n.Ports() {
		var all faults.Chain
		if v.mark > 0 {
			all = append(all, &marker{n: v.mark})
		}
		if v.loss > 0 {
			s := n.random.Derive(fmt.Sprintf("loss/%d", id))
			all = append(all, &faults.Impairment{Loss: v.loss, Duplicate: v.loss / 2, Reorder: v.loss / 2, Delay: 3 * vtime.Microsecond, Random: s})
		}
		if len(all) > 0 {
			n.SetFault(id, all)
		}
	}
	if v.pause {
		steps := simlab.PauseSteps(20*vtime.Time(vtime.Microsecond), 300*vtime.Time(vtime.Microsecond), 100*vtime.Microsecond)
		simlab.SendPauses(n, v.graph.Hosts-1, steps)
	}
	p := bcast.Params{Workload: "b", Sizes: v.sizes, Iterations: 1, Schemes: []bcast.Scheme{
		{Label: "cepheus", Name: "cepheus"}, {Label: "unicast", Name: "unicast"}, {Label: "chain", Name: "chain"},
	}}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	err = n.Run(Job{Name: "b", Hosts: simlab.Hosts(v.graph), Params: simlab.Params(), Keep: keep, Program: func(r *rank.Rank) error { return bcast.App{}.Run(r, raw) }})
	return n.Digest(), n.Stats(), fmt.Sprint(err)
}

// TestAgainstPolling compares the event loop, which settles ports after the fact, with
// the driver that polls: jittered delays, mixed rates, short links, tiny XOFF, loss,
// pauses, cut-through, queues at the ingress.
func TestAgainstPolling(t *testing.T) {
	from, count := simlab.DaySeeds(t, 100)
	for seed := from; seed < from+count; seed++ {
		v := drawVariant(t, seed)
		fast, stats, out := runVariant(t, v, false)
		slow, ref, want := runVariant(t, v, true)
		if fast != slow || out != want {
			t.Errorf("seed %d (replay: go test ./drivers/sim -run AgainstPolling -from %[1]d -seeds 1; %d hosts, loss %.4f, %+v, input %+v):\n loop    %016x %s %+v\n polling %016x %s %+v",
				seed, v.graph.Hosts, v.loss, v.cfg.Switch, v.cfg.Switch.Input, fast, out, stats, slow, want, ref)
		}
	}
}
