// SPDX-License-Identifier: Apache-2.0

package fallback_test

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// safe is a broadcast with fallback, message after message.
type safe struct {
	t      testing.TB
	graph  *topo.Graph
	mode   string
	sizes  []int // of the messages
	roots  []int // of them; nil: rank 0
	params rankhost.Params
	sw     fabric.Switch
	seed   uint64
	memory rank.MemoryKind
	pause  vtime.Duration     // between messages
	after  func(r *rank.Rank) // if set, called by rank 0 after the last, while the others wait

	net    *sim.Net
	faults *faults.Timeline
	events []safeEvent
	at     [][]vtime.Duration // by message and rank: when it was there, from when it began
	apart  [][]bool
	began  []vtime.Time // by message
	got    []int        // by rank: messages
	did    []collective.Safety
	err    error
}

type safeEvent struct {
	at vtime.Time
	machine.Event
}

// safeTracer keeps the events of one node that matter here.
type safeTracer struct{ s *safe }

// Trace implements machine.Tracer.
func (n safeTracer) Trace(now vtime.Time, e machine.Event) {
	if e.Kind >= machine.EventFallback {
		n.s.events = append(n.s.events, safeEvent{now, e})
	}
}

// newSafe returns a run on a graph whose messages are all of one size.
func newSafe(t testing.TB, g *topo.Graph, err error, count, size int) *safe {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	p := simlab.Params()
	p.RTT, p.LowClass = 8*vtime.Microsecond, 8<<2
	s := &safe{
		t: t, graph: g, mode: collective.FallbackFull, params: p, seed: 1, memory: rank.MemoryBytes,
		sw: fabric.Switch{
			Latency:  300 * vtime.Nanosecond,
			Settings: virtswitch.Settings{Buffer: 16 << 20, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
		},
	}
	for range count {
		s.sizes = append(s.sizes, size)
	}
	return s
}

// build makes the network, once all settings are made.
func (s *safe) build() *sim.Net {
	s.t.Helper()
	if s.net != nil {
		return s.net
	}
	n, err := sim.New(sim.Config{
		Check: true, Trace: func(int) machine.Tracer { return safeTracer{s} },
		Spec: fabric.Spec{Graph: s.graph, Seed: s.seed, NIC: virtrnic.Settings{AckEvery: 4}, Switch: s.sw},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.net = n
	return n
}

// run sends the messages. Every rank that is not lost must get each of them once, with the
// right bytes, and nothing may come into a buffer after its message was there.
func (s *safe) run() error {
	s.t.Helper()
	n := s.build()
	ranks := s.graph.Hosts
	s.got, s.did = make([]int, ranks), make([]collective.Safety, ranks)
	spare := make([]bool, ranks)
	for range s.sizes {
		s.at, s.apart = append(s.at, make([]vtime.Duration, ranks)), append(s.apart, make([]bool, ranks))
	}
	var hosts []int
	for i := range ranks {
		hosts, spare[i] = append(hosts, i), i > 0
	}
	s.err = n.Run(sim.Job{Name: "safe", Hosts: hosts, Spare: spare, Params: s.params, Program: s.program})
	if err := n.Leftover(); err != nil && s.err == nil {
		s.t.Error(err)
	}
	return s.err
}

func (s *safe) program(r *rank.Rank) error {
	b, err := collective.NewBcast("cepheus", r, collective.Options{Label: "safe", Fallback: s.mode})
	if err != nil {
		return err
	}
	bufs := make([]*rank.Buffer, len(s.sizes))
	for m, size := range s.sizes {
		if bufs[m], err = r.Alloc(size, s.memory); err != nil {
			return err
		}
		if err := s.message(r, b, bufs[m], m); err != nil {
			return err
		}
		r.Sleep(s.pause)
	}
	if did := collective.SafetyOf(b); did != nil {
		s.did[r.ID()] = *did
	}
	r.Sync()
	if s.after != nil && r.ID() == 0 {
		s.after(r)
	}
	r.Sync()
	for m := range s.sizes {
		if s.got[r.ID()] == len(s.sizes) && !s.right(r, bufs[m], m) {
			return fmt.Errorf("rank %d: message %d has changed since it was there", r.ID(), m)
		}
	}
	return b.Close()
}

func (s *safe) root(m int) int {
	if s.roots == nil {
		return 0
	}
	return s.roots[m]
}

func (s *safe) message(r *rank.Rank, b collective.Algorithm, buf *rank.Buffer, m int) error {
	size := s.sizes[m]
	if r.ID() == s.root(m) {
		buf.Fill(uint64(m), size)
	} else {
		buf.Expect(uint64(m), size)
	}
	if err := b.Begin(buf, size, s.root(m)); err != nil {
		return fmt.Errorf("begin message %d: %w", m, err)
	}
	r.Sync()
	start := r.Now()
	if r.ID() == 0 {
		s.began = append(s.began, start)
	}
	at, err := b.Run()
	if errors.Is(err, collective.ErrLost) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("message %d: %w", m, err)
	}
	s.got[r.ID()]++
	s.at[m][r.ID()], s.apart[m][r.ID()] = at.Received.Sub(start), collective.ServedApart(b)
	if !s.right(r, buf, m) {
		return fmt.Errorf("rank %d: wrong bytes in message %d", r.ID(), m)
	}
	return nil
}

// right reports whether a buffer holds a message.
func (s *safe) right(r *rank.Rank, buf *rank.Buffer, m int) bool {
	if r.ID() == s.root(m) {
		return true
	}
	want := rank.Digest{}
	if s.memory == rank.MemoryHashed {
		want = rank.HashMessage(uint64(m), s.sizes[m])
	}
	ok, known := buf.Check(uint64(m), s.sizes[m], want)
	return ok || !known
}

// sum adds up the counters of all sources.
func (s *safe) sum() (all collective.Safety) {
	for _, d := range s.did {
		all.Add(d)
	}
	return all
}

// must runs, and fails the test on an error or a message that did not come.
func (s *safe) must() collective.Safety {
	s.t.Helper()
	if err := s.run(); err != nil {
		s.t.Fatalf("%v; %+v", err, s.events)
	}
	for i, n := range s.got {
		if n != len(s.sizes) {
			s.t.Errorf("rank %d got %d of %d messages", i, n, len(s.sizes))
		}
	}
	return s.sum()
}

// switchAt returns a switch by name.
func (s *safe) switchAt(name string) *virtswitch.Switch {
	s.t.Helper()
	i, ok := s.graph.Find(name)
	if !ok {
		s.t.Fatalf("no switch %s", name)
	}
	return s.build().Switch(i)
}

// end returns the port by which one node sends to another.
func (s *safe) end(from, to string) topo.End {
	s.t.Helper()
	a, _ := s.graph.Find(from)
	for p := range s.graph.Nodes[a].Links {
		if s.graph.Nodes[s.graph.Peer(a, p).Node].Name == to {
			return topo.End{Node: a, Port: p}
		}
	}
	s.t.Fatalf("no link from %s to %s", from, to)
	return topo.End{}
}

// link returns the transmitter from one node to another.
func (s *safe) link(from, to string) int {
	s.t.Helper()
	e := s.end(from, to)
	return s.build().PortID(e.Node, e.Port)
}

// TestFallbackRegistration: a switch has no memory for the group. All messages come by the
// overlay, small ones by the binomial tree and large ones by the sliced chain. When there is
// room the group is registered again, with another McstID, and used.
func TestFallbackRegistration(t *testing.T) {
	g, err := safeFabric()
	s := newSafe(t, g, err, 12, 100_000)
	s.sizes[1], s.sizes[3], s.sizes[10] = 0, 1000, 64
	s.pause = 5 * vtime.Millisecond
	s.switchAt("leaf1").LimitGroups(0)
	s.net.At(vtime.Time(35*vtime.Millisecond), func(vtime.Time) { s.switchAt("leaf1").LimitGroups(100) })
	did := s.must()
	if did.Fallbacks != 1 || did.Returns != 1 || did.Overlay < 4 || did.Overlay > 10 || did.Restarted+did.Apart+len(did.Lost) > 0 || !strings.Contains(did.Causes[0], "no room") {
		t.Errorf("%+v", did)
	}
	s.story("fallback", "return")
}

// story checks the recorded events, except failed tests, and that each epoch has its own group.
func (s *safe) story(want ...string) {
	s.t.Helper()
	var got []string
	groups := map[int64]uint32{}
	for _, e := range s.events {
		if e.Kind != machine.EventProbe {
			got = append(got, e.Kind.String())
		}
		if e.Kind == machine.EventMemberLost {
			continue
		}
		for epoch, g := range groups { // independent of each other
			if (epoch == e.Value) != (g == e.Group) {
				s.t.Errorf("epochs %d and %d have the groups %x and %x", epoch, e.Value, g, e.Group)
			}
		}
		groups[e.Value] = e.Group
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("%v, want %v", s.events, want)
	}
}

// add gives the run a fault at nodes or, if there are two names with a hyphen between, at
// the link.
func (s *safe) add(f faults.Spec, where ...string) {
	s.t.Helper()
	n := s.build()
	if s.faults == nil {
		s.faults = n.NewTimeline(50 * vtime.Microsecond)
	}
	for _, w := range where {
		if a, b, ok := strings.Cut(w, "-"); ok {
			end := s.end(a, b)
			f.Ends = append(f.Ends, end)
			f.Links = append(f.Links, s.graph.Nodes[end.Node].Links[end.Port])
			continue
		}
		i, ok := s.graph.Find(w)
		if !ok {
			s.t.Fatalf("no node %s", w)
		}
		f.Nodes = append(f.Nodes, i)
	}
	if f.Kind.OfFrames() {
		f.Links = nil
	} else {
		f.Ends = nil
	}
	f.ID = fmt.Sprint(len(s.faults.List(n.Now())))
	s.faults.Add(n.Now(), f)
}

// from returns the window of a fault: its beginning and, if it is not permanent, its duration.
func from(at, lasts vtime.Duration) faults.Window {
	return faults.Window{From: vtime.Time(at), For: lasts, Probability: 1}
}

// safeLink is slow, so that a window has few packets.
var safeLink = topo.LinkParams{Rate: 10e9, Delay: vtime.Microsecond}

// safeFabric is two leaves, two spines and six hosts.
func safeFabric() (*topo.Graph, error) {
	return topo.LeafSpine(topo.LeafSpineSpec{Leaves: 2, Spines: 2, Hosts: 3}, safeLink)
}

// TestFallbackThroughput (FLT-17): throughput below half of normal makes the group leave multicast, once for each
// cause: it does not come back while the cause lasts, and does afterwards. A switch that
// crashed is gone for good: the group comes back by another way.
func TestFallbackThroughput(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector, which has nothing to find in one goroutine at a time")
	}
	const begins, ends = 2 * vtime.Millisecond, 30 * vtime.Millisecond
	lasting, moment := from(begins, ends-begins), from(begins, 0)
	for name, c := range map[string]struct {
		fault faults.Spec
		where string
		after vtime.Duration // the return
	}{
		"rate cut to 30 %": {faults.Spec{Kind: faults.KindRateCut, Rate: 3e9, Window: lasting}, "leaf0-h2", ends},
		"loss of 10 %":     {faults.Spec{Kind: faults.KindLoss, Frames: faults.Impairment{Loss: 0.1}, Window: lasting}, "leaf0-h2", ends},
		"slow receiver":    {faults.Spec{Kind: faults.KindSlowReceiver, Rate: 1e9, Window: lasting}, "h1", ends},
		"groups forgotten": {faults.Spec{Kind: faults.KindWipe, Window: moment}, "leaf0", begins},
		"stalled receiver": {faults.Spec{Kind: faults.KindStall, Window: from(begins, 4*vtime.Millisecond)}, "h3", begins},
		"link down":        {faults.Spec{Kind: faults.KindLinkDown, Window: from(begins, 4*vtime.Millisecond)}, "leaf0-h2", begins},
		"switch crash":     {faults.Spec{Kind: faults.KindCrash, Window: moment}, "spine", begins},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := safeFabric()
			s := newSafe(t, g, err, 60, 100_000)
			s.pause = vtime.Millisecond
			if c.where == "spine" { // the one that the group goes by
				s.build().At(vtime.Time(begins)-1, func(vtime.Time) {
					for _, name := range []string{"spine0", "spine1"} {
						if len(s.switchAt(name).Groups()) > 0 {
							s.add(c.fault, name)
						}
					}
				})
			} else {
				s.add(c.fault, c.where)
			}
			did := s.must()
			s.story("fallback", "return")
			if did.Restarted == 0 || did.Overlay == 0 || len(did.Lost) > 0 {
				t.Errorf("%+v", did)
			}
			for _, e := range s.events {
				if at := vtime.Duration(e.at); e.Kind == machine.EventFallback && (at < begins || at > begins+5*vtime.Millisecond) || e.Kind == machine.EventReturn && at < c.after {
					t.Errorf("%v at %v", e.Kind, at)
				}
			}
		})
	}
}

