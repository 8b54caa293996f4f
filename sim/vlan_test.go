package sim

import (
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/fabric"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/topo"
	"github.com/mcastlab/mcastlab/virtswitch"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// tagSeen counts frames by kind and tag.
type tagSeen map[string]int

// Arrive implements faults.Link.
func (s tagSeen) Arrive(_ vtime.Time, f *wire.Frame) faults.Verdict {
	tag := "untagged"
	if v := f.Tag(); v != nil {
		tag = fmt.Sprintf("vlan %d class %d", v.ID, v.PCP)
	}
	s[fmt.Sprintf("%d %s", f.Kind(), tag)]++
	return faults.Verdict{}
}

// TestVLAN: in a VLAN every packet is tagged, with its priority as the code point, what
// switches make included; PFC works in the class that the DSCP is mapped to, and pause
// frames stay untagged.
func TestVLAN(t *testing.T) {
	classes := virtswitch.DefaultClasses()
	classes.DSCP[26] = 5
	g, err := topo.FatTree(4, sceneLink)
	if err != nil {
		t.Fatal(err)
	}
	run := func(vlan uint16) tagSeen {
		n, err := New(Config{Check: true, Spec: fabric.Spec{
			Graph: g, Seed: 1, NIC: fabric.NIC{AckEvery: 4}, VLAN: vlan,
			Switch: fabric.Switch{Buffer: 4 << 20, XOFF: 20000, Lossless: 1 << 5, Rules: virtswitch.RulesFixed(), Classes: classes},
		}})
		if err != nil {
			t.Fatal(err)
		}
		seen := tagSeen{}
		for id := range n.Ports() {
			n.SetFault(id, seen)
		}
		for _, s := range faults.PauseSteps(0, vtime.Time(200*vtime.Microsecond), 100*vtime.Microsecond) {
			n.At(s.At, func(vtime.Time) { n.Pause(9, 1<<5, s.Quanta) })
		}
		var hosts []int
		for h := range g.Hosts {
			hosts = append(hosts, h)
		}
		err = n.Run(Job{Name: "vlan", Hosts: hosts, Params: testParams, Program: func(r *rank.Rank) error {
			if err := crossRank(r, 200_000); err != nil {
				return err
			}
			gr, err := r.NewGroup("g", 0)
			if err != nil {
				return err
			}
			return (&scene{mtu: 1024}).transfer(r, gr, 1, message{0, 200})
		}})
		if err != nil {
			t.Error(err)
		}
		dropped := uint64(0)
		for i := g.Hosts; i < len(g.Nodes); i++ {
			dropped += n.Switch(i).Stats().Dropped()
		}
		if dropped != 0 {
			t.Errorf("vlan %d: switches dropped %d frames", vlan, dropped)
		}
		return seen
	}
	want := map[uint16][]string{
		0: {"1 untagged", "2 untagged", "3 untagged"},
		7: {"1 vlan 7 class 5", "2 untagged", "3 vlan 7 class 6"},
	}
	for vlan, kinds := range want { // each is its own check
		seen := run(vlan)
		for _, k := range kinds {
			if seen[k] == 0 {
				t.Errorf("vlan %d: no frame of kind and tag %q", vlan, k)
			}
		}
		if len(seen) != len(kinds) {
			t.Errorf("vlan %d: frames seen %v, want kinds %v only", vlan, seen, kinds)
		}
	}
}
