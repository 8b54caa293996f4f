// SPDX-License-Identifier: Apache-2.0

package sim

// Groups of programs: hosts report the groups that they join, switches read the reports, and datagrams
// follow.

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/igmp"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// joiner is a host with one queue pair, as a program has it.
type joiner struct {
	nic   *virtrnic.NIC
	pd    *virtrnic.PD
	cq    *virtrnic.CQ
	qp    *virtrnic.QP
	mr    *virtrnic.MR
	joins *igmp.Host
	in    map[uint32]bool
}

type joinLab struct {
	*testing.T
	*Net
	hosts []*joiner
	sent  uint32
}

func newJoinLab(t *testing.T, g *topo.Graph, change func(*fabric.Spec)) *joinLab {
	t.Helper()
	c := Config{Check: true, Spec: fabric.Spec{Graph: g, Seed: 1, Joins: true, Switch: fabric.Switch{
		Settings: virtswitch.Settings{Buffer: 16 << 20, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
	}}}
	if change != nil {
		change(&c.Spec)
	}
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	l := &joinLab{T: t, Net: n}
	for i := range g.Hosts {
		h := &joiner{nic: n.NIC(i), in: map[uint32]bool{}}
		h.joins = igmp.New(igmp.Config{Reporter: h.nic.Reporter(), Pool: n.pool, Sender: h.nic, Next: h.nic.Stack()})
		h.nic.SetStack(h.joins)
		h.pd = h.nic.AllocPD()
		if h.cq, err = h.nic.CreateCQ(4096); err != nil {
			t.Fatal(err)
		}
		if h.qp, err = h.nic.CreateQP(virtrnic.QPInit{
			Type: virtrnic.TypeUD, PD: h.pd, SendCQ: h.cq, RecvCQ: h.cq, MaxSendWR: 64, MaxRecvWR: 4096, Loopback: virtrnic.LoopbackAll,
		}); err != nil {
			t.Fatal(err)
		}
		if h.mr, err = h.nic.RegMR(h.pd, virtrnic.Phantom(4096), virtrnic.AccessLocalWrite); err != nil {
			t.Fatal(err)
		}
		if err := bringUp(h.nic, h.qp, virtrnic.TypeUD, virtrnic.QPAttr{Port: 1, PathMTU: 1024, QKey: 5}); err != nil {
			t.Fatal(err)
		}
		for range 2000 {
			if err := h.nic.PostRecv(0, h.qp, virtrnic.RecvWR{SGE: virtrnic.SGE{Addr: h.mr.Addr(), Length: 4096, LKey: h.mr.LKey()}}); err != nil {
				t.Fatal(err)
			}
		}
		l.hosts = append(l.hosts, h)
	}
	return l
}

// to advances lab time.
func (l *joinLab) to(at vtime.Time) {
	l.Helper()
	if err := l.Advance(at); err != nil {
		l.Fatal(err)
	}
}

// set has a host join or leave a group at an instant.
func (l *joinLab) set(at vtime.Time, host int, group uint32, in bool) {
	l.At(at, func(now vtime.Time) {
		h := l.hosts[host]
		if h.in[group] == in {
			return
		}
		h.in[group] = in
		if in {
			if err := h.nic.AttachMcast(h.qp, group); err != nil {
				l.Fatal(err)
			}
			h.joins.Join(now, group)
			return
		}
		if err := h.nic.DetachMcast(h.qp, group); err != nil {
			l.Fatal(err)
		}
		h.joins.Leave(now, group)
	})
}

// send has a host send a datagram of its own number.
func (l *joinLab) send(at vtime.Time, host int, group uint32) (number uint32) {
	l.sent++
	number = l.sent
	l.At(at, func(now vtime.Time) {
		h := l.hosts[host]
		ah, err := h.nic.CreateAH(h.pd, virtrnic.AH{DGID: group})
		if err == nil {
			err = h.nic.PostSend(now, h.qp, virtrnic.SendWR{
				Opcode: virtrnic.WRSendWithImm, Imm: number, SGE: virtrnic.SGE{Addr: h.mr.Addr(), Length: 100, LKey: h.mr.LKey()},
				UD: virtrnic.UDDest{AH: ah, QPN: wire.QPNMulticast, QKey: 5},
			})
		}
		if err != nil {
			l.Fatal(err)
		}
	})
	return number
}

// received returns the number of copies of each datagram that a host has received.
func (h *joiner) received() map[uint32]int {
	all := map[uint32]int{}
	for w, ok := h.nic.PollCQ(h.cq); ok; w, ok = h.nic.PollCQ(h.cq) {
		if w.Opcode == virtrnic.WCRecv {
			all[w.Imm]++
		}
	}
	return all
}

// check sends from every host to every group, and compares who gets it with who has joined.
func (l *joinLab) check(at vtime.Time, groups []uint32, what string) {
	l.Helper()
	l.to(at)
	var strays uint64
	for _, h := range l.hosts {
		h.received()
		strays += h.nic.Stats().Drops[virtrnic.DropNoGroup]
	}
	type sent struct {
		from  int
		group uint32
	}
	by := map[uint32]sent{}
	for i := range l.hosts {
		for _, g := range groups {
			by[l.send(at, i, g)] = sent{i, g}
		}
	}
	l.to(at.Add(5 * vtime.Millisecond))
	for i, h := range l.hosts {
		got := h.received()
		for number, s := range by {
			want := 0
			if h.in[s.group] {
				want = 1
			}
			if got[number] != want {
				l.Errorf("%s: host %d got datagram %d of host %d to %v %d times, want %d", what, i, number, s.from, wire.AddrOf(s.group), got[number], want)
			}
		}
		strays -= h.nic.Stats().Drops[virtrnic.DropNoGroup]
	}
	if strays != 0 {
		l.Errorf("%s: %d datagrams went to hosts without members", what, -int64(strays))
	}
}

func joinGraph(t testing.TB, name string, ipv6 bool) *topo.Graph {
	t.Helper()
	var g *topo.Graph
	var err error
	p := simlab.Link()
	switch name {
	case "two hosts":
		g, err = topo.Star(2, p)
	case "star":
		g, err = topo.Star(6, p)
	case "k=4":
		g, err = topo.FatTree(4, p)
	default:
		g, err = topo.MPortNTree(4, 3, p)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.IPv6 = ipv6
	return g
}

var joinGraphs = []string{"two hosts", "star", "k=4", "4-port 3-tree"}

// TestJoins: with random joins and leaves, each member gets each datagram once and no other host any, from any sender. No table
// has a group that was left.
func TestJoins(t *testing.T) {
	for k, name := range joinGraphs {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(6) {
				r := prng.New(seed + uint64(k)<<8)
				var vlan uint16
				if seed&2 != 0 {
					vlan = 77
				}
				l := newJoinLab(t, joinGraph(t, name, seed&1 != 0), func(s *fabric.Spec) { s.VLAN, s.QueriesRest = vlan, seed&4 != 0 })
				groups := []uint32{0xe0000001, 0xef00ffff, 0xe4000000 + uint32(r.Uint64()&0xffff), 0xe4800000}
				at := vtime.Time(0)
				for round := range 4 {
					for range 3 * len(l.hosts) {
						at = at.Add(vtime.Duration(r.Uint64() % uint64(3*vtime.Microsecond)))
						l.set(at, int(r.Uint64()%uint64(len(l.hosts))), groups[r.Uint64()%4], r.Uint64()&1 != 0)
					}
					at = at.Add(100 * vtime.Microsecond)
					l.check(at, groups, fmt.Sprintf("seed %d, round %d", seed, round))
					at = at.Add(10 * vtime.Millisecond)
				}
				for i := range l.hosts {
					for _, g := range groups {
						l.set(at, i, g, false)
					}
				}
				l.check(at.Add(vtime.Millisecond), groups, "after all have left")
				for i := range l.Graph().Nodes {
					if sw := l.Switch(i); sw != nil && len(sw.Memberships()) > 0 {
						t.Errorf("seed %d: switch %d still has %v", seed, i, sw.Memberships())
					}
				}
			}
		})
	}
}