// TestFallbackCrash: a member crashes in the middle of a message, or between two. The others
// get all messages, and the run's error names it. MCASTLAB_SOAK makes it 694 crashes.
func TestFallbackCrash(t *testing.T) {
	every := 173 * vtime.Microsecond
	if os.Getenv("MCASTLAB_SOAK") != "" {
		every /= 50
	}
	for _, mode := range []string{collective.FallbackFull, collective.FallbackPartial} {
		for at := 200 * vtime.Microsecond; at < 1400*vtime.Microsecond; at += every {
			g, err := safeFabric()
			s := newSafe(t, g, err, 12, 200_000)
			s.mode = mode
			s.add(faults.Spec{Kind: faults.KindCrash, Window: from(at, 0)}, "h2")
			if err := s.run(); !errors.Is(err, sim.ErrCrashed) || !strings.Contains(err.Error(), "h2") {
				t.Fatalf("%s, crash at %v: %v; %v", mode, at, err, s.events)
			}
			for i, n := range s.got {
				if i != 2 && n != len(s.sizes) {
					t.Errorf("%s, crash at %v: rank %d got %d messages", mode, at, i, n)
				}
			}
			if lost := s.sum().Lost; len(lost) != 1 || lost[0].Host != "h2" {
				t.Errorf("%s, crash at %v: lost %+v", mode, at, lost)
			}
		}
	}
}

