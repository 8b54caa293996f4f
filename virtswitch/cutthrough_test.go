// SPDX-License-Identifier: Apache-2.0

package virtswitch_test

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/rank/rankrun"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// TestCutThroughRules: a cut-through switch begins to send a packet when its first 82 bytes
// are there, by a port of the same rate or a slower one; a port that is faster would run
// out of bits, and the whole packet is waited for. A host takes a packet when all of it is
// there. The same with queues at either side.
func TestCutThroughRules(t *testing.T) {
	const size, latency, delay = 4096, 100, 20     // bytes, ns
	const bytes = size + 14 + 20 + 8 + 12 + 4 + 24 // Ethernet, IPv4, UDP, BTH, ICRC; FCS, preamble and gap
	ns := func(n int, rate int64) float64 { return float64(n) * 8e9 / float64(rate) }
	for _, c := range []struct {
		in, out int64 // bit/s
		cut     bool
		want    float64 // ns at the switch, up to where sending begins
	}{
		{2e9, 2e9, true, ns(82, 2e9)}, {2e9, 1e9, true, ns(82, 2e9)}, {1e9, 2e9, true, ns(bytes, 1e9)},
		{2e9, 2e9, false, ns(bytes, 2e9)}, {2e9, 1e9, false, ns(bytes, 2e9)},
	} {
		for _, input := range []*virtswitch.InputConfig{nil, {}, {Together: true}} {
			link := func(a string, rate int64) topo.CustomLink {
				return topo.CustomLink{A: a, B: "s", PortA: -1, PortB: -1, Params: topo.LinkParams{Rate: rate, Delay: delay * vtime.Nanosecond}}
			}
			g, err := topo.Custom([]topo.CustomNode{{Name: "a", Kind: topo.Host}, {Name: "b", Kind: topo.Host}, {Name: "s", Kind: topo.Switch}},
				[]topo.CustomLink{link("a", c.in), link("b", c.out)})
			if err != nil {
				t.Fatal(err)
			}
			n, err := sim.New(sim.Config{Check: true, Spec: fabric.Spec{Graph: g, Seed: 1, Switch: fabric.Switch{
				Latency: latency * vtime.Nanosecond, CutThrough: c.cut,
				Settings: virtswitch.Settings{Buffer: 1 << 20, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Input: input, Rules: virtswitch.RulesFixed()},
			}}})
			if err != nil {
				t.Fatal(err)
			}
			params := rankhost.Params{MTU: 4096, TrafficClass: 26<<2 | wire.ECNECT0, Timeout: 8, RetryCnt: 7, RNRRetry: 6, MinRNRTimer: 4, Activate: true}
			var took vtime.Duration
			if err := n.Run(sim.Job{Name: "cut", Hosts: []int{0, 1}, Params: params, Program: func(r *rank.Rank) error {
				d, err := oneMessage(r, g.Nodes[1].IP, size)
				took = max(took, d)
				return err
			}}); err != nil {
				t.Fatal(err)
			}
			want := c.want + latency + 2*delay + ns(bytes, c.out)
			if got := float64(took) / float64(vtime.Nanosecond); got < want-0.01 || got > want+0.01 {
				t.Errorf("%d to %d bit/s, cut-through %v, input %+v: %.2f ns, want %.2f", c.in, c.out, c.cut, input, got, want)
			}
		}
	}
}

// oneMessage sends a message from rank 0 to rank 1 and returns, there, how long it took.
func oneMessage(r *rank.Rank, to uint32, size int) (vtime.Duration, error) {
	buf, err := r.Alloc(size, rank.MemoryBytes)
	if err != nil {
		return 0, err
	}
	if r.ID() == 0 {
		qpn := r.Get("qpn")
		out, err := rankrun.NewOutlet(r, to, qpnOf(qpn))
		if err != nil {
			return 0, err
		}
		r.Sync()
		q, err := out.Send(buf, 0, size)
		if err != nil {
			return 0, err
		}
		return 0, r.Wait(q)
	}
	in, err := rankrun.NewInlet(r, 0)
	if err != nil {
		return 0, err
	}
	q, err := in.Recv(buf, 0, size)
	if err != nil {
		return 0, err
	}
	r.Put("qpn", []byte{byte(in.QPN())})
	r.Sync()
	start := r.Now()
	err = r.Wait(q)
	return r.Now().Sub(start), err
}

func qpnOf(b []byte) wire.QPN { return wire.QPN(b[0]) }