// loseReports drops a share of all reports and queries.
type loseReports struct {
	r     prng.Stream
	share uint64 // of 100
}

func (x *loseReports) Arrive(_ vtime.Time, f *wire.Frame) faults.Verdict {
	return faults.Verdict{Drop: f.IsMembership() && x.r.Uint64()%100 < x.share}
}

// TestJoinsLost: when reports and queries get lost, queries bring tables to the state of the hosts: members that are
// missing, and stale ones.
func TestJoinsLost(t *testing.T) {
	for _, name := range []string{"two hosts", "star", "k=4"} {
		for seed := range uint64(4) {
			r := prng.New(seed)
			l := newJoinLab(t, joinGraph(t, name, seed&1 != 0), nil)
			groups := []uint32{0xe1000001, 0xe4000007}
			for p := range l.Ports() {
				l.SetFault(p, &loseReports{r.Derive(fmt.Sprint(p)), 60})
			}
			at := vtime.Time(0)
			for range 4 * len(l.hosts) {
				at = at.Add(vtime.Microsecond)
				l.set(at, int(r.Uint64()%uint64(len(l.hosts))), groups[r.Uint64()%2], r.Uint64()&1 != 0)
			}
			for i := range l.hosts { // makes every switch a querier
				l.send(at.Add(vtime.Second), i, groups[0])
			}
			l.to(at.Add(300 * vtime.Second))
			for p := range l.Ports() {
				l.SetFault(p, nil)
			}
			l.check(at.Add(900*vtime.Second), groups, fmt.Sprintf("%s, seed %d", name, seed))
		}
	}
}