// trigger calls f when the n-th matching frame reaches the end of a link, and loses the frames that f
// selects from then on.
type trigger struct {
	match func(*wire.Frame) bool
	n     int
	f     func()
	lose  func(*wire.Frame) bool
	seen  int
}

// Arrive implements faults.Link.
func (g *trigger) Arrive(_ vtime.Time, f *wire.Frame) (v faults.Verdict) {
	if g.match(f) {
		if g.seen++; g.seen == g.n && g.f != nil {
			g.f()
		}
	}
	v.Drop = g.seen >= g.n && g.lose != nil && g.lose(f)
	return v
}

// ofGroup reports whether a frame is data of a group, or its feedback.
func ofGroup(f *wire.Frame) bool {
	return f.Kind() == wire.KindRoCE && ((wire.GroupRange{}).Has(f.DstIP()) || (wire.GroupRange{}).Has(f.SrcIP()))
}

// TestFallbackTorn: the group breaks down at each packet of a message, in four ways: a leaf forgets it,
// the source's or another; all acknowledgements are lost from there on, so that receivers have data
// that the source must believe lost; or one receiver gets nothing any more. A member that has the
// message gets it once, a member that lacks it receives all of it again, and every buffer is complete
// and right when its member sees it, and does not change later. Memory that keeps a hash would show a
// byte that is written twice. MCASTLAB_SOAK makes it 100 seeds.
func TestFallbackTorn(t *testing.T) {
	const packets = 20
	kinds := []string{"near", "far", "feedback", "deaf"}
	restarts, rounds := 0, 1
	if os.Getenv("MCASTLAB_SOAK") != "" {
		rounds = 100
	}
	for round := range rounds * (packets + 1) {
		at := 1 + round%(packets+1)
		for k, kind := range kinds {
			g, err := safeFabric()
			s := newSafe(t, g, err, 3, packets*simlab.Params().MTU)
			s.mode = []string{collective.FallbackFull, collective.FallbackPartial}[(round+k)%2]
			s.memory = []rank.MemoryKind{rank.MemoryBytes, rank.MemoryHashed}[(round/2+k)%2]
			s.seed = uint64(round)
			if round > packets {
				s.params.MTU = 256 << (round % 3)
				s.sizes = []int{packets * s.params.MTU, packets*s.params.MTU - round%s.params.MTU, packets * s.params.MTU}
			}
			data := func(f *wire.Frame) bool { return ofGroup(f) && simlab.IsData(f) }
			first := s.build().Graph().Nodes[0].IP
			tr := &trigger{match: data, n: packets + at} // of the second message
			where := s.link("h0", "leaf0")
			switch kind {
			case "near":
				tr.f = func() { s.switchAt("leaf0").WipeGroups() }
			case "far":
				tr.f = func() { s.switchAt("leaf1").WipeGroups() }
			case "feedback":
				tr.lose = func(*wire.Frame) bool { return false }
				lost := &trigger{match: func(*wire.Frame) bool { return tr.seen >= tr.n }, lose: func(f *wire.Frame) bool {
					return tr.seen >= tr.n && simlab.IsAck(f) && f.DstIP() == first && ofGroup(f)
				}}
				s.net.SetFault(s.link("leaf0", "h0"), lost)
			case "deaf":
				s.net.SetFault(s.link("leaf1", "h4"), &trigger{match: data, n: packets + at, lose: data})
			}
			if kind != "deaf" {
				s.net.SetFault(where, tr)
			}
			did := s.must()
			if did.Fallbacks != 1 && at <= packets || did.Fallbacks > 1 {
				t.Errorf("round %d, %s at packet %d, %s: %+v", round, kind, at, s.mode, did)
			}
			restarts += did.Restarted
		}
	}
	if restarts < packets {
		t.Errorf("%d messages were begun again", restarts)
	}
}

