// SPDX-License-Identifier: Apache-2.0

package collective_test

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/bcast"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// forms are the closed forms of the broadcast algorithms (docs/ledgers/rules/formulas.md, with
// start-up terms): host cost 0, store-and-forward, one rate everywhere.
type forms struct {
	g       *topo.Graph
	rate    float64 // bytes per second
	delay   float64 // seconds
	latency float64
	mtu     int
	hosts   []int
}

// wire returns the bytes of a message on the wire.
func (f *forms) wire(m int) float64 {
	return float64(simlab.SendBytes(m, f.mtu))
}

// send is S(m, L): the time of a message over L links.
func (f *forms) send(m, links int) float64 {
	packet := float64(min(m, f.mtu) + simlab.SendOverhead)
	return f.wire(m)/f.rate + float64(links-1)*(packet/f.rate+f.latency) + float64(links)*f.delay
}

// back is the time of an acknowledgement over L links.
func (f *forms) back(links int) float64 {
	const ack = 86 // 62 bytes of frame and 24 around it
	return float64(links)*(ack/f.rate+f.delay) + float64(links-1)*f.latency
}

func (f *forms) links(a, b int) int { return f.g.Hops(f.hosts[a], f.hosts[b]) }

func (f *forms) cepheus(m int) float64 {
	t := 0.0
	for i := 1; i < len(f.hosts); i++ {
		t = max(t, f.send(m, f.links(0, i)))
	}
	return t
}

// unicast: all messages leave by one link, a packet each in turn, so the short last
// packets of all connections come at the end. Either the very last of them ends the
// broadcast, or, while few, they catch up with the full packet before them.
func (f *forms) unicast(m int) float64 {
	if m <= f.mtu {
		return float64(len(f.hosts)-2)*f.wire(m)/f.rate + f.cepheus(m)
	}
	r := float64(len(f.hosts) - 1)
	l := (m-1)%f.mtu + 1
	short := f.wire(l) / f.rate
	full := r * f.wire(m-l) / f.rate
	return max(full+r*short+f.cepheus(l)-short, full+short+f.cepheus(f.mtu)-f.wire(f.mtu)/f.rate+short)
}

func (f *forms) binomial(m int) float64 {
	n := len(f.hosts)
	at := make([]float64, n) // when a rank has the message
	last := 0.0
	for r := range n { // parents have smaller numbers
		span := 1 << bits.Len(uint(n-1))
		if r != 0 {
			span = r & -r
		}
		start := at[r]
		for s := span / 2; s > 0; s /= 2 {
			if r+s >= n {
				continue
			}
			l := f.links(r, r+s)
			at[r+s] = start + f.send(m, l)
			last = max(last, at[r+s])
			if m > f.mtu {
				start = at[r+s] + f.back(l)
			} else {
				start += f.wire(m) / f.rate
			}
		}
	}
	return last
}

func (f *forms) chain(m, slices int) float64 {
	packets := max(1, (m+f.mtu-1)/f.mtu)
	slices = min(slices, packets)
	slice := min(m, (packets+slices-1)/slices*f.mtu)
	count := max(1, (m+slice-1)/max(1, slice))
	t := float64(len(f.hosts)-1+count-1) * f.wire(slice) / f.rate
	for i := 1; i < len(f.hosts); i++ {
		t += f.send(slice, f.links(i-1, i)) - f.wire(slice)/f.rate
	}
	return t
}

func (f *forms) of(scheme string, m int) float64 {
	switch scheme {
	case "cepheus", "gleam":
		return f.cepheus(m)
	case "unicast":
		return f.unicast(m)
	case "binomial":
		return f.binomial(m)
	case "ud-multicast", "uc-multicast":
		return f.cast(scheme, m)
	}
	return f.chain(m, len(f.hosts))
}

// measure runs the benchmark with phantom payload and returns its rows.
func measure(t *testing.T, g *topo.Graph, hosts []int, schemes []bcast.Scheme, sizes []int) []apps.Row {
	t.Helper()
	return measureBy(t, virtswitch.RulesFixed(), g, hosts, schemes, sizes)
}

