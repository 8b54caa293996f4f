// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// skipLab is a lab drawn by seed, and its traffic.
type skipLab struct {
	what  string
	cfg   sim.Config
	job   sim.Job
	cross []func(n *sim.Net)
}

// drawSkipLab draws a lab in which long messages are under way: to groups, between pairs, both at a time; with traffic
// across them, pauses, losses, congestion control and bytes in some.
func drawSkipLab(t *testing.T, seed uint64) (l skipLab) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 19))
	link := topo.LinkParams{Rate: []int64{25e9, 100e9, 400e9}[r.IntN(3)], Delay: vtime.Duration(r.IntN(2000)+1) * vtime.Nanosecond}
	g, err := topo.Star(2+r.IntN(6), link)
	if r.IntN(2) == 0 {
		g, err = topo.FatTree(4, link)
	}
	if err != nil {
		t.Fatal(err)
	}
	ack := []int{1, 1, 2, 4, 16}[r.IntN(5)]
	c := benchConfig(g, ack, false)
	c.Seed, c.TrustICRC = seed, r.IntN(4) > 0
	c.NIC.Window = []int{4, 16, 64, 256}[r.IntN(4)]
	c.Switch.CutThrough = r.IntN(3) == 0
	c.Switch.Latency = vtime.Duration(r.IntN(2)*r.IntN(900)) * vtime.Nanosecond
	p := benchParams
	p.MTU = []int{1024, 4096}[r.IntN(2)]
	size := p.MTU*(300+r.IntN(3000)) + r.IntN(p.MTU)
	kind := phantom
	if r.IntN(8) == 0 {
		kind = rank.MemoryHashed
	}
	if r.IntN(8) == 0 {
		c.NIC.Congestion = &virtrnic.DCQCN{}
	}
	pairs := r.IntN(3)
	l = skipLab{cfg: c, job: sim.Job{Name: "s", Hosts: hostsOf(g.Hosts, 1), Params: p, Program: func(k *rank.Rank) error {
		if pairs != 0 && k.Size()%2 == 0 {
			if err := permProgram(size, r2(seed), func() {})(k); err != nil || pairs == 2 {
				return err
			}
		}
		return bcastProgram(size, r2(seed), kind, func() {})(k)
	}}}
	l.what = fmt.Sprintf("%d hosts, %v, acknowledgement every %d, window %d, MTU %d, %d bytes, pairs %d, memory %v, cut-through %v, trusted %v",
		g.Hosts, link, ack, c.NIC.Window, p.MTU, size, pairs, kind, c.Switch.CutThrough, c.TrustICRC)
	switch r.IntN(6) {
	case 0:
		l.what += ", losses"
		l.cross = append(l.cross, func(n *sim.Net) {
			count := 0
			n.SetFault(n.PortID(g.Peer(1, 0).Node, g.Peer(1, 0).Port), everySo{&count, 700})
		})
	case 1:
		l.what += ", a pause"
		l.cross = append(l.cross, func(n *sim.Net) {
			n.At(vtime.Time(40*vtime.Microsecond), func(vtime.Time) { n.Pause(1, 1<<3, 5000) })
		})
	case 2:
		l.what += ", a datagram now and then"
		l.cross = append(l.cross, func(n *sim.Net) { n.At(vtime.Time(50*vtime.Microsecond), stray(n)) })
	}
	switch seed % 12 { // not drawn: the draws above stay as they were
	case 7:
		l.what += ", no digest"
		l.cfg.NoDigest = true
	case 11:
		l.what += ", a port that is watched"
		l.cross = append(l.cross, func(n *sim.Net) { n.SetTap(0, 0, func(vtime.Time, *wire.Frame) {}) })
	}
	return l
}

func r2(seed uint64) int { return int(seed % 2) }

// everySo loses one packet in every.
type everySo struct {
	count *int
	every int
}

// Arrive implements faults.Link.
func (e everySo) Arrive(vtime.Time, *wire.Frame) faults.Verdict {
	*e.count++
	return faults.Verdict{Drop: *e.count%e.every == 0}
}

