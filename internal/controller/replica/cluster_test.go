// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/mcastlab/mcastlab/internal/controller"
	"github.com/mcastlab/mcastlab/internal/controller/client"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// fakeNode is a node as leaders see it: it knows faults by their ids, and refuses deposed
// leaders with the fence that real nodes have.
type fakeNode struct {
	fence nodeapi.Fence

	mu      sync.Mutex
	faults  map[string]bool
	groups  map[uint32]bool
	applied map[string]int // times that a fault was applied
	epochs  []uint64       // epochs of the effects, in order
	refused int
}

// do carries out one command of a leader, or refuses it.
func (n *fakeNode) do(epoch uint64, f func()) error {
	leave, err := n.fence.Enter(epoch)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.refused++
		return err
	}
	defer leave()
	n.epochs = append(n.epochs, epoch)
	f()
	return nil
}

func (n *fakeNode) add(f controller.Fault) {
	if !n.faults[f.ID] {
		n.faults[f.ID] = true
		n.applied[f.ID]++
	}
}

// fakeEffects connects one replica to the nodes. No call gets through while the replica is frozen.
type fakeEffects struct {
	c    *cluster
	self string
}

func (h fakeEffects) each(ctx context.Context, epoch uint64, f func(*fakeNode)) error {
	for _, n := range h.c.nodes {
		if err := h.c.unfrozen(ctx, h.self, true); err != nil {
			return err
		}
		if err := n.do(epoch, func() { f(n) }); err != nil {
			return err
		}
	}
	return nil
}

func (h fakeEffects) Adopt(ctx context.Context, epoch uint64, l *controller.Lab) error {
	return h.each(ctx, epoch, func(n *fakeNode) {
		for id := range n.faults { // independent of each other
			if l.Fault(id) == nil {
				delete(n.faults, id)
			}
		}
		for _, f := range l.Faults {
			if f.Stage == controller.StageOn {
				n.add(f)
			}
		}
	})
}

func (h fakeEffects) AddFaults(ctx context.Context, epoch uint64, _ *controller.Lab, all []controller.Fault) error {
	return h.each(ctx, epoch, func(n *fakeNode) {
		for _, f := range all {
			n.add(f)
		}
	})
}

func (h fakeEffects) RemoveFaults(ctx context.Context, epoch uint64, _ *controller.Lab, ids []string) error {
	return h.each(ctx, epoch, func(n *fakeNode) {
		for _, id := range ids {
			delete(n.faults, id)
		}
	})
}

func (h fakeEffects) SetGroup(ctx context.Context, epoch uint64, _ *controller.Lab, g *controller.Group, on bool) error {
	return h.each(ctx, epoch, func(n *fakeNode) {
		if delete(n.groups, g.Lower); on {
			n.groups[g.Lower] = true
		}
	})
}

// cluster is the replicas of a controller, and the nodes of a lab, in one process.
type cluster struct {
	t     *testing.T
	dir   string
	ids   []string
	nets  map[string]*Network
	all   map[string]*Replica
	nodes []*fakeNode
	fails chan error

	mu     sync.Mutex
	frozen map[string]chan struct{} // closed when the replica resumes
}

// fast are raft's times in tests.
func fast() Timing {
	return Timing{
		Heartbeat: 250 * time.Millisecond, Election: 250 * time.Millisecond, Lease: 200 * time.Millisecond, Call: 250 * time.Millisecond, Stall: 5 * time.Second,
		SnapshotAfter: 40, Trailing: 20,
	}
}