// measureBy is measure under other rules of multicast.
func measureBy(t *testing.T, rules virtswitch.Rules, g *topo.Graph, hosts []int, schemes []bcast.Scheme, sizes []int) []apps.Row {
	t.Helper()
	n, err := sim.New(sim.Config{NoDigest: true, Spec: fabric.Spec{
		Graph: g, Seed: 1, TrustICRC: true, NIC: virtrnic.Settings{AckEvery: 16},
		Switch: fabric.Switch{
			Latency:  400 * vtime.Nanosecond,
			Settings: virtswitch.Settings{Buffer: 32e6, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: rules},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	p := bcast.Params{Workload: "b", Sizes: sizes, Iterations: 1, Memory: rank.MemoryPhantom, Schemes: schemes}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	params := simlab.Params()
	params.MTU, params.Timeout, params.Activate = 4096, 12, rules.Activate
	records := make([][][]byte, len(hosts))
	if err := n.Run(sim.Job{
		Name: "b", Hosts: hosts, Params: params,
		Program: func(r *rank.Rank) error { return bcast.App{}.Run(r, raw) },
		Emit:    func(rank int, rec []byte) { records[rank] = append(records[rank], rec) },
	}); err != nil {
		t.Fatal(err)
	}
	rows, err := bcast.App{}.Reduce(raw, records)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func named(names ...string) (all []bcast.Scheme) {
	for _, n := range names {
		all = append(all, bcast.Scheme{Label: n, Name: n})
	}
	return all
}

// TestClosedForms compares every algorithm at every size with its closed form.
func TestClosedForms(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector, which has nothing to find in one goroutine at a time")
	}
	link := topo.LinkParams{Rate: 100e9, Delay: 600 * vtime.Nanosecond}
	star, err := topo.Star(4, link)
	if err != nil {
		t.Fatal(err)
	}
	k4, err := topo.FatTree(4, link)
	if err != nil {
		t.Fatal(err)
	}
	k8, err := topo.FatTree(8, link)
	if err != nil {
		t.Fatal(err)
	}
	sizes := []int{0, 64, 1 << 10, 4 << 10, 5000, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-5s %-12s %9s %12s %12s %7s\n", "lab", "scheme", "bytes", "expected us", "got us", "ratio")
	for _, lab := range []struct {
		name string
		g    *topo.Graph
	}{{"star4", star}, {"k=4", k4}, {"k=8", k8}} {
		f := forms{g: lab.g, rate: 12.5e9, delay: 600e-9, latency: 400e-9, mtu: 4096}
		for h := range lab.g.Hosts {
			f.hosts = append(f.hosts, h)
		}
		for _, row := range measure(t, lab.g, f.hosts, named("cepheus", "chain", "binomial", "unicast", "ud-multicast", "uc-multicast"), sizes) {
			want := f.of(row.Scheme, row.SizeBytes) * 1e6
			ratio := row.JCT.Avg / want
			fmt.Fprintf(&table, "%-5s %-12s %9d %12.3f %12.3f %7.4f\n", lab.name, row.Scheme, row.SizeBytes, want, row.JCT.Avg, ratio)
			if ratio < 0.95 || ratio > 1.05 {
				t.Errorf("%s %s at %d bytes: %.3f us, closed form %.3f us", lab.name, row.Scheme, row.SizeBytes, row.JCT.Avg, want)
			}
		}
	}
	t.Log(table.String())
}

// TestAsymptoticRatios: at 64 MiB on four hosts binomial takes twice and a chain of
// four slices one and a half times as long as in-network multicast (F-4, F-5).
func TestAsymptoticRatios(t *testing.T) {
	g, err := topo.Star(4, topo.LinkParams{Rate: 100e9, Delay: 600 * vtime.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	schemes := named("cepheus", "binomial")
	schemes = append(schemes, bcast.Scheme{Label: "chain", Name: "chain", Options: collective.Options{Slices: 4}})
	rows := measure(t, g, []int{0, 1, 2, 3}, schemes, []int{64 << 20})
	for i, want := range []float64{1, 2.00, 1.50} {
		got := rows[i].JCT.Avg / rows[0].JCT.Avg
		t.Logf("%s: %.4f of cepheus, expected %.2f", rows[i].Scheme, got, want)
		if got < want*0.98 || got > want*1.02 {
			t.Errorf("%s at 64 MiB takes %.4f times as long as cepheus, want %.2f within 2 %%", rows[i].Scheme, got, want)
		}
	}
}
