// SPDX-License-Identifier: Apache-2.0

package virtswitch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// framings counts frames by kind, address family and tag, and holds each against its bytes.
type framings struct {
	t    *testing.T
	pool wire.Pool
	seen map[string]int
}

// Arrive implements faults.Link.
func (s *framings) Arrive(now vtime.Time, f *wire.Frame) faults.Verdict {
	what := map[wire.Kind]string{wire.KindRoCE: "RoCE", wire.KindPFC: "PFC", wire.KindMRP: "MRP", wire.KindOther: "other"}[f.Kind()]
	switch {
	case f.Kind() == wire.KindRoCE && f.OpCode() == wire.OpCNP:
		what = "CNP"
	case f.Kind() == wire.KindRoCE && f.OpCode().Is(wire.OpResponse):
		what = "response"
	case f.Kind() == wire.KindRoCE && f.OpCode().Info().RETH:
		what = "WRITE"
	}
	if f.IPv6() {
		what += " IPv6"
	}
	if v := f.Tag(); v != nil {
		what += fmt.Sprintf(" vlan %d class %d", v.ID, v.PCP)
	}
	s.seen[what]++
	b := f.AppendTo(nil)
	g, err := s.pool.Parse(b)
	if err != nil || g.String() != f.String() || g.Kind() == wire.KindRoCE && !g.CheckICRC() {
		s.t.Errorf("at %v: %v does not come back from its bytes: %v\n%x", now, f, err, b)
	}
	if err == nil {
		s.pool.Put(g)
	}
	return faults.Verdict{}
}

// frame runs a fat-tree of one family and VLAN: all hosts to all hosts, a broadcast, WRITEs
// to a group in the three modes, with a pause, with marking that makes CNPs and with frames
// that get lost.
func frame(t *testing.T, v6 bool, vlan uint16) map[string]int {
	t.Helper()
	classes := virtswitch.DefaultClasses()
	classes.DSCP[26] = 5
	g, err := topo.FatTree(4, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	g.IPv6 = v6
	set, err := virtrnic.DCQCNByName("dcqcn")
	if err != nil {
		t.Fatal(err)
	}
	n, err := sim.New(sim.Config{Check: true, RetryAfter: 200 * vtime.Microsecond, RetriesMax: 20, Spec: fabric.Spec{
		Graph: g, Seed: 1, NIC: virtrnic.Settings{AckEvery: 4, Congestion: set}, VLAN: vlan,
		Switch: fabric.Switch{
			Marking: fabric.Marking{Kmin: 10000, Kmax: 40000, Rate: simlab.Link().Rate},
			Settings: virtswitch.Settings{Buffer: 4 << 20, PFC: virtswitch.PFCConfig{XOFF: 20000, Lossless: 1 << 5},
				Rules: virtswitch.RulesFixed(), Classes: classes, ECN: virtswitch.ECNConfig{Classes: 1 << 5, Pmax: 0.2}},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	seen := &framings{t: t, pool: wire.Pool{Poison: true}, seen: map[string]int{}}
	for id := range n.Ports() {
		n.SetFault(id, faults.Chain{seen, &faults.Impairment{Loss: 1e-3, Random: simlab.Random(1, fmt.Sprintf("fault/%d", id))}})
	}
	for _, s := range simlab.PauseSteps(0, vtime.Time(200*vtime.Microsecond), 100*vtime.Microsecond) {
		n.At(s.At, func(vtime.Time) { n.Pause(9, 1<<5, s.Quanta) })
	}
	var hosts []int
	for h := range g.Hosts {
		hosts = append(hosts, h)
	}
	s := &scene{mtu: 1024}
	for _, job := range []struct {
		name    string
		program func(r *rank.Rank) error
	}{
		{"cross", func(r *rank.Rank) error { return simlab.Cross(r, 200_000) }},
		{"group", func(r *rank.Rank) error {
			gr, err := r.NewGroup("g", 0)
			if err != nil {
				return err
			}
			return simlab.Broadcast(r, gr, 1, s.mtu, simlab.Message{From: 0, Packets: 200})
		}},
		{"per-request", s.alternate(rank.MRPerRequest, 6, 5)},
		{"registered", s.alternate(rank.MRRegistered, 6, 5)},
		{"shared", s.alternate(rank.MRShared, 6, 5)},
	} {
		params := simlab.Params()
		params.TrafficClass = 26<<2 | wire.ECNECT0
		params.MTU = s.mtu
		if err := n.Run(sim.Job{Name: job.name, Hosts: hosts, Params: params, Program: job.program}); err != nil {
			t.Errorf("%s: %v", job.name, err)
		}
	}
	for i := g.Hosts; i < len(g.Nodes); i++ {
		if d := n.Switch(i).Stats().Drops[virtswitch.DropHeadroom]; d != 0 {
			t.Errorf("%s dropped %d frames of a lossless class", g.Nodes[i].Name, d)
		}
	}
	if seen.pool.Live != 0 || seen.pool.LiveBlocks != 0 {
		t.Errorf("%d frames and %d blocks not returned", seen.pool.Live, seen.pool.LiveBlocks)
	}
	return seen.seen
}

// TestFraming: in a fabric of either family, with and without a VLAN, every packet is of that family
// and tagged with its priority as the code point, packets made by switches included; PFC works in the
// class that the DSCP is mapped to, and pause frames stay as they are.
func TestFraming(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, vlan := range []uint16{0, 7} {
			var want []string
			for what, class := range map[string]int{"RoCE": 5, "WRITE": 5, "response": 5, "CNP": 6, "MRP": 6} { // sorted below
				if v6 {
					what += " IPv6"
				}
				if vlan != 0 {
					what += fmt.Sprintf(" vlan %d class %d", vlan, class)
				}
				want = append(want, what)
			}
			want = append(want, "PFC")
			seen := frame(t, v6, vlan)
			var got []string
			for what := range seen { // sorted below
				got = append(got, what)
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("IPv6 %v, vlan %d: seen %s; want %s", v6, vlan, strings.Join(got, ", "), strings.Join(want, ", "))
			}
		}
	}
}
