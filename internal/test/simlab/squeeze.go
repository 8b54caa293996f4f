// SPDX-License-Identifier: Apache-2.0

package simlab

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// Squeeze is an incast through buffers that are hardly larger than PFC's reserve, in which host 0
// pauses its switch now and then.
type Squeeze struct {
	Spec   fabric.Spec
	MTU    int
	Size   int // bytes of each message
	Pauses []PauseStep
}

// String returns all values that the seed has decided except the delays of links and the pauses.
func (q *Squeeze) String() string {
	c := &q.Spec.Switch
	return fmt.Sprintf("seed %d: %d hosts, mtu %d, %d bytes each, XOFF %d, alpha %v, headroom %d, buffer %d, quanta %d, "+
		"cut-through %v, weights %v, ECN %v, marking %v, input %+v, watchdog %+v",
		q.Spec.Seed, q.Spec.Graph.Hosts, q.MTU, q.Size, c.PFC.XOFF, c.PFC.Alpha, c.Headroom, c.Buffer, c.PFC.Quanta,
		c.CutThrough, c.Weights, c.ECN, c.Marking, c.Input, c.Watchdog)
}

// DrawSqueeze returns the incast of a seed.
func DrawSqueeze(t testing.TB, seed uint64) *Squeeze {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 18))
	link := topo.LinkParams{Rate: []int64{10e9, 100e9, 400e9}[r.IntN(3)], Delay: vtime.Duration(r.IntN(3000)) * vtime.Nanosecond}
	var g *topo.Graph
	var err error
	if r.IntN(2) == 0 {
		g, err = topo.Star(3+r.IntN(6), link)
	} else {
		g, err = topo.LeafSpine(topo.LeafSpineSpec{Leaves: 2, Spines: 1 + r.IntN(2), Hosts: 2 + r.IntN(3)}, link)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range g.Links {
		g.Links[i].Delay += vtime.Duration(r.IntN(2) * r.IntN(99991))
		if r.IntN(3) == 0 {
			g.Links[i].Rate /= 4
		}
	}
	q := &Squeeze{MTU: 256 << r.IntN(5)}
	q.Size = q.MTU * (20 + r.IntN(60))
	q.Spec = fabric.Spec{Graph: g, Seed: seed, NIC: virtrnic.Settings{AckEvery: 4}, Switch: drawSqueezed(r, q.MTU, link.Rate)}
	q.Spec.Switch.Buffer = Reserved(q.Spec) + 1 + r.IntN(8*q.MTU)
	q.Pauses = DrawPauses(r)
	return q
}

// drawSqueezed draws the switches, except for the size of their buffers.
func drawSqueezed(r *rand.Rand, mtu int, rate int64) fabric.Switch {
	sw := fabric.Switch{
		Latency: vtime.Duration(r.IntN(2)*400) * vtime.Nanosecond, CutThrough: r.IntN(3) == 0, MTU: mtu,
		Settings: virtswitch.Settings{PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
	}
	if r.IntN(2) == 0 {
		sw.PFC.XOFF = 1 + r.IntN(3*mtu)
	} else {
		sw.PFC.Alpha = []float64{1. / 16, 1. / 4, 1, 8}[r.IntN(4)]
	}
	if r.IntN(3) == 0 {
		sw.PFC.Quanta = virtswitch.PauseQuantaMin + r.IntN(3000)
	}
	if r.IntN(3) == 0 {
		sw.Weights[3], sw.Weights[6] = uint8(1+r.IntN(4)), 1
	}
	if r.IntN(3) == 0 {
		sw.ECN = virtswitch.ECNConfig{Classes: 1 << 3, Pmax: 0.5}
		sw.Marking = fabric.Marking{Kmin: 1 + r.IntN(mtu), Kmax: 4 * mtu, Rate: rate}
	}
	if sw.Weights == [8]uint8{} && sw.ECN.Classes == 0 && r.IntN(2) == 0 {
		sw.Input = &virtswitch.InputConfig{Together: r.IntN(2) == 0}
	}
	return sw
}

// Reserved returns PFC's reserve in the switch of a fabric that needs most.
func Reserved(spec fabric.Spec) (most int) {
	for i := spec.Graph.Hosts; i < len(spec.Graph.Nodes); i++ {
		most = max(most, spec.Reserved(i))
	}
	return most
}

// Params are the parameters of the incast's ranks, which are on all hosts.
func (q *Squeeze) Params() rankhost.Params {
	p := Params()
	p.MTU, p.Timeout = q.MTU, 14
	return p
}

// Program is the program that each rank runs.
func (q *Squeeze) Program(r *rank.Rank) error { return Cross(r, q.Size) }
