// SPDX-License-Identifier: Apache-2.0

package virtswitch_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
)

// TestNoRoomForGroup (FLT-16): a switch has no room for another group, or a group would leave it by more
// ports than it can feed (CEP-49). Registration fails for all members with the reason, the entries of
// other switches are removed, and groups that fit still work.
func TestNoRoomForGroup(t *testing.T) {
	for _, c := range []struct {
		name           string
		groups, fanOut int
		first          bool // a group that takes the room
		why            string
	}{
		{"memory", 1, 0, true, "no room"},
		{"fan-out", 0, 2, false, "fan-out limit exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := topo.FatTree(4, simlab.Link())
			if err != nil {
				t.Fatal(err)
			}
			spec := simlab.Plain(g)
			spec.NIC.AckEvery, spec.Switch.Groups, spec.Switch.FanOut = 4, c.groups, c.fanOut
			n, err := sim.New(sim.Config{Check: true, Spec: spec})
			if err != nil {
				t.Fatal(err)
			}
			failed := 0
			small := []int{0, 1, 4} // one leaf, and a host of another pod
			run := func(hosts []int, name string, wantErr bool) *rank.Group {
				var led *rank.Group
				err := n.Run(sim.Job{Name: name, Hosts: hosts, Params: simlab.Params(), Keep: true, Program: func(r *rank.Rank) error {
					gr, err := r.NewGroup(name, 0)
					if !wantErr || err == nil {
						if err == nil && r.ID() == 0 {
							led = gr
						}
						return err
					}
					if !errors.Is(err, rank.ErrGroup) || !strings.Contains(err.Error(), c.why) {
						return fmt.Errorf("rank %d: %w", r.ID(), err)
					}
					failed++
					return nil
				}})
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				return led
			}
			all := simlab.Hosts(g)
			if c.first {
				run(small, "first", false)
			}
			before := installed(n)
			if run(all, "large", true) != nil || failed != len(all) {
				t.Errorf("%d of %d members were told", failed, len(all))
			}
			if after := installed(n); after != before {
				t.Errorf("before the registration that failed switches had\n%s\nafter it\n%s", before, after)
			}
			if !c.first {
				run(small, "small", false)
				if now := installed(n); now == before {
					t.Error("no group fits any more")
				}
			}
		})
	}
}

// installed lists every switch's groups and port loads.
func installed(n *sim.Net) string {
	var b strings.Builder
	g := n.Graph()
	for i := g.Hosts; i < len(g.Nodes); i++ {
		sw := n.Switch(i)
		fmt.Fprintf(&b, "%s:", g.Nodes[i].Name)
		for _, group := range sw.Groups() {
			fmt.Fprintf(&b, " %v/%d", wire.AddrOf(group.McstID), len(group.Paths))
		}
		for p := range g.Nodes[i].Links {
			fmt.Fprintf(&b, " %d", sw.PortLoad(p))
		}
		b.WriteString("\n")
	}
	return b.String()
}
