// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// forger makes feedback of a group say that packets have come that have not: from the
// n-th on, as a switch would that merges wrongly.
type forger struct {
	net  *Net
	nak  bool
	left int
}

// Arrive implements faults.Link.
func (g *forger) Arrive(_ vtime.Time, f *wire.Frame) faults.Verdict {
	if !simlab.IsAck(f) || !g.net.graph.Groups.Has(f.DstIP()) && !g.net.graph.Groups.Has(f.SrcIP()) {
		return faults.Verdict{}
	}
	if g.left--; g.left > 0 {
		return faults.Verdict{}
	}
	h, psn := wire.AETH{Syndrome: wire.SyndromeACK}, f.PSN().Add(500)
	if g.nak {
		h.Syndrome = wire.SyndromePSNSequence
	}
	e := wire.NewEnvelope(wire.Flow{Src: f.SrcIP(), Dst: f.DstIP(), Traffic: f.Traffic(), TTL: f.TTL(), SrcPort: 0xc000, DstPort: wire.PortRoCEv2})
	q := f.DestQP()
	g.net.pool.Strip(f)
	f.Start(&e, wire.BTH{OpCode: wire.OpAcknowledge, PKey: wire.PKeyDefault, DestQP: q, PSN: psn})
	f.AddAETH(h)
	f.Seal(0, false)
	return faults.Verdict{}
}

// sabotage breaks something in a running lab that the cores do not break by themselves.
type sabotage struct {
	invariant string // text that the checker's error must contain
	tight     bool
	do        func(t *testing.T, n *Net, r *rand.Rand)
}

// someInstant draws an instant in the middle of a broadcast of sabotaged.
func someInstant(r *rand.Rand) vtime.Time {
	return vtime.Time(60+r.IntN(60)) * vtime.Time(vtime.Microsecond)
}

