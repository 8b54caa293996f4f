// SPDX-License-Identifier: Apache-2.0

package virtrnic_test

import (
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// repair is the result of a lossy transfer.
type repair struct {
	goodput            float64 // of the line, payload only
	repeated, timeouts uint64
}

// transferLossy moves a message of size bytes across a fat-tree, to one host or, by multicast, to
// several, whose last links lose frames, and returns its goodput and repeats.
func transferLossy(t testing.TB, irn bool, loss float64, size, receivers int) (r repair) {
	t.Helper()
	const line = 100e9
	g, err := topo.FatTree(4, topo.LinkParams{Rate: line, Delay: vtime.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	nic := virtrnic.Settings{AckEvery: 16}
	if irn {
		nic.IRN = &virtrnic.IRN{RTOLow: virtrnic.RTOLowDefault, RTOHigh: virtrnic.RTOHighDefault}
	}
	n, err := sim.New(sim.Config{NoDigest: true, Spec: fabric.Spec{
		Graph: g, Seed: 1, TrustICRC: true, NIC: nic,
		Switch: fabric.Switch{
			Latency:  400 * vtime.Nanosecond,
			Settings: virtswitch.Settings{Buffer: 32e6, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	hosts := []int{0}
	for i := range receivers {
		hosts = append(hosts, g.Hosts-1-i)
	}
	random := prng.New(1)
	var from, until vtime.Time
	params := congestedParams
	params.Timeout = 10 // 4.2 ms, the default of labs
	err = n.Run(sim.Job{Name: "lossy", Hosts: hosts, Params: params, Program: func(r *rank.Rank) error {
		buf, err := r.Alloc(size, rank.MemoryPhantom)
		if err != nil {
			return err
		}
		var send, recv func() (*rank.Request, error)
		if receivers == 1 {
			c, err := r.Connect(1 - r.ID())
			if err != nil {
				return err
			}
			send, recv = func() (*rank.Request, error) { return c.Send(buf, 0, size) }, func() (*rank.Request, error) { return c.Recv(buf, 0, size) }
		} else {
			c, err := r.NewGroup("g", 0)
			if err != nil {
				return err
			}
			send, recv = func() (*rank.Request, error) { return c.Send(buf, 0, size) }, func() (*rank.Request, error) { return c.Recv(buf, 0, size) }
		}
		var q *rank.Request
		if r.ID() > 0 {
			if q, err = recv(); err != nil {
				return err
			}
		}
		r.Sync()
		if r.ID() == 0 {
			from = r.Now()
			for _, h := range hosts[1:] {
				leaf := g.Peer(h, 0)
				n.SetFault(n.PortID(leaf.Node, leaf.Port), &faults.Impairment{Loss: loss, Random: random.Derive(fmt.Sprint("loss/", h))})
			}
			if q, err = send(); err != nil {
				return err
			}
		}
		err = r.Wait(q)
		until = max(until, r.Now())
		r.Sync()
		return err
	}})
	if err != nil {
		t.Fatalf("IRN %v, loss %g, %d receivers: %v", irn, loss, receivers, err)
	}
	s := n.NIC(0).Stats()
	return repair{float64(size) * 8 / line / until.Sub(from).Seconds(), s.Retransmitted, s.Timeouts}
}

var lossRates = []float64{1e-4, 3e-4, 1e-3, 3e-3, 1e-2}

// TestIRNAgainstGoBackN: at every rate of loss selective repeat moves more.
func TestIRNAgainstGoBackN(t *testing.T) {
	for _, receivers := range []int{1, 4} {
		for _, loss := range lossRates {
			size := 512 << 20
			if testing.Short() {
				size = 128 << 20
			}
			gbn, irn := transferLossy(t, false, loss, size, receivers), transferLossy(t, true, loss, size, receivers)
			t.Logf("%d receivers, loss %g: go-back-N %+v, IRN %+v", receivers, loss, gbn, irn)
			if irn.goodput <= gbn.goodput {
				t.Errorf("%d receivers, loss %g: IRN moves %.3f of the line, go-back-N %.3f", receivers, loss, irn.goodput, gbn.goodput)
			}
		}
	}
}

// BenchmarkIRN is the curve: goodput, as a share of the line, of go-back-N and of selective
// repeat over the rate of loss. It measures the lab, not this server.
func BenchmarkIRN(b *testing.B) {
	for _, receivers := range []int{1, 4} {
		for _, loss := range lossRates {
			b.Run(fmt.Sprintf("receivers=%d/loss=%g", receivers, loss), func(b *testing.B) {
				gbn, irn := transferLossy(b, false, loss, 256<<20, receivers), transferLossy(b, true, loss, 256<<20, receivers)
				b.ReportMetric(gbn.goodput, "gbn-goodput")
				b.ReportMetric(irn.goodput, "irn-goodput")
				b.ReportMetric(float64(gbn.repeated), "gbn-repeats")
				b.ReportMetric(float64(irn.repeated), "irn-repeats")
				b.ReportMetric(float64(gbn.timeouts), "gbn-timeouts")
				b.ReportMetric(float64(irn.timeouts), "irn-timeouts")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