// stray sends a datagram without a receiver, again and again for a while.
func stray(n *sim.Net) func(now vtime.Time) {
	left := 5
	var send func(now vtime.Time)
	send = func(now vtime.Time) {
		g := n.Graph()
		e := wire.NewEnvelope(wire.Flow{Src: g.Nodes[0].IP, Dst: g.Nodes[1].IP, TTL: 64, SrcPort: 1, DstPort: wire.PortRoCEv2})
		f := n.Pool().Get()
		f.Start(&e, wire.BTH{OpCode: wire.OpSendOnly, PKey: wire.PKeyDefault, DestQP: 0xfffffe})
		f.Seal(0, false)
		n.NIC(0).SendFrame(now, f)
		if left--; left > 0 {
			n.At(now.Add(90*vtime.Microsecond), send)
		}
	}
	return send
}

// outcome returns all outputs of a run as text.
func (l *skipLab) outcome(t *testing.T, skip bool) (all string, s sim.Stats) {
	t.Helper()
	c := l.cfg
	c.Skip = skip
	n, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if skip {
		n.SkipEagerly()
	}
	for _, f := range l.cross {
		f(n)
	}
	err = n.Run(l.job)
	s = n.Stats()
	done := s
	done.Skipped, done.Periods, done.Skips = 0, 0, 0
	all = fmt.Sprintf("%v\n%016x at %v, %+v, left %v\n", err, n.Digest(), n.Now(), done, n.Leftover())
	for i := range n.Graph().Nodes {
		if sw := n.Switch(i); sw != nil {
			all += fmt.Sprintf("%d: %+v %+v", i, *sw.Stats(), sw.Holding())
			for p := range sw.Ports() {
				all += fmt.Sprintf(" %+v %d", sw.PortStats(p), sw.QueuePeak(p))
			}
		} else {
			all += fmt.Sprintf("%d: %+v %016x", i, *n.NIC(i).Stats(), n.NIC(i).Digest())
		}
		all += "\n"
	}
	for id := range n.Ports() {
		k := n.Link(id)
		all += fmt.Sprintf("%d: %016x %d %d %d\n", id, k.Digest, k.Frames, k.Bytes, k.Payload)
	}
	return all, s
}

// TestSkip: a run from which periods are left out is the run in which nothing is, in every digest, counter and
// instant. It counts the periods.
func TestSkip(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 15
	}
	labs, skipped, hops := 0, uint64(0), uint64(0)
	for seed := range seeds {
		l := drawSkipLab(t, seed)
		want, all := l.outcome(t, false)
		got, s := l.outcome(t, true)
		if got != want {
			t.Fatalf("seed %d: %s: %d periods left out in %d skips\n%s\nwith all of them\n%s", seed, l.what, s.Periods, s.Skips, got, want)
		}
		hops += all.Hops
		skipped += s.Skipped
		if s.Skips > 0 {
			labs++
		}
	}
	t.Logf("%d of %d labs have periods: %.0f %% of %d hops", labs, seeds, 100*float64(skipped)/float64(hops), hops)
	if labs < int(seeds)/4 {
		t.Errorf("periods were found in %d labs of %d: the test is of nothing", labs, seeds)
	}
}

// TestSkipLooks: where there is no long message, to look for one takes a small part of a run, however many queue pairs there are. A step of HPL on
// 16,384 hosts has 600,000 of them, and they were all looked at every 8,192 events.
func TestSkipLooks(t *testing.T) {
	g, err := topo.FatTree(4, topo.LinkParams{Rate: 100e9, Delay: vtime.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	c := benchConfig(g, 1, false)
	c.Skip = true
	n, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	const parts = 60
	err = n.Run(sim.Job{Name: "s", Hosts: hostsOf(g.Hosts, 1), Params: benchParams, Program: func(k *rank.Rank) error {
		everybody := make([]int, k.Size())
		for i := range everybody {
			everybody[i] = i
		}
		for part := range parts { // connections belong to a part
			sub, err := k.Sub(fmt.Sprint(part), everybody)
			if err != nil {
				return err
			}
			for peer := range k.Size() {
				if peer != k.ID() {
					if _, err := sub.Connect(peer); err != nil {
						return err
					}
				}
			}
		}
		return permProgram(100*benchParams.MTU, 200, func() {})(k)
	}})
	if err != nil {
		t.Fatal(err)
	}
	pairs := uint64(g.Hosts * (g.Hosts - 1) * parts)
	if s, looked := n.Stats(), n.LookedForPeriods(); s.Skips > 0 || looked == 0 || looked > pairs+s.Events/16 {
		t.Errorf("%d looks for a long message in %d events, with %d queue pairs; %d periods", looked, s.Events, pairs, s.Periods)
	} else {
		t.Logf("%d looks in %d events, with %d queue pairs", looked, s.Events, pairs)
	}
}
