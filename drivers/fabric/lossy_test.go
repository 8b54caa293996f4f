// SPDX-License-Identifier: Apache-2.0

package fabric_test

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// TestNICOfLossyClass: the NICs of a fabric know which classes have PFC. A slow one pauses its switch
// in such a class; in another it drops frames for which it has no room.
func TestNICOfLossyClass(t *testing.T) {
	for _, lossless := range []uint8{1 << 3, 1 << 4} {
		g, err := topo.Star(2, simlab.Link())
		if err != nil {
			t.Fatal(err)
		}
		spec := simlab.Plain(g)
		spec.Switch.PFC.Lossless = lossless
		n, err := sim.New(sim.Config{Check: true, Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		n.NIC(1).SetIntake(0, 10e9)
		if err := n.Run(sim.Job{Name: "slow", Hosts: []int{0, 1}, Params: simlab.Params(), Program: func(r *rank.Rank) error { return simlab.Cross(r, 4<<20) }}); err != nil {
			t.Errorf("lossless %#x: %v", lossless, err)
		}
		s := n.NIC(1).Stats()
		if paused, lost := s.PausesSent > 0, s.Drops[virtrnic.DropIntakeFull] > 0; paused != (lossless == 1<<3) || lost == paused {
			t.Errorf("lossless %#x: the slow NIC has sent %d pauses and dropped %d frames", lossless, s.PausesSent, s.Drops[virtrnic.DropIntakeFull])
		}
	}
}
