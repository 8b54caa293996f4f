// SPDX-License-Identifier: Apache-2.0

package virtswitch_test

import (
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
)

// deleted registers a group while a fault begins and deletes it. It returns the names of the switches
// that keep the group, the number of requests that the leader repeated to register it, and whether the
// group became active and all members confirmed its deletion.
func (l *treeLab) deleted(t *testing.T, f faults.Spec) (keep []string, again uint64, ok bool) {
	t.Helper()
	var n *sim.Net
	phase, _, wrong := l.register(t, treeRun{seed: 1, faults: []faults.Spec{f}}, func(of *sim.Net) { n = of })
	if wrong != nil {
		t.Fatalf("%s, %v of link %v or switch %v at %v: %v", l.name, f.Kind, f.Links, f.Nodes, f.From, wrong)
	}
	if phase != mrp.Active {
		return nil, 0, false
	}
	again = n.Agent(0).Stats().Repeats
	n.At(n.Now(), func(now vtime.Time) {
		if err := n.Agent(0).Delete(now, wire.GroupNet|1); err != nil {
			t.Error(err)
		}
	})
	if err := n.Drain(); err != nil {
		t.Fatal(err)
	}
	for i := l.graph.Hosts; i < len(l.graph.Nodes); i++ {
		if n.Switch(i).Holding().Groups > 0 {
			keep = append(keep, l.graph.Nodes[i].Name)
		}
	}
	return keep, again, n.Agent(0).Stats().DeletionsGivenUp == 0
}

// TestTreeVoided: a switch crashes or a link goes down for good at an instant of a registration, which
// then takes another way. Once the group is deleted no switch keeps it, not even one that only the
// voided attempt had reached and that its paths no longer connect with the leader.
func TestTreeVoided(t *testing.T) {
	most := 200 // runs of a fabric
	if testing.Short() {
		most = 60
	}
	for _, l := range treeLabs(t) {
		links, switches := l.between()
		var all []faults.Spec
		for _, at := range l.instants(t, 0) {
			w := faults.Window{From: at}
			for _, s := range switches {
				all = append(all, faults.Spec{ID: "change", Kind: faults.KindCrash, Nodes: []int{s}, Window: w})
			}
			for _, k := range links {
				all = append(all, faults.Spec{ID: "change", Kind: faults.KindLinkDown, Links: []int{k}, Window: w})
			}
		}
		order := rand.New(rand.NewPCG(5, 5)).Perm(len(all))
		runs, again := 0, 0
		for _, i := range order[:min(most, len(order))] {
			keep, repeats, ok := l.deleted(t, all[i])
			if !ok {
				continue
			}
			if runs++; repeats > 0 {
				again++
			}
			if len(keep) > 0 {
				t.Errorf("%s, %v of link %v or switch %v at %v: %v keep the group", l.name, all[i].Kind, all[i].Links, all[i].Nodes, all[i].From, keep)
			}
		}
		if again == 0 {
			t.Errorf("%s: nothing had to be repeated in %d runs", l.name, runs)
		}
		t.Logf("%s: %d of %d deleted, %d of them registered with repeats", l.name, runs, min(most, len(order)), again)
	}
}
