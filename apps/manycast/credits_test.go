// SPDX-License-Identifier: Apache-2.0

package manycast_test

import (
	"math"
	"testing"

	"github.com/mcastlab/mcastlab/apps/manycast"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// TestCredits (CYC-18, CYC-19): with one packet to an input the closed form of unicast from one source is that of
// the first packet, and for each further one the round trip of a credit. A packet of W ns on the wire starts into
// a switch, comes there 20 ns later, is known after 82 bytes of 4 ns and 100 ns more, has left its input W later,
// and the word takes 20 ns back, and 100 ns into the switch that waits for it: W + 568 ns. With PFC packets
// follow each other, W apart, until inputs are full.
func TestCredits(t *testing.T) {
	for _, size := range []int{32, 1024, 4096} {
		w := float64(size+82) * 4
		c := sim.Config{Spec: simlab.NTree(t, 4, 3, true, &virtswitch.InputConfig{Credits: true})}
		c.Check = true
		p := manycast.Params{
			M: 4, N: 3, Sizes: []int{size}, Sources: 1, Members: c.Graph.Hosts, Iterations: 1, Seed: 2,
			Schemes: []manycast.Scheme{{Label: "a", Name: manycast.Unicast}, {Label: "b", Name: manycast.Cyclic}, {Label: "c", Name: manycast.OpenSM}, {Label: "d", Name: manycast.CyclicClass}, {Label: "e", Name: manycast.Unicast}},
		}
		rows, n := cast(t, c, p, manycast.App{})
		src, _ := p.Draw(0, c.Graph.Hosts)
		// Messages go to members in order. All but the first after a change of the path wait for the input of its first switch.
		last := c.Graph.Hosts - 1
		if src[0] == last {
			last--
		}
		links := float64(c.Graph.Hops(src[0], last))
		first := links*20 + (links-1)*(100+328) + w
		got, most := rows[0].JCT.Avg*1e3, first+float64(c.Graph.Hosts-2)*(w+568)
		if least := first + float64(c.Graph.Hosts-2)*(w+468); got < least-1 || got > most+1 {
			t.Errorf("%d bytes by unicast: %.1f ns, want %.1f to %.1f", size, got, least, most)
		}
		// One multicast meets empty inputs only.
		if got, want := rows[1].JCT.Avg*1e3, 6*20+5*428+w; math.Abs(got-want) > 1 {
			t.Errorf("%d bytes by multicast: %.1f ns, want %.1f", size, got, want)
		}
		for i := c.Graph.Hosts; i < len(c.Graph.Nodes); i++ {
			if most := n.Switch(i).InputPeak(); most > 1 {
				t.Errorf("%s held %d packets of one input", c.Graph.Nodes[i].Name, most)
			}
		}
	}
}

// TestCreditsAgainstOneBuffer: under load no input has more than a packet, where PFC lets several come, and messages
// of a packet take the time of the paper's network taken literally (oneBuffer) with as many bytes, within 15 %: a
// credit's round trip is 3 % of such a packet, and both serve inputs in orders of their own.
func TestCreditsAgainstOneBuffer(t *testing.T) {
	const size = 4096
	most := map[bool]int{}
	for _, together := range []bool{false, true} {
		for _, credits := range []bool{false, true} {
			c := sim.Config{Spec: simlab.NTree(t, 8, 2, true, &virtswitch.InputConfig{Credits: credits, Together: together})}
			p := manycast.Params{M: 8, N: 2, Sizes: []int{size}, Sources: 13, Members: 13, PerSource: true, Iterations: 4, Seed: 3}
			rows, n := cast(t, c, p, manycast.App{})
			for i := c.Graph.Hosts; i < len(c.Graph.Nodes); i++ {
				most[credits] = max(most[credits], n.Switch(i).InputPeak())
			}
			for _, row := range rows {
				if !credits || row.Scheme != manycast.Cyclic && row.Scheme != manycast.OpenSM && row.Scheme != manycast.Unicast {
					continue
				}
				want := oneBufferTime(t, c.Graph, row.Scheme, p, size+82, together).last
				ratio := row.JCT.Avg * 1e3 / want
				t.Logf("together %v, %s: %.1f us, %.3f of the literal network's", together, row.Scheme, row.JCT.Avg, ratio)
				if math.Abs(ratio-1) > 0.15 {
					t.Errorf("together %v, %s: %.1f us, and %.1f in the literal network", together, row.Scheme, row.JCT.Avg, want/1e3)
				}
			}
		}
	}
	if most[true] != 1 || most[false] < 2 {
		t.Errorf("inputs held up to %d packets with credits, and %d with PFC", most[true], most[false])
	}
}