// TestJoinsExpire: a host that crashes without a word is out of all tables after two unanswered queries, and no other
// host is.
func TestJoinsExpire(t *testing.T) {
	l := newJoinLab(t, joinGraph(t, "k=4", false), nil)
	const g = 0xe1000001
	for _, h := range []int{0, 1, 2, 9} {
		l.set(1, h, g, true)
	}
	l.to(vtime.Time(vtime.Second))
	l.hosts[9].joins.Restart()
	l.hosts[9].in[g] = false
	if err := l.hosts[9].nic.DetachMcast(l.hosts[9].qp, g); err != nil {
		t.Fatal(err)
	}
	holds := func() (n int) {
		for i := range l.Graph().Nodes {
			if sw := l.Switch(i); sw != nil {
				n += sw.Holding().Members
			}
		}
		return n
	}
	before := holds()
	l.to(vtime.Time(144 * vtime.Second))
	if holds() != before {
		t.Errorf("%d entries at 144 s, %d before", holds(), before)
	}
	l.check(vtime.Time(300*vtime.Second), []uint32{g}, "after the crash")
	if holds() >= before {
		t.Errorf("%d entries are left of %d", holds(), before)
	}
}

// TestJoinsRest: in virtual time no query is sent while a lab is idle, for any time, and lab time does not advance for it. A member stays
// a member over random idle times; a member that has died without a report is out of all tables after datagrams at four instants, 10 s
// apart: the end of the round of queries before, the first query, the second, and the end.
func TestJoinsRest(t *testing.T) {
	for k, name := range []string{"star", "k=4"} {
		for seed := range uint64(3) {
			r := prng.New(seed + uint64(k)<<8)
			l := newJoinLab(t, joinGraph(t, name, seed&1 != 0), func(s *fabric.Spec) { s.QueriesRest = true })
			const g = 0xe1000001
			at := vtime.Time(1)
			alive := l.hosts[1:]
			for h := range l.hosts {
				l.set(at, h, g, h > 0)
			}
			for len(alive) > 1 {
				l.to(at.Add(vtime.Second))
				if err := l.Drain(); err != nil || l.Now() > at.Add(vtime.Second) {
					t.Fatalf("%s, seed %d: an idle lab has come to %v, %v", name, seed, l.Now(), err)
				}
				dead := int(r.Uint64() % uint64(len(alive)))
				h := alive[dead]
				h.joins.Restart()
				h.in[g] = false
				if err := h.nic.DetachMcast(h.qp, g); err != nil {
					t.Fatal(err)
				}
				alive = slices.Delete(slices.Clone(alive), dead, dead+1)
				for range 4 {
					at = at.Add(130*vtime.Second + vtime.Duration(r.Uint64()%uint64(1000*vtime.Second)))
					l.hear(at, g, fmt.Sprintf("%s, seed %d, %d members", name, seed, len(alive)))
				}
				l.check(at.Add(vtime.Second), []uint32{g}, fmt.Sprintf("%s, seed %d, %d members", name, seed, len(alive)))
				at = at.Add(10 * vtime.Second)
			}
		}
	}
}

// hear has every host send to a group, and looks whether each member gets each datagram once.
func (l *joinLab) hear(at vtime.Time, group uint32, what string) {
	l.Helper()
	l.to(at)
	var sent []uint32
	for i := range l.hosts {
		sent = append(sent, l.send(at, i, group))
	}
	l.to(at.Add(5 * vtime.Millisecond))
	for i, h := range l.hosts {
		got := h.received()
		for _, n := range sent {
			if h.in[group] && got[n] != 1 || !h.in[group] && got[n] != 0 {
				l.Errorf("%s: host %d got datagram %d %d times", what, i, n, got[n])
			}
		}
	}
}

