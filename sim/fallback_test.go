package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/collective"
	"github.com/mcastlab/mcastlab/fabric"
	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/topo"
	"github.com/mcastlab/mcastlab/virtswitch"
	"github.com/mcastlab/mcastlab/vtime"
)

// safe is a broadcast with fallback, message after message.
type safe struct {
	t        testing.TB
	graph    *topo.Graph
	mode     string
	sizes    []int // of the messages
	roots    []int // of them; nil: rank 0
	params   rank.Params
	sw       fabric.Switch
	seed     uint64
	memory   rank.MemoryKind
	pause    vtime.Duration // between messages
	anyError bool           // a rank may be lost

	net    *Net
	events []sceneEvent
	at     [][]vtime.Duration // by message and rank: when it was there, from when it began
	apart  [][]bool
	got    []int // by rank: messages
	did    []collective.Safety
	err    error
}

// safeTracer keeps the events of one node that matter here.
type safeTracer struct {
	s    *safe
	name string
}

// Trace implements machine.Tracer.
func (n safeTracer) Trace(_ vtime.Time, e machine.Event) {
	if e.Kind >= machine.EventFallback {
		n.s.events = append(n.s.events, sceneEvent{n.name, e})
	}
}

// newSafe returns a run on a graph whose messages are all of one size.
func newSafe(t testing.TB, g *topo.Graph, err error, count, size int) *safe {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	p := testParams
	p.RTT, p.LowClass = 10*vtime.Microsecond, 8<<2
	s := &safe{
		t: t, graph: g, mode: collective.FallbackFull, params: p, seed: 1, memory: rank.MemoryBytes,
		sw: fabric.Switch{Buffer: 16 << 20, Latency: 300 * vtime.Nanosecond, Lossless: 1 << 3, Rules: virtswitch.RulesFixed()},
	}
	for range count {
		s.sizes = append(s.sizes, size)
	}
	return s
}

// build makes the network, once all settings are made.
func (s *safe) build() *Net {
	s.t.Helper()
	if s.net != nil {
		return s.net
	}
	n, err := New(Config{
		Check: true, Trace: func(i int) machine.Tracer { return safeTracer{s, s.graph.Nodes[i].Name} },
		Spec: fabric.Spec{Graph: s.graph, Seed: s.seed, NIC: fabric.NIC{AckEvery: 4}, Switch: s.sw},
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
	s.err = n.Run(Job{Name: "safe", Hosts: hosts, Spare: spare, Params: s.params, Program: s.program})
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

// right says whether a buffer holds a message.
func (s *safe) right(r *rank.Rank, buf *rank.Buffer, m int) bool {
	want := rank.Digest{}
	if s.memory == rank.MemoryHashed {
		want = rank.HashMessage(uint64(m), s.sizes[m])
	}
	ok, known := buf.Check(uint64(m), s.sizes[m], want)
	return ok || !known
}

// sum returns what all sources did.
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

// link returns the transmitter from one node to another.
func (s *safe) link(from, to string) int {
	s.t.Helper()
	a, _ := s.graph.Find(from)
	for p := range s.graph.Nodes[a].Links {
		if s.graph.Nodes[s.graph.Peer(a, p).Node].Name == to {
			return s.build().PortID(a, p)
		}
	}
	s.t.Fatalf("no link from %s to %s", from, to)
	return 0
}

func star(hosts int) (*topo.Graph, error) { return topo.Star(hosts, sceneLink) }

// TestFallbackRegistration: a switch has no memory for the group. All messages come by the
// overlay, small ones by the binomial tree and large ones by the sliced chain. When there is
// room the group is registered anew, with another McstID, and used.
func TestFallbackRegistration(t *testing.T) {
	g, err := topo.LeafSpine(topo.LeafSpineSpec{Leaves: 2, Spines: 2, Hosts: 3}, sceneLink)
	s := newSafe(t, g, err, 12, 100_000)
	s.sizes[1], s.sizes[3], s.sizes[10] = 0, 1000, 64
	s.pause = 5 * vtime.Millisecond
	s.switchAt("leaf1").LimitGroups(0)
	s.net.At(vtime.Time(35*vtime.Millisecond), func(vtime.Time) { s.switchAt("leaf1").LimitGroups(100) })
	did := s.must()
	if did.Fallbacks != 1 || did.Returns != 1 || did.Overlay < 4 || did.Overlay > 10 || did.Restarted+did.Apart+len(did.Lost) > 0 || !strings.Contains(did.Causes[0], "no room") {
		t.Errorf("%+v", did)
	}
	s.story("fallback/0", "probe-failed/1", "return/2")
}

// story checks what was noted, kinds and epochs, and that each epoch has its own group.
func (s *safe) story(want ...string) {
	s.t.Helper()
	var got []string
	groups := map[int64]uint32{}
	for _, e := range s.events {
		got = append(got, fmt.Sprintf("%v/%d", e.Kind, e.Value))
		if e.Kind == machine.EventMemberLost {
			continue
		}
		for epoch, g := range groups { // each by itself
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
