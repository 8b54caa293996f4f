// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// TestTablesAtScale (R-C20): groups of 64, 512 and 1024 members on the fabric of 1024 hosts take no more of a switch than the 711 bytes of a
// group at 64 ports, and one of all hosts no more of any switch than one of half of them: a switch's entry of a group is its ports.
func TestTablesAtScale(t *testing.T) {
	g, err := topo.ThreeLayer(topo.FT1024(), simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	most, entries := map[int]int{}, map[int]int{}
	for _, members := range []int{64, 512, 1024} {
		n := newLab(t, labConfig(g))
		used := 0
		program := func(r *rank.Rank) error {
			if _, err := r.NewGroup("g", 0); err != nil {
				return err
			}
			r.Sync()
			if r.ID() == 0 {
				for i := n.graph.Hosts; i < len(n.graph.Nodes); i++ {
					if bytes := n.Switch(i).MFTBytes(); bytes > 0 {
						used++
						most[members] = max(most[members], bytes)
						entries[members] = max(entries[members], len(n.Switch(i).Groups()[0].Paths))
					}
				}
			}
			r.Sync()
			return nil
		}
		if err := n.Run(Job{Name: "tables", Hosts: simlab.Hosts(n.graph)[:members], Params: simlab.Params(), Program: program}); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d members: %d switches have the group, at most %d bytes and %d paths each", members, used, most[members], entries[members])
		if used == 0 || most[members] > virtswitch.MFTBytes(64, false) {
			t.Errorf("%d members: %d switches have the group, and %d bytes of it at most, want 1 to %d", members, used, most[members], virtswitch.MFTBytes(64, false))
		}
	}
	if most[1024] > most[512] || entries[1024] > 33 {
		t.Errorf("a group of 1024 takes %d bytes and %d paths of a switch, one of 512 %d bytes; want no more, and 33 paths at most", most[1024], entries[1024], most[512])
	}
}