// TestJoinsReroute: groups follow the routes when a link fails and when it is back, a switch that has restarted learns
// its groups again, and one that takes the place of another has them.
func TestJoinsReroute(t *testing.T) {
	l := newJoinLab(t, joinGraph(t, "k=4", false), nil)
	g := l.Graph()
	for i := range g.Nodes {
		if sw := l.Switch(i); sw != nil {
			sw.Resume(0, sw.Snooped())
		}
	}
	groups := []uint32{0xe1000001, 0xe1000002, 0xe1000003, 0xe1000004, 0xe1000005}
	for h := range l.hosts {
		for _, group := range groups {
			l.set(1, h, group, h%3 != 0)
		}
	}
	l.check(vtime.Time(vtime.Second), groups, "before")
	at := vtime.Time(2 * vtime.Second)
	for link, x := range g.Links {
		if g.Nodes[x.A.Node].Kind != topo.Switch || g.Nodes[x.B.Node].Kind != topo.Switch || link%5 != 0 {
			continue
		}
		for _, down := range [][]int{{link}, nil} {
			l.At(at, func(now vtime.Time) {
				for _, e := range []topo.End{x.A, x.B} {
					target{l.Net}.SetCarrier(now, e, len(down) == 0)
				}
				target{l.Net}.SetRoutes(now, down)
			})
			l.check(at.Add(vtime.Second), groups, fmt.Sprintf("links %v down", down))
			at = at.Add(2 * vtime.Second)
		}
	}
	for i := range g.Nodes {
		if sw := l.Switch(i); sw != nil {
			l.At(at, func(now vtime.Time) { sw.Restart(now) })
			at = at.Add(vtime.Second)
		}
	}
	l.check(at, groups, "after restarts")
	at = at.Add(vtime.Second)
	for i := range g.Nodes {
		if sw := l.Switch(i); sw != nil {
			l.At(at, func(now vtime.Time) {
				x := sw.Snooped()
				sw.Restart(now)
				sw.Resume(now, x)
			})
		}
	}
	l.check(at, groups, "at once after others have taken their places")
	l.check(at.Add(30*vtime.Second), groups, "after the queries of these")
}

// TestJoinsQuiet: a lab without joins has the digest and the events of one without trees.
func TestJoinsQuiet(t *testing.T) {
	var digests []uint64
	var events []uint64
	for _, joins := range []bool{false, true} {
		l := newJoinLab(t, joinGraph(t, "k=4", false), func(s *fabric.Spec) { s.Joins = joins })
		if err := l.SetMulticast(wire.MulticastNet|5, []int{1, 5, 9}, []int{0}); err != nil {
			t.Fatal(err)
		}
		for i := range l.hosts {
			l.send(vtime.Time(i), i%2*5, wire.MulticastNet|5)
		}
		if err := l.Drain(); err != nil {
			t.Fatal(err)
		}
		digests, events = append(digests, l.Digest()), append(events, l.Stats().Events)
	}
	if digests[0] != digests[1] || events[0] != events[1] {
		t.Errorf("digests %x, events %v", digests, events)
	}
}

// TestUplinks: the uplinks of every tree lead every switch with hosts to the root, in a tree that only climbs where there are
// tiers.
func TestUplinks(t *testing.T) {
	for _, name := range joinGraphs {
		g := joinGraph(t, name, false)
		for link := -1; link < len(g.Links); link++ {
			var failed []int
			if link >= 0 {
				failed = []int{link}
			}
			up := make([][]int, len(g.Nodes))
			for n := g.Hosts; n < len(g.Nodes); n++ {
				up[n] = g.Uplinks(n, failed...)
			}
			for tree := range up[g.Hosts] {
				var roots []int
				lost := 0
				for h := range g.Hosts {
					n, steps := g.Peer(h, 0).Node, 0
					for up[n][tree] >= 0 && steps < 10 {
						p := up[n][tree]
						if slices.Contains(failed, g.Nodes[n].Links[p]) {
							t.Fatalf("%s: tree %d uses link %d, which has failed", name, tree, link)
						}
						n, steps = g.Peer(n, p).Node, steps+1
					}
					if up[n][tree] != topo.UplinkRoot {
						lost++
					} else if !slices.Contains(roots, n) {
						roots = append(roots, n)
					}
				}
				if len(roots) != 1 || lost > 0 && name != "4-port 3-tree" && name != "k=4" {
					t.Errorf("%s without link %d: tree %d has roots %v, and %d hosts do not reach one", name, link, tree, roots, lost)
				}
			}
		}
	}
}