// TestFallbackPartial: one member crawls. It is served by unicast, in a class that waits for all
// others, and the others stay within 5 % of the time that messages take without a fault. When it is as
// fast as before it returns to the group.
func TestFallbackPartial(t *testing.T) {
	const begins, ends = 3 * vtime.Millisecond, 60 * vtime.Millisecond
	for name, f := range map[string]faults.Spec{
		"slow receiver": {Kind: faults.KindSlowReceiver, Rate: 500e6},
		"slow link":     {Kind: faults.KindRateCut, Rate: 500e6},
		"lossy link":    {Kind: faults.KindLoss, Frames: faults.Impairment{Loss: 0.1}},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := safeFabric()
			healthy := newSafe(t, g, err, 5, 200_000)
			healthy.mode = collective.FallbackPartial
			healthy.must()
			s := newSafe(t, g, err, 60, 200_000)
			s.mode = collective.FallbackPartial
			f.Window = from(begins, ends-begins)
			where := "leaf1-h4"
			if !f.Kind.OfLinks() {
				where = "h4"
			}
			s.add(f, where)
			did := s.must()
			s.story("fallback", "return", "return")
			served, worst := 0, 0.0
			for m := range s.sizes {
				if !s.apart[m][4] {
					continue
				}
				if served++; served == 1 {
					continue // the one that was under way
				}
				for i := range s.at[m] {
					got, want := s.at[m][i], healthy.at[4][i]
					if i != 4 && i > 0 {
						worst = max(worst, float64(got)/float64(want))
					}
					if i != 4 && got > want+want/20 {
						t.Errorf("message %d: rank %d had it after %v, without the fault after %v", m, i, got, want)
					}
				}
			}
			if served < 3 || did.Apart < served {
				t.Errorf("%d messages were sent to h4 alone; %+v", served, did)
			}
			t.Logf("%d messages, the slowest %.4f times as long as without the fault", served, worst)
		})
	}
}

