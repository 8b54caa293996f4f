// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/controller"
	"github.com/mcastlab/mcastlab/internal/controller/replica"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
)

const controlled = "name: ctl\ntopology: {star: {hosts: 3}}\ncontrollers: 3\n"

// messageOfLab returns the message of the lab that a file describes.
func messageOfLab(t *testing.T, text string) []byte {
	t.Helper()
	l, err := lab.Parse("lab", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	b, err := labspec.Encode(l)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// folder returns a folder whose path leaves room for sockets in it.
func folder(t *testing.T, nodes ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ctl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, n := range nodes {
		if err := os.Mkdir(filepath.Join(dir, n), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestControllerFaults: a controller is cut off from others at its time and in its direction, it
// crashes and comes back by itself, and a reset ends both at once. What befalls others it does
// not feel.
func TestControllerFaults(t *testing.T) {
	dir := folder(t, "controller0", "controller1")
	listen := func(id string) *replica.Network {
		n, err := replica.Listen(id, os.Stderr, func(id, name string) string { return filepath.Join(dir, id, name) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close() })
		return n
	}
	network := listen("controller0")
	r, err := replica.New(replica.Config{
		ID: "controller0", Replicas: []string{"controller0", "controller1", "controller2"}, Network: network, Data: filepath.Join(dir, "controller0"), Log: os.Stderr,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	n := &controllerNode{o: ControllerOptions{Name: "controller0"}, replica: r, network: network}
	if _, err := n.ListFaults(t.Context(), nil); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("before it has a lab: %v", err)
	}
	mono, err := live.NewMonotonic()
	if err != nil {
		t.Fatal(err)
	}
	rate := &nodeapi.Rate{Mono: mono.Now(), Dilation: 1000}
	if _, err := n.Configure(t.Context(), &nodeapi.ConfigureRequest{Node: "controller0", Lab: messageOfLab(t, controlled), Rate: rate}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.stop() })
	state := func() string {
		s, err := r.Status(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return s.State
	}
	message := func(entry string) []byte { return faultMessage(t, n.lab, entry) }
	add := func(id, entry string) {
		t.Helper()
		l := &nodeapi.FaultList{Faults: []*nodeapi.Fault{{Id: id, Text: entry, Message: message(entry), Origin: int64(n.now())}}}
		if _, err := n.AddFaults(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	list := func() string {
		l, err := n.ListFaults(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s := ""
		for _, f := range l.Faults {
			s += fmt.Sprintf("%s on %v over %v seen %d hit %v at %v\n", f.Id, f.On, f.Over, f.Seen, f.Hit > 0, f.Applied)
		}
		return s
	}
	add("a", "{controller-crash: {controllers: controller1}}")
	if state() == "crashed" {
		t.Error("it crashes for another")
	}
	add("b", "{for: 300us, controller-crash: {controllers: controller0}}") // 0.3 s on the wall
	eventually(t, func() bool { return state() == "crashed" })
	eventually(t, func() bool { return state() != "crashed" })
	eventually(t, func() bool {
		return list() == "a on true over false seen 1 hit false at []\nb on false over true seen 1 hit true at [controller0]\n"
	})
	// Nothing goes out: it is not heard when it asks for votes.
	listen("controller1")
	add("c", "{control-partition: {controllers: controller0, direction: out}}")
	eventually(t, func() bool {
		return strings.HasSuffix(list(), "c on true over false seen 1 hit true at [controller0]\n")
	})
	add("d", "{control-partition: {controllers: controller0, direction: in}}")
	eventually(t, func() bool { // the others must stop messages that do not reach it
		return strings.HasSuffix(list(), "d on true over false seen 1 hit false at []\n")
	})
	add("e", "{controller-crash: {controllers: controller*}}")
	eventually(t, func() bool { return state() == "crashed" })
	if gone, err := n.ResetFaults(t.Context(), &nodeapi.ResetRequest{}); err != nil || len(gone.Faults) != 5 {
		t.Errorf("%v, %v", gone, err)
	}
	eventually(t, func() bool { return state() != "crashed" })
	if got := list(); got != "" {
		t.Errorf("after a reset:\n%s", got)
	}
	bad := &nodeapi.FaultList{Faults: []*nodeapi.Fault{{Id: "x", Message: message("{loss: {rate: 1}}")}}}
	if _, err := n.AddFaults(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "loss does not apply to controllers") {
		t.Errorf("a fault of links: %v", err)
	}
}

// faultMessage returns the message of a fault that is given as in a lab file.
func faultMessage(t *testing.T, l *lab.Lab, entry string) []byte {
	t.Helper()
	f, err := l.ParseFault(entry)
	if err != nil {
		t.Fatal(err)
	}
	g, err := labspec.Graph(l)
	if err != nil {
		t.Fatal(err)
	}
	s, err := labspec.Fault(l, g, f, "")
	if err != nil {
		t.Fatal(err)
	}
	b, err := faults.Encode(&s, g)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// eventually waits until something holds.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	late := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-late:
			t.Fatal("what was waited for does not come")
		case <-time.After(time.Millisecond):
		}
	}
}

// stub is an agent that records its calls.
type stub struct {
	nodeapi.UnimplementedNodeServer
	fence nodeapi.Fence

	mu    sync.Mutex
	have  []string
	group map[uint32]int // ports, by group
}

func (s *stub) AddFaults(_ context.Context, q *nodeapi.FaultList) (*nodeapi.FaultList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range q.Faults {
		s.have = append(s.have, f.Id)
	}
	return q, nil
}

func (s *stub) ListFaults(context.Context, *nodeapi.InspectRequest) (*nodeapi.FaultList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &nodeapi.FaultList{}
	for _, id := range s.have {
		l.Faults = append(l.Faults, &nodeapi.Fault{Id: id})
	}
	return l, nil
}

func (s *stub) ResetFaults(_ context.Context, q *nodeapi.ResetRequest) (*nodeapi.FaultList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.have = slices.DeleteFunc(s.have, func(id string) bool { return goes(q)(id) })
	return &nodeapi.FaultList{}, nil
}

func (s *stub) SetMulticast(_ context.Context, m *nodeapi.MulticastEntry) (*nodeapi.MulticastReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.group[m.Group] = len(m.Ports)
	return &nodeapi.MulticastReply{}, nil
}

// TestHands: a leader adds missing entries to nodes and removes wrong ones, gives the switches a
// group's tree, and is refused once a later leader was there. Calls of the leader are refused in a
// controlled lab without an epoch.
func TestHands(t *testing.T) {
	names := []string{"h0", "h1", "h2", "leaf0"}
	dir := folder(t, names...)
	stubs := map[string]*stub{}
	for _, name := range names {
		l, err := net.Listen("unix", filepath.Join(dir, name, nodeapi.AgentSocket))
		if err != nil {
			t.Fatal(err)
		}
		stubs[name] = &stub{group: map[uint32]int{}}
		s := grpc.NewServer(grpc.UnaryInterceptor(stubs[name].fence.Intercept))
		nodeapi.RegisterNodeServer(s, stubs[name])
		go func() { _ = s.Serve(l) }() // until it is stopped
		t.Cleanup(s.Stop)
	}
	parsed, err := lab.Parse("lab", []byte(controlled))
	if err != nil {
		t.Fatal(err)
	}
	g, err := labspec.Graph(parsed)
	if err != nil {
		t.Fatal(err)
	}
	x := &controller.Lab{Name: "ctl", Message: messageOfLab(t, controlled), Generation: 1, Faults: []controller.Fault{
		{ID: "f1", Stage: controller.StageOn}, {ID: "f10", Stage: controller.StageOn}, {ID: "f2", Stage: controller.StageAdding},
	}}
	stubs["h1"].have = []string{"f1", "old", "f2"}
	first, second := newAgentClients(dir), newAgentClients(dir)
	if err := first.Adopt(t.Context(), 3, x); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{"h0": {"f1", "f10"}, "h1": {"f1", "f2", "f10"}, "leaf0": {"f1", "f10"}} { // independent of each other
		if s := stubs[name]; !slices.Equal(s.have, want) || s.fence.Highest() != 3 {
			t.Errorf("%s has %v of epoch %d, want %v", name, s.have, s.fence.Highest(), want)
		}
	}
	group := &controller.Group{Lower: 7, Hosts: []uint32{g.Nodes[0].IP, g.Nodes[2].IP}}
	if err := first.SetGroup(t.Context(), 3, x, group, true); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(stubs["leaf0"].group); !strings.Contains(got, ":2]") || len(stubs["h0"].group) != 0 {
		t.Errorf("the switch has groups %s, a host %v", got, stubs["h0"].group)
	}
	if err := second.RemoveFaults(t.Context(), 4, x, []string{"f1"}); err != nil {
		t.Fatal(err)
	}
	if have := stubs["h0"].have; !slices.Equal(have, []string{"f10"}) {
		t.Errorf("after f1 went h0 has %v", have)
	}
	err = first.AddFaults(t.Context(), 3, x, []controller.Fault{{ID: "f1"}})
	if err == nil || !strings.Contains(err.Error(), "epoch 3 is over: a leader of epoch 4 was here") || slices.Contains(stubs["h0"].have, "f1") {
		t.Errorf("a deposed leader: %v; h0 has %v", err, stubs["h0"].have)
	}
	c, err := first.node("h0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.AddFaults(t.Context(), &nodeapi.FaultList{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("without an epoch: %v", err)
	}
	if _, err := c.ListFaults(t.Context(), &nodeapi.InspectRequest{}); err != nil {
		t.Errorf("looking needs no epoch: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "h2", nodeapi.AgentSocket)); err != nil {
		t.Fatal(err)
	}
	if err := newAgentClients(dir).AddFaults(t.Context(), 4, x, []controller.Fault{{ID: "f3"}}); err == nil || !strings.Contains(err.Error(), "node h2") || !slices.Contains(stubs["leaf0"].have, "f3") {
		t.Errorf("a node that is gone: %v; leaf0 has %v", err, stubs["leaf0"].have)
	}
}
