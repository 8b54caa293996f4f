// SPDX-License-Identifier: Apache-2.0

// Package simlab has the parts that tests in simulated labs share: parameters of ranks, links and
// fabrics, programs of ranks, predicates and watchers of frames, and the seeds of a sweep. It does not
// import drivers/sim, so that the simulator's own tests can use it as well. Only tests import it.
package simlab

import (
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/apps/manycast"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// SendOverhead is the number of bytes on the wire that a SEND packet takes beside its
// payload: Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4, FCS, preamble and gap 24.
const SendOverhead = 82

// SendBytes returns the bytes on the wire of a message of m bytes that goes in SENDs of at
// most mtu bytes each. An empty message takes one packet.
func SendBytes(m, mtu int) int {
	return m + max(1, (m+mtu-1)/mtu)*SendOverhead
}

// Params are the parameters of ranks that most tests use.
func Params() rankhost.Params {
	return rankhost.Params{
		MTU: 1024, TrafficClass: 26<<2 | wire.ECNECT0, Timeout: 8, RetryCnt: 7, RNRRetry: 6, MinRNRTimer: 4, Activate: true,
	}
}

// Link is the link that most tests use: 100 Gb/s and 1 us.
func Link() topo.LinkParams {
	return topo.LinkParams{Rate: 100e9, Delay: vtime.Microsecond}
}

// Plain describes a fabric of switches with 16 MiB of buffer in which class 3 is lossless.
func Plain(g *topo.Graph) fabric.Spec {
	return fabric.Spec{Graph: g, Seed: 1, NIC: virtrnic.Settings{AckEvery: 1}, Switch: fabric.Switch{
		Settings: virtswitch.Settings{Buffer: 16 << 20, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
	}}
}

// Hosts returns the nodes of all hosts of a fabric, in order.
func Hosts(g *topo.Graph) (hosts []int) {
	for h := range g.Hosts {
		hosts = append(hosts, h)
	}
	return hosts
}

// Random returns the named stream that a lab with the given seed derives.
func Random(seed uint64, name string) prng.Stream {
	s := prng.New(seed)
	return s.Derive(name)
}

// Framing gives the trial of a seed its address family, which it sets in the graph, and
// returns its VLAN, 0 for none: a half of all seeds are IPv6, a third tagged. It draws from
// a stream of its own.
func Framing(g *topo.Graph, seed uint64) (vlan uint16) {
	r := rand.New(rand.NewPCG(seed, 1883))
	if g.IPv6 = r.IntN(2) == 0; r.IntN(3) == 0 {
		vlan = uint16(1 + r.IntN(4094))
	}
	return vlan
}

// NTree returns the fabric of the cyclic multicast paper (CYC-18), an m-port n-tree: 2 Gb/s,
// which is 4 ns per byte, 20 ns per link, 100 ns per switch. cut selects cut-through
// switches, input, unless nil, queues at the ingress.
func NTree(t testing.TB, m, n int, cut bool, input *virtswitch.InputConfig) fabric.Spec {
	t.Helper()
	g, err := topo.MPortNTree(m, n, topo.LinkParams{Rate: 2e9, Delay: 20 * vtime.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	return fabric.Spec{Graph: g, Seed: 1, NIC: virtrnic.Settings{AckEvery: 16}, Switch: fabric.Switch{
		Latency: 100 * vtime.Nanosecond, CutThrough: cut,
		Settings: virtswitch.Settings{Buffer: 32e6, PFC: virtswitch.PFCConfig{Lossless: 1 << 3, XOFF: 1}, Rules: virtswitch.RulesFixed(), Input: input},
	}}
}

// Messages returns the number of messages that reach members in an iteration of a many-to-many workload
// on a number of hosts, on average.
func Messages(p manycast.Params, hosts int) (n float64) {
	for i := range p.Iterations {
		sources, groups := p.Draw(i, hosts)
		for k, s := range sources {
			for _, m := range groups[k] {
				if m != s {
					n += 1 / float64(p.Iterations)
				}
			}
		}
	}
	return n
}
