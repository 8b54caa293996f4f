// SPDX-License-Identifier: Apache-2.0

package virtswitch_test

import (
	"fmt"
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
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// scene is a small lab for one protocol situation: a group, messages from one or
// several sources, frames that get lost by number.
type scene struct {
	t      *testing.T
	graph  *topo.Graph
	rules  virtswitch.Rules
	ack    int
	mtu    int
	psn    wire.PSN
	hosts  []string // ranks; nil: all hosts in order
	seed   uint64
	groups int
	xoff   int
	cnps   vtime.Duration
	aside  virtswitch.LookAsideConfig
	retry  vtime.Duration // of a registration; 0: the default

	spec   fabric.Spec
	net    *sim.Net
	events []sceneEvent
	lines  *strings.Builder // transcript, if wanted
	nths   map[int]faults.Chain
}

type sceneEvent struct {
	node string
	machine.Event
}

func newScene(t *testing.T, g *topo.Graph, err error) *scene {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return &scene{t: t, graph: g, rules: virtswitch.RulesFixed(), ack: 1, mtu: 1024, seed: 1}
}

// starScene is a source, three receivers and a switch.
func starScene(t *testing.T) *scene {
	g, err := topo.Star(4, simlab.Link())
	return newScene(t, g, err)
}

// nodeTracer keeps the events of one node.
type nodeTracer struct {
	s    *scene
	name string
}

// Trace implements machine.Tracer.
func (n nodeTracer) Trace(_ vtime.Time, e machine.Event) {
	n.s.events = append(n.s.events, sceneEvent{n.name, e})
}

// build makes the network, once all settings are made.
func (s *scene) build() *sim.Net {
	s.t.Helper()
	if s.net != nil {
		return s.net
	}
	s.spec = fabric.Spec{
		Graph: s.graph, Seed: s.seed, NIC: virtrnic.Settings{AckEvery: s.ack},
		Switch: fabric.Switch{
			Settings: virtswitch.Settings{Buffer: 16 << 20, PFC: virtswitch.PFCConfig{Lossless: 1 << 3, XOFF: s.xoff},
				Rules: s.rules, Groups: s.groups, CNPWindow: s.cnps, LookAside: s.aside},
		},
	}
	n, err := sim.New(sim.Config{
		Check: true, Spec: s.spec, RetryAfter: s.retry, Trace: func(i int) machine.Tracer { return nodeTracer{s, s.graph.Nodes[i].Name} },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.net, s.nths = n, map[int]faults.Chain{}
	return n
}

// link returns the transmitter of the direction from one named node to another.
func (s *scene) link(from, to string) int {
	s.t.Helper()
	a, okA := s.graph.Find(from)
	b, okB := s.graph.Find(to)
	if okA && okB {
		for p := range s.graph.Nodes[a].Links {
			if s.graph.Peer(a, p).Node == b {
				return s.build().PortID(a, p)
			}
		}
	}
	s.t.Fatalf("no link from %s to %s", from, to)
	return 0
}

// sender returns the port of a transmitter.
func (s *scene) sender(id int) topo.End {
	l := s.build().Link(id)
	return s.graph.Peer(int(l.Node), int(l.NodePort))
}

func (s *scene) fault(from, to string, f faults.Link) {
	s.t.Helper()
	id := s.link(from, to)
	s.nths[id] = append(s.nths[id], f)
	s.net.SetFault(id, s.nths[id])
}

// lose drops the frames with the given numbers, from 1 on, among those that match.
func (s *scene) lose(from, to string, match func(*wire.Frame) bool, numbers ...int) *faults.Nth {
	s.t.Helper()
	n := &faults.Nth{Match: match, Drop: map[int]bool{}}
	for _, k := range numbers {
		n.Drop[k] = true
	}
	s.fault(from, to, n)
	return n
}

// count returns a counter of the frames that match on a link.
func (s *scene) count(from, to string, match func(*wire.Frame) bool) *faults.Nth {
	return s.lose(from, to, match)
}

// delayed holds the frames that match back.
type delayed struct {
	match func(*wire.Frame) bool
	d     vtime.Duration
}

// Arrive implements faults.Link.
func (d delayed) Arrive(_ vtime.Time, f *wire.Frame) faults.Verdict {
	if d.match(f) {
		return faults.Verdict{Delay: d.d}
	}
	return faults.Verdict{}
}

// Frames that scenes look for.

func withPSN(match func(*wire.Frame) bool, psn wire.PSN) func(*wire.Frame) bool {
	return func(f *wire.Frame) bool { return match(f) && f.PSN() == psn }
}

// message is one transfer: packets from a rank.
type message struct{ from, packets int }

// run sends the messages one after the other to the whole group and checks every byte
// at every receiver. It returns the error of the first rank that has one.
func (s *scene) run(messages ...message) error {
	s.t.Helper()
	n := s.build()
	for id, c := range s.nths {
		n.SetFault(id, c)
	}
	var all []simlab.Message
	for _, m := range messages {
		all = append(all, simlab.Message{From: m.from, Packets: m.packets})
	}
	return s.job(simlab.Broadcasts(s.mtu, all...))
}

// job runs a program on all ranks of the scene.
func (s *scene) job(program func(r *rank.Rank) error) error {
	s.t.Helper()
	n := s.build()
	params := simlab.Params()
	params.MTU, params.FirstPSN, params.Activate = s.mtu, &s.psn, s.rules.Activate
	return n.Run(sim.Job{Name: "scene", Hosts: s.nodes(), Params: params, Keep: true, Program: program})
}

func (s *scene) nodes() (hosts []int) {
	if s.hosts == nil {
		for h := range s.graph.Hosts {
			hosts = append(hosts, h)
		}
		return hosts
	}
	for _, name := range s.hosts {
		h, ok := s.graph.Find(name)
		if !ok {
			s.t.Fatalf("no host %s", name)
		}
		hosts = append(hosts, h)
	}
	return hosts
}

// must runs the messages and fails the test on any error.
func (s *scene) must(messages ...message) {
	s.t.Helper()
	if err := s.run(messages...); err != nil {
		s.t.Fatal(err)
	}
	if err := s.net.Leftover(); err != nil {
		s.t.Error(err)
	}
}

// nic returns the statistics of a host's NIC.
func (s *scene) nic(host string) *virtrnic.Stats {
	s.t.Helper()
	h, ok := s.graph.Find(host)
	if !ok {
		s.t.Fatalf("no host %s", host)
	}
	return s.net.NIC(h).Stats()
}

// sw returns a switch.
func (s *scene) sw(name string) *virtswitch.Switch {
	s.t.Helper()
	i, ok := s.graph.Find(name)
	if !ok || s.net.Switch(i) == nil {
		s.t.Fatalf("no switch %s", name)
	}
	return s.net.Switch(i)
}

// of returns the events of a kind at a node, in order.
func (s *scene) of(node string, kind machine.EventKind) (all []machine.Event) {
	for _, e := range s.events {
		if e.node == node && e.Kind == kind {
			all = append(all, e.Event)
		}
	}
	return all
}

// wantTimeouts checks how often the retransmission timer of a host fired.
func (s *scene) wantTimeouts(host string, want uint64) {
	s.t.Helper()
	if got := s.nic(host).Timeouts; got != want {
		s.t.Errorf("%s: %d timeouts, want %d", host, got, want)
	}
}

// wantNoDuplicates checks that hosts have seen no packet twice.
func (s *scene) wantNoDuplicates(hosts ...string) {
	s.t.Helper()
	for _, h := range hosts {
		if d := s.nic(h).DuplicateRequest; d != 0 {
			s.t.Errorf("%s has seen %d packets twice", h, d)
		}
	}
}

// record writes every frame on every link into a transcript.
func (s *scene) record() {
	s.build()
	s.lines = &strings.Builder{}
	for id := range s.net.Ports() {
		s.nths[id] = append(s.nths[id], recorder{s, id})
	}
}

type recorder struct {
	s  *scene
	id int
}

// Arrive implements faults.Link.
func (r recorder) Arrive(now vtime.Time, f *wire.Frame) faults.Verdict {
	from := r.s.graph.Nodes[r.s.sender(r.id).Node].Name
	to := r.s.graph.Nodes[r.s.net.Link(r.id).Node].Name
	fmt.Fprintf(r.s.lines, "%-12v %3s>%-3s %v\n", now, from, to, f)
	return faults.Verdict{}
}