var sabotages = []sabotage{
	{invariant: "claims more than queue pair", do: func(_ *testing.T, n *Net, r *rand.Rand) {
		n.SetFault(r.IntN(n.Ports()), &forger{net: n, left: 1 + r.IntN(4)})
	}},
	{invariant: "claims more than queue pair", do: func(_ *testing.T, n *Net, r *rand.Rand) {
		n.SetFault(r.IntN(n.Ports()), &forger{net: n, left: 1 + r.IntN(4), nak: true})
	}},
	{invariant: "a member behind it expects", do: func(_ *testing.T, n *Net, r *rand.Rand) {
		// A member forgets the packets that it has received.
		n.At(someInstant(r), func(now vtime.Time) {
			nic := n.NIC(1 + r.IntN(n.graph.Hosts-1))
			nic.QPs(func(q *virtrnic.QP) {
				if n.graph.Groups.Has(q.Remote()) {
					_ = nic.SyncPSN(now, q, virtrnic.RecvFromSend)
				}
			})
		})
	}},
	{invariant: "", do: func(_ *testing.T, n *Net, r *rand.Rand) {
		// A member is stalled for good: its data, and the packets that wait for it, do not move.
		n.At(someInstant(r), func(now vtime.Time) { n.NIC(1+r.IntN(n.graph.Hosts-1)).Stall(now, true) })
	}},
	{invariant: "", do: func(_ *testing.T, n *Net, r *rand.Rand) {
		// A member or a switch forgets its groups: feedback that was under way covers no member any
		// more, and no invariant is broken.
		at := someInstant(r)
		n.At(at, func(now vtime.Time) {
			nic := n.NIC(1 + r.IntN(n.graph.Hosts-1))
			nic.QPs(func(q *virtrnic.QP) {
				if n.graph.Groups.Has(q.Remote()) {
					_ = nic.ModifyQP(now, q, virtrnic.QPAttr{State: virtrnic.StateReset}, virtrnic.AttrState)
				}
			})
		})
		n.At(at.Add(20*vtime.Microsecond), func(vtime.Time) {
			for i := range n.nodes {
				if sw := n.nodes[i].sw; sw != nil && r.IntN(2) == 0 {
					sw.WipeGroups()
				}
			}
		})
	}},
	{invariant: "pause frames are on links, and 0 are counted", do: func(_ *testing.T, n *Net, r *rand.Rand) {
		// A frame turns into a pause while it is on a link.
		at, done := someInstant(r), false
		for k := range 1000 {
			n.At(at.Add(vtime.Duration(k)*100*vtime.Nanosecond), func(vtime.Time) {
				for i := range n.links.Len() {
					if l := n.links.At(i); !done && l.InFlight() > 0 {
						l.Flying(0).Frame.BuildPFC(wire.PFC{})
						n.check.conserved()
						done = true
					}
				}
			})
		}
	}},
	{invariant: "is not active there or has none back", do: func(_ *testing.T, n *Net, _ *rand.Rand) {
		// A switch forgets a group between its activation and the last confirmation of it.
		n.SetFault(n.PortID(n.graph.Peer(0, 0).Node, n.graph.Peer(0, 0).Port), simlab.Observer(func(_ vtime.Time, f *wire.Frame) {
			if !simlab.IsMRP(f) {
				return
			}
			if p, err := wire.ParseMRP(f.Payload().Bytes()); err == nil && p.Flags == wire.MRPConfirm|wire.MRPActivate {
				n.nodes[n.graph.Peer(0, 0).Node].sw.WipeGroups()
			}
		}))
	}},
	{invariant: "frames are handed out", do: func(_ *testing.T, n *Net, r *rand.Rand) {
		n.At(someInstant(r), func(vtime.Time) { n.pool.Get() })
	}},
	{invariant: "payloads were neither delivered nor dropped", do: func(_ *testing.T, n *Net, r *rand.Rand) {
		n.At(someInstant(r), func(vtime.Time) { n.pool.Block() })
	}},
	{invariant: "although headroom is computed", tight: true, do: func(_ *testing.T, n *Net, _ *rand.Rand) {
		// The link from a host is ten times as long as headroom was computed for.
		for h := range n.graph.Hosts {
			n.Link(n.PortID(h, 0)).Delay = 40 * vtime.Microsecond
		}
	}},
	{invariant: "", tight: true, do: func(_ *testing.T, n *Net, r *rand.Rand) {
		// A fault makes the links from hosts as much longer, or doubles the frames on them.
		for h := range n.graph.Hosts {
			f := &faults.Impairment{Hold: 40 * vtime.Microsecond}
			if r.IntN(3) == 0 {
				f = &faults.Impairment{Duplicate: 1, Delay: vtime.Nanosecond}
			}
			n.SetFault(n.PortID(h, 0), f)
		}
	}},
	{invariant: "still has 1 work requests", do: func(t *testing.T, n *Net, r *rand.Rand) {
		// A request without a timeout, to a queue pair that does not exist.
		nic := n.NIC(r.IntN(n.graph.Hosts))
		pd := nic.AllocPD()
		cq, err := nic.CreateCQ(8)
		if err != nil {
			t.Fatal(err)
		}
		q, err := nic.CreateQP(virtrnic.QPInit{PD: pd, SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1})
		if err != nil {
			t.Fatal(err)
		}
		a := virtrnic.QPAttr{Port: 1, PathMTU: 1024, AV: virtrnic.AH{DGID: n.graph.Nodes[0].IP}, DestQPN: 4000}
		if err := bringUp(nic, q, virtrnic.TypeRC, a); err != nil {
			t.Fatal(err)
		}
		n.At(someInstant(r), func(now vtime.Time) {
			if err := nic.PostSend(now, q, virtrnic.SendWR{Opcode: virtrnic.WRSend}); err != nil {
				t.Error(err)
			}
		})
	}},
}