// TestFallbackUnreachable: a member that can be reached no more, though it lives, is given
// up: the others get everything, it hears that it is not served any more, and nobody hangs.
func TestFallbackUnreachable(t *testing.T) {
	for _, mode := range []string{collective.FallbackFull, collective.FallbackPartial} {
		for _, size := range []int{1000, 150_000} {
			g, err := safeFabric()
			s := newSafe(t, g, err, 30, size)
			s.mode, s.pause = mode, 100*vtime.Microsecond
			s.add(faults.Spec{Kind: faults.KindLinkDown, Window: from(1500*vtime.Microsecond, 0)}, "leaf1-h4")
			if err := s.run(); err != nil {
				t.Fatalf("%s: %v; %v", mode, err, s.events)
			}
			for i, n := range s.got {
				if (n == len(s.sizes)) != (i != 4) {
					t.Errorf("%s, %d bytes: rank %d got %d messages", mode, size, i, n)
				}
			}
			if did := s.sum(); len(did.Lost) != 1 || did.Lost[0].Rank != 4 || did.Fallbacks != 1 || did.Returns != 1 {
				t.Errorf("%s, %d bytes: %+v, %v", mode, size, did, s.events)
			}
		}
	}
}

// TestFallbackThreshold (R-C24): the threshold is half of normal throughput. A link at well over half of its rate
// leaves multicast alone, one at well under half makes it be left.
func TestFallbackThreshold(t *testing.T) {
	for percent := int64(25); percent <= 100; percent += 5 {
		g, err := safeFabric()
		s := newSafe(t, g, err, 25, 150_000)
		s.add(faults.Spec{Kind: faults.KindRateCut, Rate: percent * 1e8, Window: from(0, 0)}, "leaf1-h4")
		did := s.must()
		switch {
		case percent <= 45 && did.Fallbacks != 1, percent >= 60 && did.Fallbacks != 0:
			t.Errorf("at %d %% of the rate: %+v", percent, did)
		}
	}
}