func newCluster(t *testing.T, n, nodes int) *cluster {
	t.Helper()
	// The paths of unix sockets have to be short.
	dir, err := os.MkdirTemp("", "ctl")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, dir: dir, nets: map[string]*Network{}, all: map[string]*Replica{}, frozen: map[string]chan struct{}{}, fails: make(chan error, 16)}
	for i := range n {
		c.ids = append(c.ids, fmt.Sprintf("controller%d", i))
	}
	for range nodes {
		c.nodes = append(c.nodes, &fakeNode{faults: map[string]bool{}, groups: map[uint32]bool{}, applied: map[string]int{}})
	}
	for _, id := range c.ids {
		if err := os.MkdirAll(filepath.Join(dir, id), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range c.ids {
		if c.nets[id], err = Listen(id, os.Stderr, func(id, name string) string { return filepath.Join(dir, id, name) }); err != nil {
			t.Fatal(err)
		}
		c.all[id], err = New(Config{
			ID: id, Replicas: c.ids, Network: c.nets[id], Data: filepath.Join(dir, id), Effects: fakeEffects{c, id}, Timing: fast(), Log: io.Discard,
			Fail: func(err error) { c.fails <- err },
		})
		if err != nil {
			t.Fatal(err)
		}
		c.serve(id)
	}
	t.Cleanup(func() {
		for _, id := range c.ids {
			c.freeze(id, false)
		}
		for _, id := range c.ids {
			if err := errors.Join(c.all[id].Close(), c.nets[id].Close()); err != nil {
				t.Errorf("close %s: %v", id, err)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return c
}

// serve accepts clients' calls for a replica.
func (c *cluster) serve(id string) {
	l, err := net.Listen("unix", filepath.Join(c.dir, id, "agent.sock"))
	if err != nil {
		c.t.Fatal(err)
	}
	s := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, q any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		if err := c.unfrozen(ctx, id, false); err != nil {
			return nil, err
		}
		r, err := h(ctx, q)
		return r, errors.Join(err, c.unfrozen(ctx, id, false))
	}))
	nodeapi.RegisterControllerServer(s, c.all[id])
	go func() { _ = s.Serve(l) }() // until it is stopped
	c.t.Cleanup(s.Stop)
}

// freeze stops a replica's traffic, its calls and its effects on nodes, or resumes all of them.
func (c *cluster) freeze(id string, on bool) {
	c.nets[id].Freeze(on)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch f := c.frozen[id]; {
	case on && f == nil:
		c.frozen[id] = make(chan struct{})
	case !on && f != nil:
		close(f)
		delete(c.frozen, id)
	}
}

// unfrozen waits until a replica is not frozen. A process that was stopped between two instructions
// continues from there: it makes the call that it was about to make, even if its context has ended.
func (c *cluster) unfrozen(ctx context.Context, id string, regardless bool) error {
	c.mu.Lock()
	f := c.frozen[id]
	c.mu.Unlock()
	if f == nil {
		return ctx.Err()
	}
	if regardless {
		<-f
		return nil
	}
	select {
	case <-f:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// client returns a client whose first call goes to the replica.
func (c *cluster) client(first int, o ...grpc.DialOption) *client.Client {
	c.t.Helper()
	var all []client.Replica
	for i := range c.ids {
		id := c.ids[(i+first)%len(c.ids)]
		all = append(all, client.Replica{ID: id, Target: "unix:" + filepath.Join(c.dir, id, "agent.sock")})
	}
	x, err := client.New(all, controller.Retry, o...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = x.Close() })
	return x
}

// leader waits until a replica leads that is not one of those given.
func (c *cluster) leader(not ...string) string {
	c.t.Helper()
	id := ""
	c.wait("a leader", func() bool {
		id = ""
		epoch := uint64(0)
		for _, x := range c.ids {
			if e := c.all[x].Leads(); e > epoch && !slices.Contains(not, x) {
				id, epoch = x, e
			}
		}
		return id != ""
	})
	return id
}

// wait waits until holds returns true.
func (c *cluster) wait(what string, holds func() bool) {
	c.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(90 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case err := <-c.fails:
			c.t.Fatalf("waiting for %s: %v", what, err)
		case <-late:
			c.t.Fatalf("%s does not come", what)
		}
	}
}

// heal undoes all failures: cuts, frozen replicas and crashes.
func (c *cluster) heal() {
	for _, id := range c.ids {
		c.freeze(id, false)
		c.nets[id].Cut(nil)
		if err := c.all[id].Start(); err != nil {
			c.t.Fatal(err)
		}
	}
}

// deploy brings a lab up, with a run that has not ended.
func (c *cluster) deploy(x *client.Client) {
	c.t.Helper()
	for _, cmd := range []controller.Command{
		{Kind: controller.KindDeploy, Lab: "lab1", Message: []byte(`{"schema":"mcastlab/lab/v1"}`)},
		{Kind: controller.KindPhase, Lab: "lab1", Phase: controller.PhaseUp},
		{Kind: controller.KindBegin, Lab: "lab1", Run: "run-1"},
	} {
		if _, err := x.Do(c.t.Context(), cmd); err != nil {
			c.t.Fatal(err)
		}
	}
}

// agree waits until all replicas have applied the same entries, compares their states byte by
// byte, and then compares the nodes with the state.
func (c *cluster) agree(x *client.Client) *controller.State {
	c.t.Helper()
	err := x.Await(c.t.Context(), "the last effect", func(s *controller.State) bool { return !s.Lab("lab1").Pending() })
	if err != nil {
		c.t.Fatal(err)
	}
	states := make([]*controller.State, len(c.ids))
	var raw [][]byte
	c.wait("equal states", func() bool {
		raw = raw[:0]
		for i, id := range c.ids {
			b, err := c.all[id].State()
			if err != nil {
				c.t.Fatal(err)
			}
			if states[i], err = controller.DecodeState(b); err != nil {
				c.t.Fatal(err)
			}
			raw = append(raw, b)
		}
		return !slices.ContainsFunc(states, func(s *controller.State) bool { return s.Applied != states[0].Applied })
	})
	for i := range raw {
		if string(raw[i]) != string(raw[0]) {
			c.t.Errorf("%s has applied as much as %s, but its state is\n%s\nand not\n%s", c.ids[i], c.ids[0], raw[i], raw[0])
		}
	}
	s := states[0]
	if len(s.Labs) == 0 {
		c.t.Fatal("the lab is gone")
	}
	c.wait("nodes that have what the state says", func() bool { return c.nodesAgree(s) == nil })
	for i, n := range c.nodes {
		n.mu.Lock()
		for id, times := range n.applied { // independent of each other
			if times > 1 {
				c.t.Errorf("node %d: fault %s was applied %d times", i, id, times)
			}
		}
		if !slices.IsSorted(n.epochs) {
			c.t.Errorf("node %d: a deposed leader has acted: %v", i, n.epochs)
		}
		n.mu.Unlock()
	}
	return s
}

func (c *cluster) nodesAgree(s *controller.State) error {
	for i, n := range c.nodes {
		n.mu.Lock()
		have := len(n.faults)
		for _, f := range s.Labs[0].Faults {
			if !n.faults[f.ID] {
				have = -1
			}
		}
		n.mu.Unlock()
		if have != len(s.Labs[0].Faults) {
			return fmt.Errorf("node %d does not have the faults of the state", i)
		}
	}
	return nil
}
