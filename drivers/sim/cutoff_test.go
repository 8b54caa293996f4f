// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// TestCutOff: a switch that keeps a group is excused when the last of its neighbours on the group's
// paths has lost its tables, or the link to it was down, and not while one of them could tell it.
func TestCutOff(t *testing.T) {
	for _, down := range []bool{false, true} {
		g, err := topo.FatTree(4, simlab.Link())
		if err != nil {
			t.Fatal(err)
		}
		n, err := New(Config{Check: true, Spec: fabric.Spec{Graph: g, Seed: 1, Switch: fabric.Switch{Settings: virtswitch.Settings{
			Rules: virtswitch.RulesFixed(), Buffer: 16 << 20, Groups: 8}}}})
		if err != nil {
			t.Fatal(err)
		}
		lead := mrp.Group{McstID: wire.GroupNet | 1, LeaderQPN: 100, Activate: true}
		for h := 1; h < g.Hosts; h++ {
			n.Agent(h).Join(lead.McstID, 100)
			lead.Members = append(lead.Members, mrp.Member{IP: g.Nodes[h].IP, QPN: 100})
		}
		n.At(0, func(now vtime.Time) {
			if err := n.Agent(0).Register(now, lead); err != nil {
				t.Error(err)
			}
		})
		if err := n.Drain(); err != nil {
			t.Fatal(err)
		}
		core := -1
		for i := g.Hosts; i < len(g.Nodes); i++ {
			if all := n.Switch(i).Groups(); len(all) == 1 && len(all[0].Paths) == 4 {
				core = i
			}
		}
		if core < 0 {
			t.Fatal("no core switch has the group")
		}
		for port := range 4 {
			if got := n.check.cutOff(core); got != 0 {
				t.Errorf("links down: %v; with %d of 4 neighbours gone %d groups are excused", down, port, got)
			}
			if down {
				target{n}.SetCarrier(n.now, topo.End{Node: core, Port: port}, false)
			} else {
				target{n}.WipeGroups(n.now, g.Peer(core, port).Node)
			}
		}
		if got := n.check.cutOff(core); got != 1 {
			t.Errorf("links down: %v; with all neighbours gone %d groups are excused", down, got)
		}
		if !down {
			delete(n.check.gaps.switches, g.Peer(core, 0).Node)
			if got := n.check.cutOff(core); got != 0 {
				t.Errorf("with a neighbour that lacks the group without having lost it %d groups are excused", got)
			}
		}
		if leaf := g.Peer(0, 0).Node; n.check.cutOff(leaf) != 0 {
			t.Error("the leaf of the leader is excused")
		}
	}
}
