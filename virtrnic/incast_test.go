// SPDX-License-Identifier: Apache-2.0

package virtrnic_test

import (
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/sweeps"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// meter counts the bytes that pass a link, by source address, and samples the queue before it.
type meter struct {
	net   *sim.Net
	sw    *virtswitch.Switch
	bytes map[uint32]int
	queue int // frames in the switch, summed over the frames counted
	most  int
	n     int
}

// Arrive implements faults.Link.
func (m *meter) Arrive(_ vtime.Time, f *wire.Frame) faults.Verdict {
	if f.Kind() == wire.KindRoCE && !f.OpCode().Is(wire.OpResponse) && f.OpCode() != wire.OpCNP {
		m.bytes[f.SrcIP()] += f.WireLen()
		k := m.sw.Queued()
		m.queue, m.most, m.n = m.queue+k, max(m.most, k), m.n+1
	}
	return faults.Verdict{}
}

// meterAt puts a meter on the link to a host.
func meterAt(n *sim.Net, host int) *meter {
	leaf := n.Graph().Peer(host, 0)
	m := &meter{net: n, sw: n.Switch(leaf.Node), bytes: map[uint32]int{}}
	n.SetFault(n.PortID(leaf.Node, leaf.Port), m)
	return m
}

// jain is Jain's index of fairness: 1 if all have the same, 1/n if one has all.
func jain(x ...float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range x {
		sum += v
		squares += v * v
	}
	return sum * sum / (float64(len(x)) * squares)
}

// recovery returns the time that a set takes to give a flow back the given rate at R_HAI each round of
// its timer.
func recovery(set *virtrnic.DCQCN, rate, line int64) vtime.Duration {
	hai := int64(set.RateHAI)
	if set.PerLine {
		hai = hai * line / 25e9
	}
	return vtime.Duration(rate/hai) * set.RateTimer
}

// cnpFilter is the window of the CNP filter (CEP-43). It must hold many CNPs of a path: at its
// fair share a flow has one in milliseconds, and in a window of the notification point's
// 50us the first to come is always the most congested.
const cnpFilter = 10 * vtime.Millisecond

func congestedNet(t testing.TB, g *topo.Graph, name string, cnpWindow vtime.Duration) (*sim.Net, *virtrnic.DCQCN) {
	t.Helper()
	set, err := virtrnic.DCQCNByName(name)
	if err != nil {
		t.Fatal(err)
	}
	n, err := sim.New(sim.Config{NoDigest: true, Spec: fabric.Spec{
		Graph: g, Seed: 1, TrustICRC: true, NIC: virtrnic.Settings{AckEvery: 16, Congestion: set},
		Switch: fabric.Switch{
			Latency: 400 * vtime.Nanosecond,
			Settings: virtswitch.Settings{Buffer: 32e6, PFC: virtswitch.PFCConfig{Lossless: 1 << 3},
				Rules: virtswitch.RulesFixed(), ECN: virtswitch.ECNConfig{Classes: 1 << 3, Pmax: 0.2}, CNPWindow: cnpWindow},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return n, set
}

var congestedParams = rankhost.Params{
	MTU: 4096, TrafficClass: 26<<2 | wire.ECNECT0, Timeout: 14, RetryCnt: 7, RNRRetry: 6, MinRNRTimer: 4, Activate: true,
}

// flood writes to the peer from one instant to another, two messages at a time.
func flood(r *rank.Rank, peer int, from, until vtime.Time) error {
	const size = 1 << 20
	c, err := r.Connect(peer)
	if err != nil {
		return err
	}
	buf, err := r.Alloc(size, rank.MemoryPhantom)
	if err != nil {
		return err
	}
	var addr uint64
	var key uint32
	if _, err := fmt.Sscan(string(r.Get(fmt.Sprint("sink/", peer))), &addr, &key); err != nil {
		return err
	}
	r.Sleep(from.Sub(r.Now()))
	var open []*rank.Request
	for r.Now() < until {
		q, err := c.Write(buf, 0, size, addr, key)
		if err != nil {
			return err
		}
		if open = append(open, q); len(open) > 1 {
			if err := r.Wait(open[0]); err != nil {
				return err
			}
			open = open[1:]
		}
	}
	return r.Wait(open...)
}

// sink makes a buffer that others may write to.
func sink(r *rank.Rank) error {
	buf, err := r.Alloc(1<<20, rank.MemoryPhantom)
	if err == nil {
		r.Put(fmt.Sprint("sink/", r.ID()), []byte(fmt.Sprint(buf.Addr(), " ", buf.RKey())))
	}
	return err
}

// sharing is the result of some flows into one host over the last half of a run.
type sharing struct {
	jain, load   float64
	queue, most  float64 // mean and maximum, kB
	lowest, high float64 // shares of the slowest and fastest flow, 1 is fair
}

// cnpLoss loses every n-th CNP.
type cnpLoss struct{ n, seen int }

// Arrive implements faults.Link.
func (l *cnpLoss) Arrive(_ vtime.Time, f *wire.Frame) (v faults.Verdict) {
	if f.Kind() == wire.KindRoCE && f.OpCode() == wire.OpCNP {
		l.seen++
		v.Drop = l.n > 0 && l.seen%l.n == 0
	}
	return v
}

// runIncast lets flows write to one host for the given number of recovery times of the set; one CNP in
// lost is lost, none if that is 0.
func runIncast(t testing.TB, name string, flows int, times float64, lost int) sharing {
	t.Helper()
	const line = 100e9
	g, err := topo.Star(flows+1, topo.LinkParams{Rate: line, Delay: 600 * vtime.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	n, set := congestedNet(t, g, name, cnpFilter)
	dur := vtime.Time(times * float64(recovery(set, line-line/int64(flows), line)))
	m := meterAt(n, flows)
	n.SetFault(n.PortID(flows, 0), &cnpLoss{n: lost})
	half := map[uint32]int{}
	n.At(dur/2, func(vtime.Time) {
		for i := range flows {
			half[g.Nodes[i].IP] = m.bytes[g.Nodes[i].IP]
		}
		m.queue, m.most, m.n = 0, 0, 0
	})
	var out sharing
	n.At(dur, func(vtime.Time) {
		var x []float64
		for i := range flows {
			x = append(x, float64(m.bytes[g.Nodes[i].IP]-half[g.Nodes[i].IP]))
			out.load += x[i] * 8 / line / (float64(dur/2) / 1e12)
		}
		out.jain = jain(x...)
		out.lowest, out.high = x[0], x[0]
		for _, v := range x {
			out.lowest, out.high = min(out.lowest, v), max(out.high, v)
		}
		fair := out.load * line / 8 * (float64(dur/2) / 1e12) / float64(flows)
		out.lowest, out.high = out.lowest/fair, out.high/fair
		const frame = 4.178
		out.queue, out.most = float64(m.queue)/float64(m.n)*frame, float64(m.most)*frame
	})
	if err := n.Run(sim.Job{Name: "incast", Hosts: allHosts(g), Params: congestedParams, Program: func(r *rank.Rank) error {
		if r.ID() == flows {
			if err := sink(r); err != nil {
				return err
			}
			r.Sync()
			for i := range flows {
				if _, err := r.Connect(i); err != nil {
					return err
				}
			}
			r.Sync()
			return nil
		}
		r.Sync()
		err := flood(r, flows, 0, dur)
		r.Sync()
		return err
	}}); err != nil {
		t.Fatal(err)
	}
	return out
}

func allHosts(g *topo.Graph) (all []int) {
	for h := range g.Hosts {
		all = append(all, h)
	}
	return all
}

// TestIncastFairness: flows into one host share it fairly with the sets of the paper and
// of HPCC, keep it busy, and keep the queue below where everything is marked.
func TestIncastFairness(t *testing.T) {
	flows := []int{2, 8, 32}
	if testing.Short() {
		flows = []int{2, 8}
	}
	for i, name := range []string{"dcqcn", "dcqcn-hpcc"} {
		for j, k := range flows {
			if !sweeps.Takes(t, i+j) { // so that 32 flows are on a day of its own for each set
				continue
			}
			times := 20.0
			if testing.Short() {
				times = map[string]float64{"dcqcn": 10, "dcqcn-hpcc": 2}[name]
			}
			v := runIncast(t, name, k, times, 0)
			t.Logf("%s, %d flows: %+v", name, k, v)
			if v.jain < 0.95 || v.load < 0.95 || v.queue > 1600 {
				t.Errorf("%s, %d flows: Jain %.3f, load %.3f, queue %.0f kB", name, k, v.jain, v.load, v.queue)
			}
		}
	}
}

// TestLostCNPs: a tenth of the CNPs lost neither lets the queue grow nor makes the flows
// unequal.
func TestLostCNPs(t *testing.T) {
	times := 20.0
	if testing.Short() {
		times = 10
	}
	whole, lossy := runIncast(t, "dcqcn", 8, times, 0), runIncast(t, "dcqcn", 8, times, 10)
	t.Logf("queue %.0f kB without loss of CNPs, %.0f kB with", whole.queue, lossy.queue)
	if lossy.jain < 0.95 || lossy.load < 0.95 || lossy.queue > 1.5*whole.queue {
		t.Errorf("with a tenth of the CNPs lost %+v, without %+v", lossy, whole)
	}
}

// BenchmarkIncast is the table of fairness and queue of every parameter set with 2 to 64
// flows, over 20 recovery times each. It measures the lab, not this server.
func BenchmarkIncast(b *testing.B) {
	for _, name := range []string{"dcqcn", "dcqcn-connectx", "dcqcn-hpcc"} {
		for _, k := range []int{2, 4, 8, 16, 32, 64} {
			b.Run(fmt.Sprintf("%s/flows=%d", name, k), func(b *testing.B) {
				v := runIncast(b, name, k, 20, 0)
				b.ReportMetric(v.jain, "Jain")
				b.ReportMetric(v.load, "load")
				b.ReportMetric(v.lowest, "slowest")
				b.ReportMetric(v.high, "fastest")
				b.ReportMetric(v.queue, "queue-kB")
				b.ReportMetric(v.most, "queue-max-kB")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
