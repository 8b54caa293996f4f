// SPDX-License-Identifier: Apache-2.0

package virtswitch_test

import (
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
)

// TestRegistrationTrouble (FLT-15): registration packets lost, duplicated and reordered; groups around the
// packet limits; members that share a leaf with the source.
func TestRegistrationTrouble(t *testing.T) {
	t.Run("lost", testRegistrationLoss)
	t.Run("twisted", testRegistrationTwisted)
	t.Run("never", testRegistrationFails)
	t.Run("sizes", testRegistrationSizes)
	t.Run("leaves", testRegistrationLeaves)
}

// testRegistrationLoss loses each registration packet of the walk-through in turn.
func testRegistrationLoss(t *testing.T) {
	g, err := figureTree()
	s := newScene(t, g, err)
	counts := map[int]*faults.Nth{}
	for id := range s.build().Ports() {
		counts[id] = &faults.Nth{Match: simlab.IsMRP, Drop: map[int]bool{}}
		s.nths[id] = faults.Chain{counts[id]}
	}
	s.must(message{0, 5})
	lost := 0
	for id := range s.net.Ports() {
		for k := 1; k <= counts[id].Seen; k++ {
			again := newScene(t, g, nil)
			again.build()
			again.nths[id] = faults.Chain{&faults.Nth{Match: simlab.IsMRP, Drop: map[int]bool{k: true}}}
			again.must(message{0, 5})
			lost++
		}
	}
	if lost < 50 {
		t.Errorf("only %d registration packets to lose", lost)
	}
}

// testRegistrationTwisted duplicates and reorders registration everywhere.
func testRegistrationTwisted(t *testing.T) {
	for seed := range uint64(40) {
		g, err := topo.FatTree(4, simlab.Link())
		s := newScene(t, g, err)
		s.seed = seed
		n := s.build()
		for id := range n.Ports() {
			s.nths[id] = faults.Chain{&faults.Impairment{
				Match: faults.MatchFunc(simlab.IsMRP), Loss: 0.05, Duplicate: 0.5, Reorder: 0.5, Delay: 20 * vtime.Microsecond, Random: simlab.Random(seed, fmt.Sprint(id)),
			}}
		}
		s.must(message{0, 5}, message{7, 5})
	}
}

// testRegistrationFails cuts a member off: the registrar gives up after its repeats
// and takes the group back.
func testRegistrationFails(t *testing.T) {
	s := starScene(t)
	s.fault("leaf0", "h2", &faults.Impairment{Loss: 1, Random: simlab.Random(s.seed, "cut")})
	err := s.run(message{0, 5})
	if err == nil {
		t.Fatal("a group with an unreachable member came up")
	}
	const want = "group cannot be used: group 10.254.0.1, registering: 1 of 3 members did not confirm, 10.0.0.3 first"
	if err.Error() != want {
		t.Errorf("error %q\nwant %q", err, want)
	}
	if g := s.sw("leaf0").Groups(); len(g) != 0 {
		t.Errorf("the switch still has the group: %+v", g)
	}
	if load := s.sw("leaf0").PortLoad(1); load != 0 {
		t.Errorf("port 1 still counts %d groups", load)
	}
}

// testRegistrationSizes registers groups of 183, 184, 366 and 367 other members: one,
// two, two and three packets. Over IPv6 a packet lists 180.
func testRegistrationSizes(t *testing.T) {
	for _, c := range []struct {
		members, packets int
		v6               bool
	}{{183, 1, false}, {184, 2, false}, {366, 2, false}, {367, 3, false}, {180, 1, true}, {181, 2, true}, {360, 2, true}, {361, 3, true}} {
		g, err := topo.LeafSpine(topo.LeafSpineSpec{Leaves: 8, Spines: 2, Hosts: 46}, simlab.Link())
		s := newScene(t, g, err)
		g.IPv6 = c.v6
		for i := range c.members + 1 {
			s.hosts = append(s.hosts, g.Nodes[i].Name)
		}
		register := s.count("h0", "leaf0", func(f *wire.Frame) bool {
			if !simlab.IsMRP(f) {
				return false
			}
			if n := f.Len() - wire.EthernetLen; n > 1500 || f.IPv6() != c.v6 {
				t.Errorf("IPv6 %v: a packet of %d bytes", f.IPv6(), n)
			}
			p, err := wire.ParseMRP(f.Payload().Bytes())
			return err == nil && p.Flags == 0
		})
		s.must(message{0, 2})
		if register.Seen != c.packets {
			t.Errorf("%d members, IPv6 %v: %d registration packets, want %d", c.members, c.v6, register.Seen, c.packets)
		}
		phase, err := s.net.Agent(0).Status(wire.GroupNet | 1)
		if phase != mrp.Active || err != nil {
			t.Errorf("%d members: phase %v, %v", c.members, phase, err)
		}
	}
}

// testRegistrationLeaves has two members on the source's leaf, and all on one leaf.
func testRegistrationLeaves(t *testing.T) {
	for _, hosts := range [][]string{{"h0", "h1", "h2", "h9"}, {"h0", "h1", "h2"}} {
		g, err := topo.LeafSpine(topo.LeafSpineSpec{Leaves: 3, Spines: 2, Hosts: 3}, simlab.Link())
		if len(hosts) == 4 {
			hosts[3] = "h8"
		}
		s := newScene(t, g, err)
		s.hosts = hosts
		s.must(message{0, 10}, message{1, 10}, message{len(hosts) - 1, 10})
		used := len(s.sw("spine0").Groups()) + len(s.sw("spine1").Groups())
		if want := len(hosts) - 3; used != want {
			t.Errorf("members %v: %d spines have the group, want %d", hosts, used, want)
		}
	}
}