// TestFallbackMoves: every message has another source, also those that are served apart and
// those that have left multicast last.
func TestFallbackMoves(t *testing.T) {
	for _, mode := range []string{collective.FallbackFull, collective.FallbackPartial} {
		g, err := safeFabric()
		s := newSafe(t, g, err, 120, 120_000)
		s.mode, s.memory = mode, rank.MemoryHashed
		for m := range s.sizes {
			s.roots = append(s.roots, m%6)
		}
		s.add(faults.Spec{Kind: faults.KindSlowReceiver, Rate: 500e6, Window: from(1*vtime.Millisecond, 15*vtime.Millisecond)}, "h4")
		did := s.must()
		if did.Fallbacks != 1 || did.Returns == 0 {
			t.Errorf("%s: %+v", mode, did)
		}
		if last := s.events[len(s.events)-1]; last.Kind != machine.EventReturn || last.Text != "" {
			t.Errorf("%s: the last that happened is %v", mode, last)
		}
	}
}

// TestFallbackOff: without it a broadcast that cannot be ends with an error, as ever.
func TestFallbackOff(t *testing.T) {
	g, err := safeFabric()
	s := newSafe(t, g, err, 1, 1000)
	s.mode = collective.FallbackOff
	s.switchAt("leaf0").LimitGroups(0)
	if err := s.run(); !errors.Is(err, rank.ErrGroup) {
		t.Errorf("%v", err)
	}
	s = newSafe(t, g, err, 1, 1000)
	s.mode = "half"
	if err := s.run(); err == nil || !strings.Contains(err.Error(), "use off, full or partial") {
		t.Errorf("%v", err)
	}
}

// TestFallbackFanOut: a group would leave a switch by more ports than it can feed. Everything
// comes by unicast, and each try that fails makes the next one come later.
func TestFallbackFanOut(t *testing.T) {
	g, err := safeFabric()
	s := newSafe(t, g, err, 100, 3000)
	s.sw.FanOut, s.pause = 2, vtime.Millisecond
	did := s.must()
	if did.Fallbacks != 1 || did.Returns != 0 || did.Overlay != len(s.sizes) || !strings.Contains(did.Causes[0], "fan-out limit exceeded") {
		t.Errorf("%+v", did)
	}
	var before, wait vtime.Duration
	for _, e := range s.events[1:] {
		if gap := vtime.Duration(e.at) - before; before > 0 {
			if wait > 0 && gap < wait*3/2 {
				t.Errorf("a try %v after the last, and that %v after the one before", gap, wait)
			}
			wait = gap
		}
		before = vtime.Duration(e.at)
	}
	if wait == 0 {
		t.Errorf("too few tries: %v", s.events)
	}
}

// TestFallbackFree: while nothing is wrong, messages take as long with a fallback as without.
func TestFallbackFree(t *testing.T) {
	var want [][]vtime.Duration
	for _, mode := range []string{collective.FallbackOff, collective.FallbackFull, collective.FallbackPartial} {
		g, err := safeFabric()
		s := newSafe(t, g, err, 6, 70_000)
		s.mode, s.sizes[2], s.roots = mode, 0, []int{0, 0, 3, 3, 5, 0}
		if did := s.must(); did.Fallbacks+did.Returns+did.Overlay+did.Apart+len(s.events) > 0 {
			t.Errorf("%s: %+v", mode, did)
		}
		if want == nil {
			want = s.at
		}
		if !reflect.DeepEqual(s.at, want) {
			t.Errorf("%s: messages took %v, without a fallback %v", mode, s.at, want)
		}
	}
}
