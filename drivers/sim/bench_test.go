// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/internal/heap"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/traces"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

var benchLink = topo.LinkParams{Rate: 100e9, Delay: vtime.Microsecond}

var benchParams = rankhost.Params{
	MTU: 4096, TrafficClass: 26<<2 | 2, Timeout: 10, RetryCnt: 7, RNRRetry: 6, MinRNRTimer: 12, Activate: true,
}

const phantom = rank.MemoryPhantom

func newBenchNet(g *topo.Graph, ackEvery int, noDigest bool) (*sim.Net, error) {
	return sim.New(benchConfig(g, ackEvery, noDigest))
}

func benchConfig(g *topo.Graph, ackEvery int, noDigest bool) sim.Config {
	return sim.Config{NoDigest: noDigest, Spec: fabric.Spec{
		Graph: g, Seed: 1, TrustICRC: true,
		Switch: fabric.Switch{
			Settings: virtswitch.Settings{Buffer: 64e6, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
		},
		NIC: virtrnic.Settings{AckEvery: ackEvery, Window: 64},
	}}
}

func benchNet(b *testing.B, g *topo.Graph, ackEvery int, noDigest bool) *sim.Net {
	b.Helper()
	n, err := newBenchNet(g, ackEvery, noDigest)
	if err != nil {
		b.Fatal(err)
	}
	n.Observe = watched(b)
	return n
}

// watched returns the function that the loop of a run of mcastlab calls now and then.
func watched(b *testing.B) func() error {
	var k heap.Keeper
	b.Cleanup(k.Done)
	return func() error { k.Grown(); return nil }
}

// bcastProgram broadcasts count messages of size bytes to a group.
func bcastProgram(size, count int, kind rank.MemoryKind, start func()) func(*rank.Rank) error {
	return func(r *rank.Rank) error {
		g, err := r.NewGroup("bench", 0)
		if err != nil {
			return err
		}
		buf, err := r.Alloc(size, kind)
		if err != nil {
			return err
		}
		for i := range count + 1 { // the first warms up
			if i == 1 && r.ID() == 0 {
				start()
			}
			if r.ID() == 0 {
				buf.Fill(1, size)
			} else {
				buf.Expect(1, size)
			}
			var q *rank.Request
			if r.ID() != 0 {
				if q, err = g.Recv(buf, 0, size); err != nil {
					return err
				}
			}
			r.Sync()
			if r.ID() == 0 {
				if q, err = g.Send(buf, 0, size); err != nil {
					return err
				}
			}
			if err := r.Wait(q); err != nil {
				return err
			}
			r.Sync()
		}
		return nil
	}
}

// permProgram sends count messages from every rank to the one half the ranks away, so
// that every path crosses the core. start is called when all are connected.
func permProgram(size, count int, start func()) func(*rank.Rank) error {
	return func(r *rank.Rank) error {
		half := r.Size() / 2
		out, err := r.Alloc(size, rank.MemoryPhantom)
		if err != nil {
			return err
		}
		c, err := r.Connect((r.ID() + half) % r.Size())
		if err != nil {
			return err
		}
		for i := range count + 1 { // the first warms up
			recv, err := c.Recv(out, 0, size)
			if err != nil {
				return err
			}
			r.Sync()
			if i == 1 && r.ID() == 0 {
				start()
			}
			send, err := c.Send(out, 0, size)
			if err != nil {
				return err
			}
			if err := r.Wait(recv, send); err != nil {
				return err
			}
			r.Sync()
		}
		return nil
	}
}

func hostsOf(n, every int) (hosts []int) {
	for i := 0; i < n; i += every {
		hosts = append(hosts, i)
	}
	return hosts
}

// mark is the work done, and the processor time spent, when the clock of a benchmark starts.
type mark struct {
	sim.Stats
	cpu time.Duration
}

func (m *mark) start(b *testing.B, n *sim.Net) {
	*m = mark{n.Stats(), cpuTime()}
	b.ResetTimer()
}

func report(b *testing.B, n *sim.Net, before mark) {
	s := n.Stats()
	hops := s.Hops - before.Hops
	sec := b.Elapsed().Seconds()
	b.ReportMetric(float64(hops)/(cpuTime()-before.cpu).Seconds()/1e6, "Mhops/cpu-s")
	b.ReportMetric(float64(hops)/sec/1e6, "Mhops/s")
	b.ReportMetric(float64(hops-(s.AckHops-before.AckHops))/sec/1e6, "Mdatahops/s")
	b.ReportMetric(float64(s.AckHops-before.AckHops)/sec/1e6, "Mackhops/s")
	b.ReportMetric(float64(s.Events-before.Events)/float64(hops), "events/hop")
	b.ReportMetric(0, "ns/op")
}

func BenchmarkBcastFT1024(b *testing.B) {
	for _, ack := range []int{1, 16} {
		for _, dig := range []bool{false, true} {
			b.Run(fmt.Sprintf("ack=%d/digest=%v", ack, dig), func(b *testing.B) {
				g, err := topo.ThreeLayer(topo.FT1024(), benchLink)
				if err != nil {
					b.Fatal(err)
				}
				n := benchNet(b, g, ack, !dig)
				var before mark
				err = n.Run(sim.Job{Name: "b", Hosts: hostsOf(1024, 2), Params: benchParams, Program: bcastProgram(16<<20, b.N, rank.MemoryPhantom, func() { before.start(b, n) })})
				if err != nil {
					b.Fatal(err)
				}
				report(b, n, before)
			})
		}
	}
}

func BenchmarkPermutation(b *testing.B) {
	for _, k := range []int{8, 16} {
		b.Run(fmt.Sprintf("k=%d", k), func(b *testing.B) {
			g, err := topo.FatTree(k, benchLink)
			if err != nil {
				b.Fatal(err)
			}
			p := benchParams
			p.MTU = 1024
			n := benchNet(b, g, 1, true)
			var before mark
			err = n.Run(sim.Job{Name: "perm", Hosts: hostsOf(g.Hosts, 1), Params: p, Program: permProgram(1<<20, b.N, func() { before.start(b, n) })})
			if err != nil {
				b.Fatal(err)
			}
			report(b, n, before)
		})
	}
}

// BenchmarkTrace is a broadcast without a trace and with one whose lines go nowhere.
func BenchmarkTrace(b *testing.B) {
	for _, traced := range []bool{false, true} {
		b.Run(fmt.Sprintf("traced=%v", traced), func(b *testing.B) {
			g, err := topo.FatTree(8, benchLink)
			if err != nil {
				b.Fatal(err)
			}
			lines := 0
			c := sim.Config{NoDigest: true, Spec: fabric.Spec{
				Graph: g, Seed: 1, TrustICRC: true,
				Switch: fabric.Switch{
					Settings: virtswitch.Settings{Buffer: 64e6, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
				}, NIC: virtrnic.Settings{AckEvery: 16},
			}}
			if traced {
				all := make([]*traces.Recorder, len(g.Nodes))
				for i := range all {
					all[i] = traces.NewRecorder(g.Nodes[i].Name, nil, func(*traces.Line) { lines++ })
				}
				c.Trace = func(node int) machine.Tracer { return all[node] }
				c.Watch = func(node int) machine.Watcher { return all[node] }
			}
			n, err := sim.New(c)
			if err != nil {
				b.Fatal(err)
			}
			var before mark
			err = n.Run(sim.Job{Name: "b", Hosts: hostsOf(g.Hosts, 1), Params: benchParams, Program: bcastProgram(16<<20, b.N, rank.MemoryPhantom, func() { before.start(b, n) })})
			if err != nil {
				b.Fatal(err)
			}
			report(b, n, before)
			b.ReportMetric(float64(lines)/float64(b.N), "lines/message")
		})
	}
}

// BenchmarkSkip is a broadcast of 1 GiB to 511 hosts of which each packet is simulated, or only those that do not repeat.
func BenchmarkSkip(b *testing.B) {
	for _, digest := range []bool{true, false} {
		for _, skip := range []bool{false, true} {
			b.Run(fmt.Sprintf("digest=%v/skip=%v", digest, skip), func(b *testing.B) {
				g, err := topo.ThreeLayer(topo.FT1024(), benchLink)
				if err != nil {
					b.Fatal(err)
				}
				for range b.N {
					c := benchConfig(g, 16, !digest)
					c.Skip = skip
					n, err := sim.New(c)
					if err != nil {
						b.Fatal(err)
					}
					if err := n.Run(sim.Job{Name: "b", Hosts: hostsOf(1024, 2), Params: benchParams, Program: bcastProgram(1<<30, 0, phantom, func() {})}); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(n.Stats().Skipped)/float64(n.Stats().Hops), "skipped/hop")
				}
			})
		}
	}
}
