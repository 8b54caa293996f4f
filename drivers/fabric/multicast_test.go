// SPDX-License-Identifier: Apache-2.0

package fabric_test

import (
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
)

// TestMulticastDatagrams: a plain IP multicast group delivers to its members, and to no other host,
// from any sender.
func TestMulticastDatagrams(t *testing.T) {
	const ip = 224<<24 | 9
	g, err := topo.FatTree(4, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	n, err := sim.New(sim.Config{Check: true, Spec: simlab.Plain(g)})
	if err != nil {
		t.Fatal(err)
	}
	members, senders := []int{1, 2, 7, 12, 13}, []int{4}
	if err := n.SetMulticast(ip, members, senders); err != nil {
		t.Fatal(err)
	}
	heard := map[string]int{}
	for h := range g.Hosts {
		at, name := g.Peer(h, 0), g.Nodes[h].Name
		n.SetFault(n.PortID(at.Node, at.Port), simlab.Observer(func(_ vtime.Time, f *wire.Frame) {
			if f.DstIP() == ip {
				heard[name]++
			}
		}))
	}
	for _, h := range []int{1, 12, 4} {
		e := wire.NewEnvelope(wire.Flow{Src: g.Nodes[h].IP, Dst: ip, TTL: 64, SrcPort: 1, DstPort: wire.PortRoCEv2})
		f := n.Pool().Get()
		f.Start(&e, wire.BTH{OpCode: wire.OpSendOnly, PKey: wire.PKeyDefault, DestQP: 0xffffff})
		f.Seal(0, false)
		n.At(n.Now(), func(now vtime.Time) { n.NIC(h).SendFrame(now, f) })
		if err := n.Drain(); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(heard); got != "map[h1:2 h12:2 h13:3 h2:3 h7:3]" {
		t.Errorf("heard %s", got)
	}
	if err := n.Leftover(); err != nil {
		t.Error(err)
	}
	if n.SetMulticast(ip, []int{99}, nil) == nil {
		t.Error("a node that is no host can join")
	}
}
