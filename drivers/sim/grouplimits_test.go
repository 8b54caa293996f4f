package sim

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// TestNoRoomForGroup (FLT-16): a switch has no room for another group, or a group would leave it by more
// ports than it can feed (CEP-49). Registration fails for all members with the reason,
// what other switches had installed is taken back, and groups that fit go on to work.
func TestNoRoomForGroup(t *testing.T) {
	for _, c := range []struct {
		name           string
		groups, fanOut int
		first          bool // a group that takes the room
		why            string
	}{
		{"memory", 1, 0, true, "no room"},
		{"fan-out", 0, 2, false, "fan-out limit exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := topo.FatTree(4, simlab.Link())
			if err != nil {
				t.Fatal(err)
			}
			n, err := New(Config{Check: true, Spec: fabric.Spec{Graph: g, Seed: 1, NIC: virtrnic.Settings{AckEvery: 4}, Switch: fabric.Switch{
				Settings: virtswitch.Settings{Buffer: 16 << 20, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed(), Groups: c.groups, FanOut: c.fanOut},
			}}})
			if err != nil {
				t.Fatal(err)
			}
			failed := 0
			small := []int{0, 1, 4} // one leaf, and a host of another pod
			run := func(hosts []int, name string, wantErr bool) *rank.Group {
				var led *rank.Group
				err := n.Run(Job{Name: name, Hosts: hosts, Params: simlab.Params(), Keep: true, Program: func(r *rank.Rank) error {
					gr, err := r.NewGroup(name, 0)
					if !wantErr || err == nil {
						if err == nil && r.ID() == 0 {
							led = gr
						}
						return err
					}
					if !errors.Is(err, rank.ErrGroup) || !strings.Contains(err.Error(), c.why) {
						return fmt.Errorf("rank %d: %w", r.ID(), err)
					}
					failed++
					return nil
				}})
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				return led
			}
			all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
			if c.first {
				run(small, "first", false)
			}
			before := installed(n)
			if run(all, "large", true) != nil || failed != len(all) {
				t.Errorf("%d of %d members were told", failed, len(all))
			}
			if after := installed(n); after != before {
				t.Errorf("before the registration that failed switches had\n%s\nafter it\n%s", before, after)
			}
			if !c.first {
				run(small, "small", false)
				if now := installed(n); now == before {
					t.Error("no group fits any more")
				}
			}
		})
	}
}

// installed lists every switch's groups and port loads.
func installed(n *Net) string {
	var b strings.Builder
	for i := range n.nodes {
		sw := n.nodes[i].sw
		if sw == nil {
			continue
		}
		fmt.Fprintf(&b, "%s:", n.graph.Nodes[i].Name)
		for _, g := range sw.Groups() {
			fmt.Fprintf(&b, " %v/%d", wire.AddrOf(g.McstID), len(g.Paths))
		}
		for p := range n.graph.Nodes[i].Links {
			fmt.Fprintf(&b, " %d", sw.PortLoad(p))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestLookAsideBroadcast: groups work through an accelerator and a feedback processor,
// under loss, with every invariant checked, and as the polling driver has it.
func TestLookAsideBroadcast(t *testing.T) {
	from, count := simlab.Seeds(t, 30)
	for seed := from; seed < from+count; seed++ {
		v := drawVariant(t, seed)
		var err error
		if v.graph, err = topo.Star(4, simlab.Link()); err != nil {
			t.Fatal(err)
		}
		v.cfg.Graph, v.cfg.Check = v.graph, seed%2 == 0
		v.cfg.Switch.LookAside = virtswitch.LookAsideConfig{Links: 4, Rate: 100e9, Delay: 300 * vtime.Nanosecond}
		if seed%3 > 0 {
			v.cfg.Switch.FeedbackDelay = vtime.Duration(seed%3*200) * vtime.Nanosecond
		}
		fast, _, out := runVariant(t, v, false)
		slow, _, want := runVariant(t, v, true)
		if fast != slow || out != want || strings.Contains(out, "invariant") {
			t.Errorf("seed %d: loop %016x %s, polling %016x %s", seed, fast, out, slow, want)
		}
	}
}

// TestMulticastDatagrams: a plain IP multicast group delivers to its members, and to
// nobody else, whoever sends.
func TestMulticastDatagrams(t *testing.T) {
	const ip = 224<<24 | 9
	g, err := topo.FatTree(4, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	n := newLab(t, labConfig(g))
	members, senders := []int{1, 2, 7, 12, 13}, []int{4}
	if err := n.SetMulticast(ip, members, senders); err != nil {
		t.Fatal(err)
	}
	heard := map[string]int{}
	for h := range g.Hosts {
		at := g.Peer(h, 0)
		n.SetFault(n.PortID(at.Node, at.Port), hearer{heard, g.Nodes[h].Name, ip})
	}
	for _, h := range []int{1, 12, 4} {
		e := wire.NewEnvelope(wire.Flow{Src: g.Nodes[h].IP, Dst: ip, TTL: 64, SrcPort: 1, DstPort: wire.PortRoCEv2})
		f := n.pool.Get()
		f.Start(&e, wire.BTH{OpCode: wire.OpSendOnly, PKey: wire.PKeyDefault, DestQP: 0xffffff})
		f.Seal(0, false)
		n.NIC(h).SendFrame(n.now, f)
		n.settled()
		if err := n.Drain(); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(heard); got != "map[h1:2 h12:2 h13:3 h2:3 h7:3]" {
		t.Errorf("heard %s", got)
	}
	if err := n.Leftover(); err != nil {
		t.Error(err)
	}
	if n.SetMulticast(ip, []int{99}, nil) == nil {
		t.Error("a node that is no host can join")
	}
}

// hearer counts the packets of a multicast group on a host's link.
type hearer struct {
	heard map[string]int
	host  string
	ip    uint32
}

// Arrive implements faults.Link.
func (h hearer) Arrive(_ vtime.Time, f *wire.Frame) faults.Verdict {
	if f.DstIP() == h.ip {
		h.heard[h.host]++
	}
	return faults.Verdict{}
}