// sabotaged runs two broadcasts, from two sources, in a lab that the sabotage is done to,
// and returns how it ended.
func (s sabotage) sabotaged(t *testing.T, seed uint64) error {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 14))
	g, err := topo.Star(4, simlab.Link())
	if r.IntN(2) == 0 {
		g, err = topo.FatTree(4, simlab.Link())
	}
	if err != nil {
		t.Fatal(err)
	}
	if seed%2 == 1 {
		g.Groups = wire.NewGroupRange(172<<24 | 16<<16)
	}
	c := labConfig(g)
	c.Seed, c.NIC.AckEvery = seed, 1+r.IntN(4)
	if s.tight {
		c.Switch.PFC.XOFF = 2000
	}
	n := newLab(t, c)
	s.do(t, n, r)
	if s.tight {
		return runAll(n, func(k *rank.Rank) error { return simlab.Cross(k, 1<<20) })
	}
	return runAll(n, simlab.Broadcasts(1024, simlab.Message{From: 0, Packets: 600}, simlab.Message{From: 1, Packets: 600}))
}

// panics returns the value of f's panic, or nil.
func panics(f func()) (what any) {
	defer func() { what = recover() }()
	f()
	return nil
}

// tooManyPorts is a star whose switch has a port more than a switch may have.
func tooManyPorts(t *testing.T) *topo.Graph {
	t.Helper()
	g, err := topo.Star(virtswitch.PortsMax, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	leaf := &g.Nodes[g.Hosts]
	leaf.Links = append(leaf.Links, leaf.Links[0]) // more than package topo would
	return g
}

// wantRefusals checks the loop's own refusals.
func wantRefusals(t *testing.T) {
	t.Helper()
	_, err := New(Config{Spec: fabric.Spec{Graph: tooManyPorts(t)}})
	if err == nil {
		t.Error("a switch with 255 ports is built")
	}
	n := newStar(t)
	full := &task{done: true}
	for range 1 << n.idBits {
		n.tasks = append(n.tasks, full)
	}
	if panics(func() { n.spawn(n.nodes[0].host, &job{}, 0, "one more", func() {}) }) == nil {
		t.Error("more tasks than numbers are spawned")
	}
	n.forgetTasks()
	n = newStar(t)
	if what := panics(func() { _ = runAll(n, func(*rank.Rank) error { panic("at the program") }) }); what != "at the program" {
		t.Errorf("a program's panic came out as %v", what)
	}

	n = newStar(t)
	far := vtime.Time(200 * vtime.Second) // further than a key can say
	called := vtime.Time(0)
	n.At(far, func(now vtime.Time) { called = now })
	err = runAll(n, func(r *rank.Rank) error {
		c, err := r.Connect((r.ID() + 1) % r.Size())
		if err != nil || r.ID() > 0 {
			return err
		}
		buf, err := r.Alloc(64, rank.MemoryBytes)
		if err != nil {
			return err
		}
		q, err := c.Recv(buf, 0, 64)
		if err != nil {
			return err
		}
		return r.Wait(q) // without a sender
	})
	if !errors.Is(err, rankhost.ErrDeadlock) || called != far {
		t.Errorf("a receive that nothing comes for ends with %v; the call at %v came at %v", err, far, called)
	}

	n = newStar(t)
	if err := runAll(n, simlab.Broadcasts(1024, simlab.Message{From: 0, Packets: 3})); err != nil {
		t.Fatal(err)
	}
	if err := n.Leftover(); err != nil {
		t.Error(err)
	}
	n.Switch(n.graph.Hosts).WipeGroups()
	if m := newChecker(n).members(wire.GroupNet|1, n.graph.Hosts, 1); m != nil {
		t.Errorf("a switch that has forgotten a group speaks for %d of its members", len(m))
	}

	n = newStar(t)
	n.lease = 1<<16 - 1
	err = runAll(n, func(r *rank.Rank) error {
		_, err := r.NewGroup("one more", 0)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "65535") {
		t.Errorf("all McstIDs are used, and another group ends with %v", err)
	}
}

// paced has a host that congestion control has slowed down pause its switch in the gaps:
// the pause starts before the packet that the loop was to wake the host for.
func paced(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 15))
	g, err := topo.Star(2, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	set, err := virtrnic.DCQCNByName("dcqcn-hpcc")
	if err != nil {
		t.Fatal(err)
	}
	n, err := New(Config{Check: true, Spec: fabric.Spec{Graph: g, Seed: seed, NIC: virtrnic.Settings{AckEvery: 8, Congestion: set}, Switch: fabric.Switch{
		Settings: virtswitch.Settings{Buffer: 16 << 20, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	n.SetFault(n.PortID(1, 0), &marker{n: 1})
	n.SetFault(n.PortID(2, 1), &marker{n: 1})
	for range 200 {
		at := vtime.Time(r.Int64N(int64(500 * vtime.Microsecond)))
		n.At(at, func(vtime.Time) { n.Pause(1, 1<<5, uint16(r.IntN(2))) })
	}
	err = n.Run(Job{Name: "paced", Hosts: []int{0, 1}, Params: simlab.Params(), Program: func(r *rank.Rank) error { return simlab.Cross(r, 1<<20) }})
	if err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
}

// TestGuardsFire: each invariant is seen to be broken when it is, in labs drawn by seed: a
// check that cannot fail checks nothing.
func TestGuardsFire(t *testing.T) {
	wantRefusals(t)
	wantPartsRefused(t)
	from, count := simlab.Seeds(t, 8)
	for seed := from; seed < from+count; seed++ {
		divided(t, seed)
		paced(t, seed)
		sleepers(t, seed)
		troubled(t, seed)
		if seed%4 == 0 {
			troubledParts(t, seed)
		}
		leftBehind(t, seed)
		gaveUp(t, seed)
		if t.Failed() {
			t.Fatalf("replay: go test ./drivers/sim -run GuardsFire -from %d -seeds 1", seed)
		}
	}
	for i, s := range sabotages {
		seen, odd := 0, 0 // the odd ones have McstIDs of another network
		for seed := from; seed < from+count; seed++ {
			err := s.sabotaged(t, seed)
			switch {
			case s.invariant == "":
				if err != nil && strings.Contains(err.Error(), "invariant") {
					t.Errorf("sabotage %d, seed %d: %v", i, seed, err)
				}
				seen++
			case err != nil && strings.Contains(err.Error(), s.invariant):
				seen++
				odd += int(seed % 2)
			case err != nil && strings.Contains(err.Error(), "invariant"):
				t.Logf("sabotage %d, seed %d: %v", i, seed, err)
			}
		}
		// A forger on a link that no feedback takes does no harm.
		if seen == 0 || odd == 0 && count >= 8 && s.invariant != "" || i > 2 && uint64(seen) < count {
			t.Errorf("sabotage %d: of %d labs %d were seen to break %q", i, count, seen, s.invariant)
		}
	}
}

// TestHeadroomOverruled: from the first watchdog on that forwards to a switch which has paused
// its port, and not before, the checker takes a loss for lack of headroom as none of PFC's.
func TestHeadroomOverruled(t *testing.T) {
	for _, forward := range []bool{false, true} {
		g, err := topo.LeafSpine(topo.LeafSpineSpec{Leaves: 2, Spines: 1, Hosts: 1}, simlab.Link())
		if err != nil {
			t.Fatal(err)
		}
		c := labConfig(g)
		c.Switch.Watchdog = virtswitch.WatchdogConfig{Detect: 20 * vtime.Microsecond, Restore: 20 * vtime.Microsecond, Forward: forward}
		n := newLab(t, c)
		begin := vtime.Time(20 * vtime.Microsecond)
		simlab.SendPauses(n, 1, simlab.PauseSteps(begin, begin.Add(100*vtime.Microsecond), 5*vtime.Microsecond))
		n.At(begin, func(vtime.Time) {
			if n.overruled() {
				t.Error("headroom is overruled before a watchdog has fired")
			}
		})
		err = runAll(n, func(k *rank.Rank) error { return simlab.Cross(k, 1<<20) })
		fired := uint64(0)
		for i := g.Hosts; i < len(g.Nodes); i++ {
			fired += n.Switch(i).Stats().PauseStorms
		}
		if fired == 0 || n.overruled() != forward || forward && err != nil {
			t.Errorf("%d watchdogs fired, forward: %v; headroom is overruled: %v; %v", fired, forward, n.overruled(), err)
		}
	}
}
