// SPDX-License-Identifier: Apache-2.0

package collective_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// threadRun sends messages of drawn sizes by drawn roots and returns the counters of recovery, summed.
func threadRun(t *testing.T, transport string, ranks int, seed uint64, loss float64) (all collective.Recovery) {
	t.Helper()
	g, err := topo.Star(ranks, simlab.Link())
	n := newNet(t, g, err, 4)
	if loss > 0 {
		for id := range n.Ports() {
			n.SetFault(id, &faults.Impairment{Loss: loss, Duplicate: loss, Random: simlab.Random(seed, fmt.Sprint("link", id))})
		}
	}
	draw := prng.New(seed)
	sizes, roots := make([]int, 12), make([]int, 12)
	for i := range sizes {
		sizes[i], roots[i] = []int{0, 1, 1024, 1025, 100000, 400000}[draw.IntN(6)], draw.IntN(ranks)
	}
	err = n.Run(sim.Job{Name: "o", Hosts: simlab.Hosts(g), Params: simlab.Params(), Program: func(r *rank.Rank) error {
		a, err := collective.NewBcast("unicast", r, collective.Options{Transport: transport, PerChunk: 50 * vtime.Nanosecond})
		if err != nil {
			return err
		}
		b, err := r.Alloc(400000, rank.MemoryBytes)
		if err != nil {
			return err
		}
		want := make([]byte, 400000)
		for i, size := range sizes {
			prng.Fill(want[:size], seed+uint64(i), 0)
			clear(b.Bytes())
			if r.ID() == roots[i] {
				copy(b.Bytes(), want[:size])
			}
			if err := a.Begin(b, size, roots[i]); err != nil {
				return err
			}
			r.Sync()
			if _, err := a.Run(); err != nil {
				return err
			}
			if string(b.Bytes()[:size]) != string(want[:size]) || strings.Trim(string(b.Bytes()[size:]), "\x00") != "" {
				return fmt.Errorf("rank %d, message %d of %d bytes from %d: wrong bytes", r.ID(), i, size, roots[i])
			}
		}
		all.Add(*collective.RecoveryOf(a))
		return a.Close()
	}})
	if err != nil {
		t.Fatalf("%s, %d ranks, seed %d, loss %v: %v", transport, ranks, seed, loss, err)
	}
	if err := n.Leftover(); err != nil {
		t.Error(err)
	}
	return all
}

// TestOneThread (BAS-15): unicast by one thread, from roots that move, brings every byte to its place, also where
// frames are lost and doubled: over RC the adapter repairs that, over UD the thread.
func TestOneThread(t *testing.T) {
	for _, transport := range []string{collective.TransportRCChunks, collective.TransportUD} {
		var lossy collective.Recovery
		for seed := range uint64(6) {
			if got := threadRun(t, transport, 2+int(seed)%3, seed, 0); got != (collective.Recovery{}) {
				t.Errorf("%s, seed %d: without a loss %+v", transport, seed, got)
			}
			lossy.Add(threadRun(t, transport, 2+int(seed)%3, seed, 0.01))
		}
		if repaired := lossy.Cutoffs > 0 && lossy.Duplicates > 0; repaired != (transport == collective.TransportUD) {
			t.Errorf("%s: with losses %+v", transport, lossy)
		}
	}
}

// TestOneThreadRate: one thread reaches the rate that its time per chunk allows, or that of the link if it is lower,
// with its own reliability and without (Khalilov et al. Fig. 5, R-A4). Whole messages over RC reach the rate of the
// link.
func TestOneThreadRate(t *testing.T) {
	const link = 25e9 * 4096 / (4096 + 94)
	for _, c := range []struct {
		transport string
		spent     vtime.Duration
	}{
		{collective.TransportRCChunks, 0}, {collective.TransportUD, 0}, {collective.TransportRCChunks, 290 * vtime.Nanosecond},
		{collective.TransportUD, 290 * vtime.Nanosecond}, {collective.TransportUD, vtime.Microsecond}, {collective.TransportRC, 0},
	} {
		want := float64(link)
		if c.spent > 0 {
			want = min(link, 4096/c.spent.Seconds())
		}
		got, drops := receiveRate(t, "unicast", collective.Options{Transport: c.transport, PerChunk: c.spent})
		t.Logf("%-9s %v a chunk: %.2f GiB/s", c.transport, c.spent, got/(1<<30))
		if drops > 0 || got < 0.97*want || got > 1.03*want {
			t.Errorf("%s, %v a chunk: %.3g bytes/s, want %.3g; %d dropped", c.transport, c.spent, got, want, drops)
		}
	}
}

// TestTransportRefused: unknown transports of unicast are refused with a message.
func TestTransportRefused(t *testing.T) {
	g, err := topo.Star(2, simlab.Link())
	n := newNet(t, g, err, 1)
	err = n.Run(sim.Job{Name: "x", Hosts: []int{0, 1}, Params: simlab.Params(), Program: func(r *rank.Rank) error {
		for _, c := range []struct {
			scheme string
			o      collective.Options
			want   string
		}{
			{"chain", collective.Options{Transport: collective.TransportUD}, "it has no transport"},
			{"unicast", collective.Options{Transport: "tcp"}, `transport "tcp": use rc, rc-chunks, ud`},
			{"unicast", collective.Options{Transport: collective.TransportRC, PerChunk: 1}, "neither per-chunk nor alpha"},
			{"unicast", collective.Options{Transport: collective.TransportUD, Pace: 5}, "per-chunk and alpha alone"},
			{"unicast", collective.Options{PerChunk: 1}, "no receive engine"},
		} {
			if _, err := collective.NewBcast(c.scheme, r, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("%s with %+v: %w, want %s", c.scheme, c.o, err, c.want)
			}
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
}
