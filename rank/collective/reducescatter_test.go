// SPDX-License-Identifier: Apache-2.0

package collective_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// lossyNet is a fat-tree whose links lose, double and delay frames.
func lossyNet(t *testing.T, seed uint64, m faults.Impairment) *sim.Net {
	t.Helper()
	g, err := topo.FatTree(4, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	return impairedNet(t, g, seed, virtswitch.RulesFixed(), m)
}

// lossyJob runs a program on random hosts of a fat-tree whose links lose one frame in a
// thousand, or none.
func lossyJob(t *testing.T, seed uint64, ranks int, loss float64, program func(r *rank.Rank) error) {
	t.Helper()
	n := lossyNet(t, seed, faults.Impairment{Loss: loss})
	r := rand.New(rand.NewPCG(seed, 79))
	if err := n.Run(sim.Job{Name: "j", Hosts: r.Perm(n.Graph().Hosts)[:ranks], Params: simlab.Params(), Program: program}); err != nil {
		t.Errorf("seed %d, %d ranks: %v", seed, ranks, err)
	}
}

// TestReduceScatter: each rank gets the sum of all ranks' numbers in its block, integers
// and floating point, the latter in the order of the ring. (TestReduceInNetwork has the
// other order.)
func TestReduceScatter(t *testing.T) {
	for _, name := range collective.ReduceScatterNames() {
		for seed := range uint64(20) {
			ranks, count := 2+int(seed)%15, 1+int(seed*seed*37)%900
			float := seed%2 == 1 && name == "ring"
			lossyJob(t, seed, ranks, 1e-3, func(r *rank.Rank) error { return sums(r, name, []int{count, count}, float, ringSum(r)) })
		}
	}
}

// reduceNumber returns the number that a rank has at an index of the buffer, as bits.
func reduceNumber(float bool, rank, index int) uint32 {
	v := uint32(rank+3) * uint32(index+7) * 2654435761
	if float {
		return math.Float32bits(float32(v) / 1e3)
	}
	return v
}

// ringSum returns the ring's sum of the numbers at an index for a rank: it begins with the next rank's
// and ends with its own.
func ringSum(r *rank.Rank) func(at int) uint32 {
	return func(at int) uint32 {
		sum := float32(0)
		for k := range r.Size() {
			sum += math.Float32frombits(reduceNumber(true, (r.ID()+1+k)%r.Size(), at))
		}
		return math.Float32bits(sum)
	}
}

// sums reduces messages of the given counts of numbers per rank, in one buffer where they are alike,
// and compares the results: integers with their sum, floating point with the wanted value at an index.
func sums(r *rank.Rank, name string, counts []int, float bool, want func(at int) uint32) error {
	a, err := collective.NewReduceScatter(name, r, collective.Options{Float32: float})
	if err != nil {
		return err
	}
	var buf *rank.Buffer
	for i, count := range counts {
		if i == 0 || count != counts[i-1] {
			if buf, err = r.Alloc(4*count*r.Size(), rank.MemoryBytes); err != nil {
				return err
			}
		}
		for i := range count * r.Size() {
			binary.LittleEndian.PutUint32(buf.Bytes()[4*i:], reduceNumber(float, r.ID(), i))
		}
		if err := a.Begin(buf, 4*count, 0); err != nil {
			return err
		}
		r.Sync()
		if _, err := a.Run(); err != nil {
			return err
		}
		for i := range count {
			at := r.ID()*count + i
			sum := uint32(0)
			for k := range r.Size() {
				sum += reduceNumber(false, k, at)
			}
			if float {
				sum = want(at)
			}
			if got := binary.LittleEndian.Uint32(buf.Bytes()[4*at:]); got != sum {
				return fmt.Errorf("rank %d, number %d of %d: sum %#x, want %#x", r.ID(), i, count, got, sum)
			}
		}
		for i := range count * r.Size() { // in the network, the other blocks are as they were
			if i/count != r.ID() && name == "in-network" && binary.LittleEndian.Uint32(buf.Bytes()[4*i:]) != reduceNumber(float, r.ID(), i) {
				return fmt.Errorf("rank %d: its number %d has changed", r.ID(), i)
			}
		}
		r.Sync()
		if i+1 == len(counts) || count != counts[i+1] {
			if err := buf.Free(); err != nil {
				return err
			}
		}
	}
	return a.Close()
}

// reduceScatter is the closed form of a Reduce-scatter around one switch: (N-1) S(n, L), and
// in the network (N-1) n and a packet without numbers per own chunk on a rank's link.
func (f *forms) reduceScatter(name string, n int) float64 {
	ranks, l := len(f.hosts), f.links(0, 1)
	if name == "ring" {
		return float64(ranks-1) * f.send(n, l)
	}
	const overhead = simlab.SendOverhead + 8 + 4 // DETH, immediate
	chunks := (n + f.mtu - 1) / f.mtu
	packet := float64(min(n, f.mtu)+overhead) / f.rate
	return float64((ranks-1)*n+ranks*chunks*overhead)/f.rate + packet + f.latency + 2*f.delay
}

// TestReduceScatterTime: runs take the closed forms, (N-1) S(n, L), and that of package collective for
// sums in the network. Without loss nothing is repeated.
func TestReduceScatterTime(t *testing.T) {
	g, err := topo.Star(5, topo.LinkParams{Rate: 100e9, Delay: 600 * vtime.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	f := forms{g: g, rate: 12.5e9, delay: 600e-9, latency: 400e-9, mtu: 1024, hosts: []int{0, 1, 2, 3, 4}}
	for _, name := range collective.ReduceScatterNames() {
		for _, size := range []int{0, 64, 5000, 1 << 20} {
			if size == 0 && name == "in-network" {
				continue // nothing is sent
			}
			took, n := reduceTime(t, name, g, f.mtu, size)
			form := f.reduceScatter(name, size) * 1e6
			t.Logf("%s, %d bytes per rank: %.3f us, closed form %.3f us", name, size, took, form)
			if took < form*0.95 || took > form*1.05 {
				t.Errorf("%s, %d bytes per rank: %.3f us, closed form %.3f us", name, size, took, form)
			}
			if st := n.Switch(5).Stats(); st.ReducedIn != uint64(5*5*((size+f.mtu-1)/f.mtu)) && name == "in-network" {
				t.Errorf("%d bytes per rank: %d parts were added", size, st.ReducedIn)
			}
		}
	}
}

// reduceTime returns the microseconds until the last of five ranks has its sums.
func reduceTime(t *testing.T, name string, g *topo.Graph, mtu, size int) (float64, *sim.Net) {
	t.Helper()
	n, err := sim.New(sim.Config{NoDigest: true, Spec: fabric.Spec{
		Graph: g, Seed: 1, TrustICRC: true, NIC: virtrnic.Settings{AckEvery: 16},
		Switch: fabric.Switch{
			Latency:  400 * vtime.Nanosecond,
			Settings: virtswitch.Settings{Buffer: 32e6, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	params := simlab.Params()
	params.MTU = mtu
	var last vtime.Duration
	err = n.Run(sim.Job{Name: "j", Hosts: []int{0, 1, 2, 3, 4}, Params: params, Program: func(r *rank.Rank) error {
		a, err := collective.NewReduceScatter(name, r, collective.Options{})
		if err != nil {
			return err
		}
		buf, err := r.Alloc(size*r.Size(), rank.MemoryPhantom)
		if err != nil {
			return err
		}
		if err := a.Begin(buf, size, 0); err != nil {
			return err
		}
		r.Sync()
		start := r.Now()
		at, err := a.Run()
		last = max(last, at.Received.Sub(start))
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	return last.Microseconds(), n
}

// TestBarrier: no rank leaves a barrier before the last has entered, and without loss all leave
// ceil(log2 N) S(0, L) later at the latest.
func TestBarrier(t *testing.T) {
	for seed := range uint64(40) {
		ranks := 2 + int(seed)%15
		loss := float64(seed%2) * 1e-3
		barrier := collective.NewBarrier
		if seed >= 20 {
			barrier, ranks = collective.NewPairBarrier, []int{2, 3, 4, 7, 8, 9, 16}[seed%7]
		}
		const rounds = 5
		came, left := [rounds]vtime.Time{}, [rounds][]vtime.Time{}
		lossyJob(t, seed, ranks, loss, func(r *rank.Rank) error {
			buf, err := r.Alloc(0, rank.MemoryBytes)
			if err != nil {
				return err
			}
			m := barrier(r)
			if err := m.Begin(buf, 0, 0); err != nil {
				return err
			}
			r.Sync()
			random := r.Random("late")
			for i := range rounds {
				r.Sleep(vtime.Duration(random.Float64() * float64(20*vtime.Microsecond)))
				came[i] = max(came[i], r.Now())
				at, err := m.Run()
				if err != nil {
					return err
				}
				left[i] = append(left[i], at.Done)
			}
			return m.Close()
		})
		f := forms{rate: 12.5e9, delay: 1e-6, latency: 400e-9, mtu: 1024}
		steps := 0
		for 1<<steps < ranks {
			steps++
		}
		most := float64(steps) * f.send(0, 6) * 1e6
		for i := range rounds {
			for _, at := range left[i] {
				if at < came[i] || loss == 0 && at.Sub(came[i]).Microseconds() > most*1.05 {
					t.Errorf("seed %d, %d ranks, barrier %d: one left at %v, the last came at %v (closed form %.2f us)", seed, ranks, i, at, came[i], most)
				}
			}
			if len(left[i]) != ranks {
				t.Errorf("seed %d: %d of %d ranks left barrier %d", seed, len(left[i]), ranks, i)
			}
		}
	}
}
