// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/crew"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/window"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankrun"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// dividedConfig is a lab with an out-of-band channel, of three leaves and two spines.
func dividedConfig(t *testing.T, seed uint64) Config {
	t.Helper()
	g, err := topo.LeafSpine(topo.LeafSpineSpec{Leaves: 3, Spines: 2, Hosts: 2}, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	return Config{OutOfBand: vtime.Microsecond, Spec: fabric.Spec{Graph: g, Seed: seed, NIC: virtrnic.Settings{Window: 64}, Switch: fabric.Switch{
		Settings: virtswitch.Settings{Rules: virtswitch.RulesFixed(), Buffer: 16 << 20, Groups: 64, GroupAge: 10 * vtime.Second},
	}}}
}

// divided runs jobs that make objects of all kinds, sleep, set tables, and end in the middle, on a lab
// that loses packets: once whole and once in random parts. Both have the same outcome.
func divided(t *testing.T, seed uint64) {
	t.Helper()
	r := prng.New(seed)
	cfg := dividedConfig(t, seed)
	cfg.Ledger = seed%2 == 0
	of := randomParts(r, len(cfg.Graph.Nodes))
	var logs [2]reports
	cfg.Trace = logs[0].ofSome
	whole, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Trace = logs[1].ofSome
	parts, err := NewParts(cfg, of, 1+int(seed/4)%len(of))
	if err != nil {
		t.Fatal(err)
	}
	parts.Crew, parts.Eager = aCrew, seed%4 < 2
	dealOften(parts, seed)
	if loss := []float64{0, 0.02, 0.2, 1}[r.IntN(4)]; loss > 0 {
		for id := range whole.Ports() {
			for _, n := range append([]*Net{whole}, parts.parts...) {
				n.SetFault(id, &faults.Impairment{Window: faults.Window{From: vtime.Time(50 * vtime.Microsecond)}, Loss: loss, Random: n.random.Derive(fmt.Sprintf("fault/%d", id))})
			}
		}
	}
	for job := range 2 {
		steps, leave := make([]int, 10), make([]int, 6)
		for i := range steps {
			steps[i] = r.IntN(2 * kinds)
		}
		for i := range leave {
			leave[i] = r.IntN(20)
		}
		log1, one := runDivided(whole, job, steps, leave)
		log2, two := runDivided(parts, job, steps, leave)
		now := parts.parts[0].now
		if fmt.Sprint(one) != fmt.Sprint(two) || whole.Digest() != parts.Digest() || whole.now != now || log1 != log2 {
			t.Errorf("job %d, parts %v: %v at %v with digest %016x, and whole %v at %v with %016x\n%s\n%s",
				job, of, two, now, parts.Digest(), one, whole.now, whole.Digest(), log2, log1)
			return
		}
	}
	if !slices.Equal(logs[0], logs[1]) {
		t.Errorf("the machines of the parts %v report otherwise than those of the whole", of)
	}
	all, there := whole.Ledger()
	if there != cfg.Ledger {
		t.Errorf("there is a ledger: %v, asked for: %v", there, cfg.Ledger)
	}
	for id := range all {
		in, _ := parts.parts[of[whole.links.At(id).Node]].Ledger()
		if !slices.Equal(all[id], in[id]) {
			t.Errorf("port %d: the ledger of the part has %d entries, that of the whole %d, and they differ", id, len(in[id]), len(all[id]))
		}
	}
}

// reports are the reports of the machines of some nodes.
type reports []logged

type logged struct {
	node int
	now  vtime.Time
	e    machine.Event
}

// ofSome returns the tracers of a lab of which every third node has none.
func (l *reports) ofSome(node int) machine.Tracer {
	if node%3 == 2 {
		return nil
	}
	return nodeReports{l, node}
}

type nodeReports struct {
	l    *reports
	node int
}

// Trace implements machine.Tracer.
func (n nodeReports) Trace(now vtime.Time, e machine.Event) {
	*n.l = append(*n.l, logged{n.node, now, e})
}

// aCrew lets the parts of a lab run at the same time.
func aCrew(parts int, work func(part int)) Crew { return crew.New(parts, work) }

// runDivided runs a job, and returns its error and the observations of its ranks.
func runDivided(n interface{ Run(Job) error }, job int, steps, leave []int) (log string, err error) {
	params := simlab.Params()
	params.RetryCnt = 2
	logs := make([]string, 6)
	err = n.Run(Job{Name: fmt.Sprint("litter ", job), Hosts: []int{0, 1, 2, 3, 4, 5}, Params: params, Program: func(r *rank.Rank) error {
		saw := func(what string) { logs[r.ID()] += fmt.Sprintf("%v %s; ", r.Now(), what) }
		random := r.Random("sleeps")
		for _, name := range []string{"one", "two"} {
			r.Go(name, func() error {
				for range 5 {
					r.Sleep(vtime.Duration(1+random.IntN(9)) * vtime.Microsecond)
					saw(name)
					r.Notify()
				}
				return nil
			})
		}
		if r.ID() == 0 {
			entry := wire.MulticastEntry{Switch: 6, Group: wire.MulticastNet | 0x7000, Ports: []uint16{0, 1}}
			if err := rankrun.Of(r).SetBranches([]wire.MulticastEntry{entry}); err != nil {
				return err
			}
		}
		l := &litter{made: map[int]int{}, steps: steps, leave: leave} // each rank its own: they may run at the same time
		err := l.program(r)
		saw(fmt.Sprint(err))
		r.Sync()
		saw("all are there")
		return err
	}})
	return fmt.Sprint(logs), err
}

// troubledParts broadcasts thrice under a timeline of faults, which the last broadcast's end removes, on a lab that is
// whole and on one in parts of a node each. Both have the same outcome each time, and their machines report the same.
func troubledParts(t *testing.T, seed uint64) {
	t.Helper()
	d := drawTrouble(t, seed)
	if seed%3 == 0 { // a pause that is renewed for ever: a task that waits behind it does so for good
		d.specs = append(d.specs, faults.Spec{ID: "for ever", Kind: faults.KindPause, Nodes: d.hosts[1:2], Priority: 3, Window: faults.Window{From: vtime.Time(60 * vtime.Microsecond)}})
	}
	r := prng.New(seed)
	for i := range d.specs { // some hit several nodes, in any order
		if nodes := d.specs[i].Nodes; len(nodes) == 1 && r.IntN(2) == 0 {
			d.specs[i].Nodes = d.alike(nodes[0], r)
		}
	}
	cfg := d.config(vtime.Duration(1+seed%4) * vtime.Microsecond)
	cfg.Check = false
	of := make([]int, len(d.graph.Nodes))
	for i, at := range r.Perm(len(of)) {
		of[i] = at
	}
	var logs [2]reports
	cfg.Trace = logs[0].ofSome
	whole, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Trace = logs[1].ofSome
	parts, err := NewParts(cfg, of, 1+int(seed/2)%len(of))
	if err != nil {
		t.Fatal(err)
	}
	parts.Crew, parts.Eager = aCrew, seed%8 == 0
	dealOften(parts, seed)
	own, all := d.inject(whole), d.inject(parts.Nets()...)
	parts.Lift = func(net int, now vtime.Time) { all[net].Remove(now, "") }
	for job := range 3 {
		var over1, over2 func(now vtime.Time)
		if job == 2 {
			over1, over2 = func(now vtime.Time) { own[0].Remove(now, "") }, func(vtime.Time) {}
		}
		_, log1, one := d.broadcast(t, whole, over1)
		_, log2, two := d.broadcast(t, parts, over2)
		now := parts.parts[0].now
		if fmt.Sprint(one) != fmt.Sprint(two) || whole.Digest() != parts.Digest() || whole.now != now || fmt.Sprint(log1) != fmt.Sprint(log2) {
			t.Errorf("%v\njob %d: %v at %v with digest %016x, and whole %v at %v with %016x", d, job, two, now, parts.Digest(), one, whole.now, whole.Digest())
			return
		}
		if one, two := whole.Leftover(), parts.Leftover(); (one != nil) != (two != nil) {
			t.Errorf("%v\nin the whole is left: %v; and in the parts: %v", d, one, two)
		}
	}
	for i := range logs[0] {
		if i >= len(logs[1]) || logs[0][i] != logs[1][i] {
			t.Errorf("%v\nthe machines of the parts report otherwise than those of the whole, from %d of %d on: %v, and in parts %v", d, i, len(logs[0]),
				logs[0][i:min(i+3, len(logs[0]))], logs[1][min(i, len(logs[1])):min(i+3, len(logs[1]))])
			break
		}
	}
}

// TestPartsTroubled: whatever faults come, a lab in parts is the whole.
func TestPartsTroubled(t *testing.T) {
	from, count := simlab.DaySeeds(t, 60)
	for seed := from; seed < from+count; seed++ {
		troubledParts(t, seed)
		if t.Failed() {
			t.Fatalf("replay: go test ./drivers/sim -run 'TestPartsTroubled$' -from %d -seeds 1", seed)
		}
	}
}

// TestParts: whatever ranks do, and however they end, a lab in any parts is the whole.
func TestParts(t *testing.T) {
	from, count := simlab.Seeds(t, 60)
	for seed := from; seed < from+count; seed++ {
		divided(t, seed)
		if t.Failed() {
			t.Fatalf("replay: go test ./drivers/sim -run 'TestParts$' -from %d -seeds 1", seed)
		}
	}
}

// TestPartsRefused: a lab that cannot be built whole cannot be built in parts, and a group of hosts
// that the lab has not is an error of the rank that asks for it.
func TestPartsRefused(t *testing.T) {
	wantPartsRefused(t)
}

func wantPartsRefused(t *testing.T) {
	t.Helper()
	cfg := labConfig(tooManyPorts(t))
	cfg.Check, cfg.OutOfBand = false, vtime.Microsecond
	if _, err := NewParts(cfg, make([]int, len(cfg.Graph.Nodes)), 1); err == nil {
		t.Error("a switch of too many ports is built")
	}
	small := dividedConfig(t, 1)
	if _, err := small.Server(nil).Tree(wire.MulticastNet|1, []uint32{1}); err == nil {
		t.Error("a group has a host that the lab has not")
	}
	idle, err := NewParts(small, make([]int, len(small.Graph.Nodes)), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := idle.Call(5, window.Make); err == nil {
		t.Error("a call of the fault timeline is made, and there is none")
	}
	n, err := New(small)
	if err != nil {
		t.Fatal(err)
	}
	over := errors.New("over")
	err = n.Run(Job{Name: "over", Hosts: []int{0}, Params: simlab.Params(), Program: func(r *rank.Rank) error {
		h := n.nodes[0].host
		b := h.tasks[0].job.boardOf(h, 0)
		if b.Barrier(func() bool { return true }) {
			return errors.New("a barrier is passed that was over before")
		}
		if _, ok := b.Get("nothing", "nothing", func() bool { return true }); ok {
			return errors.New("nothing has a value")
		}
		return over
	}})
	if !errors.Is(err, over) {
		t.Error(err)
	}
}
