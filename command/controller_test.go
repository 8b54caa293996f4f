// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/internal/controller"
	"github.com/mcastlab/mcastlab/internal/controller/client"
	"github.com/mcastlab/mcastlab/internal/controller/controllertest"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
)

// watched is the agent of a node that notes what leaders ask of it.
type watched struct {
	nodeapi.UnimplementedNodeServer
	fence nodeapi.Fence

	mu      sync.Mutex
	have    []string
	applied map[string]int
	epochs  []uint64
}

// note takes down in which epoch something is done. The fence's lock is held by the call.
func (w *watched) note(ctx context.Context) {
	e, _ := nodeapi.EpochOf(ctx)
	w.epochs = append(w.epochs, e)
}

func (w *watched) AddFaults(ctx context.Context, q *nodeapi.FaultList) (*nodeapi.FaultList, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(ctx)
	for _, f := range q.Faults {
		if !slices.Contains(w.have, f.Id) { // as nodes do
			w.have = append(w.have, f.Id)
			w.applied[f.Id]++
		}
	}
	return q, nil
}

func (w *watched) ListFaults(context.Context, *nodeapi.InspectRequest) (*nodeapi.FaultList, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &nodeapi.FaultList{}
	for _, id := range w.have {
		l.Faults = append(l.Faults, &nodeapi.Fault{Id: id})
	}
	return l, nil
}

func (w *watched) ResetFaults(ctx context.Context, q *nodeapi.ResetRequest) (*nodeapi.FaultList, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(ctx)
	w.have = slices.DeleteFunc(w.have, func(id string) bool { return slices.Contains(q.Ids, id) })
	return &nodeapi.FaultList{}, nil
}

func (w *watched) SetMulticast(ctx context.Context, _ *nodeapi.MulticastEntry) (*nodeapi.MulticastReply, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(ctx)
	return &nodeapi.MulticastReply{}, nil
}

// replicas are controllers as processes of the program, and nodes that are watched.
type replicas struct {
	t     *testing.T
	dir   string
	cmds  map[string]*exec.Cmd
	nodes map[string]*watched
}

func newReplicas(t *testing.T, nodes ...string) *replicas {
	t.Helper()
	dir, err := os.MkdirTemp("", "ctl") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	r := &replicas{t: t, dir: dir, cmds: map[string]*exec.Cmd{}, nodes: map[string]*watched{}}
	t.Cleanup(func() {
		for _, c := range r.cmds { // independent of each other
			_ = c.Process.Kill()
			_ = c.Wait()
		}
		_ = os.RemoveAll(dir)
	})
	for _, n := range nodes {
		if err := os.MkdirAll(filepath.Join(dir, "n", n), 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", filepath.Join(dir, "n", n, nodeapi.AgentSocket))
		if err != nil {
			t.Fatal(err)
		}
		w := &watched{applied: map[string]int{}}
		s := grpc.NewServer(grpc.UnaryInterceptor(w.fence.Intercept))
		nodeapi.RegisterNodeServer(s, w)
		go func() { _ = s.Serve(l) }() // until it is stopped
		t.Cleanup(s.Stop)
		r.nodes[n] = w
	}
	for i := range 3 {
		id := fmt.Sprintf("controller%d", i)
		for _, d := range []string{"n", "d"} {
			if err := os.MkdirAll(filepath.Join(dir, d, id), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 3 {
		r.start(fmt.Sprintf("controller%d", i))
	}
	return r
}

func (r *replicas) start(id string) {
	r.t.Helper()
	n := filepath.Join(r.dir, "n")
	cmd := exec.Command(program1(r.t), "node", "--dir", filepath.Join(n, id), "--data", filepath.Join(r.dir, "d", id), "--controller", id, "--replicas", "3", "--nodes", n)
	cmd.Stderr = os.Stderr
	if !testing.Verbose() {
		cmd.Stderr = nil
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.cmds[id] = cmd
}

func (r *replicas) client(first int) *client.Client {
	r.t.Helper()
	var all []client.Replica
	for i := range 3 {
		id := fmt.Sprintf("controller%d", (i+first)%3)
		all = append(all, client.Replica{ID: id, Target: "unix:" + filepath.Join(r.dir, "n", id, nodeapi.AgentSocket)})
	}
	c, err := client.New(all, controller.Retry)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// leader waits for a replica to lead that is not the one given.
func (r *replicas) leader(c *client.Client, not string) (id string) {
	r.t.Helper()
	waitLong(r.t, func() bool {
		id = ""
		term := uint64(0)
		for _, s := range c.Status(r.t.Context()) {
			if s.State == "leader" && s.ID != not && s.Term > term {
				id, term = s.ID, s.Term
			}
		}
		return id != ""
	})
	return id
}

// fabricOf is a lab of its own nodes: a state with two labs tells the nodes of each.
func fabricOf(t *testing.T, name, a, b, sw string) []byte {
	t.Helper()
	l, err := lab.Parse("lab", fmt.Appendf(nil, "name: %s\ntopology: {custom: {hosts: [%s, %s], switches: [%s], links: [%s-%s, %s-%s]}}\ncontrollers: 3\n", name, a, b, sw, a, sw, b, sw))
	if err != nil {
		t.Fatal(err)
	}
	message, err := labspec.Encode(l)
	if err != nil {
		t.Fatal(err)
	}
	return message
}

// lives deploys a lab and runs something in it, over and over, until stop is closed. Each step must
// be there once: the configuration's number and the McstIDs say so.
func lives(ctx context.Context, t *testing.T, c *client.Client, fabric []byte, stop <-chan struct{}) (rounds int) {
	do := func(cmd controller.Command) controller.Result {
		cmd.Lab = "lab2"
		r, err := c.Do(ctx, cmd)
		if err != nil {
			t.Errorf("%s: %v; replicas: %+v", cmd.Kind, err, c.Status(ctx))
		}
		return r
	}
	for generation := uint64(0); ; rounds++ {
		select {
		case <-stop:
			return rounds
		default:
		}
		do(controller.Command{Kind: controller.KindDeploy, Message: fabric})
		for _, p := range []string{controller.PhaseStarting, controller.PhaseWiring, controller.PhaseConfiguring, controller.PhaseUp} {
			r := do(controller.Command{Kind: controller.KindPhase, Phase: p})
			if p == controller.PhaseConfiguring {
				generation++
			}
			if r.Generation != generation {
				t.Errorf("round %d, %s: configured %d times, want %d", rounds, p, r.Generation, generation)
				return rounds
			}
		}
		run := fmt.Sprintf("run-%d", rounds)
		do(controller.Command{Kind: controller.KindBegin, Run: run})
		if r := do(controller.Command{Kind: controller.KindLease, Run: run, Hosts: []uint32{0x0a000001, 0x0a000002}}); int(r.Lower) != rounds+1 {
			t.Errorf("round %d: McstID %d", rounds, r.Lower)
			return rounds
		}
		do(controller.Command{Kind: controller.KindEnd, Run: run})
	}
}

// TestControllerKilled: three controllers are processes; the leader is killed or stopped again and
// again, in the middle of deployments, registrations, timelines and runs. Nothing that was
// acknowledged is lost, nothing takes effect twice, and a stopped leader cannot act when it
// resumes.
func TestControllerKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("elections take their time")
	}
	kills := 5
	if os.Getenv("MCASTLAB_SOAK") != "" {
		kills = 200
	}
	r := newReplicas(t, "h0", "h1", "leaf0", "x0", "x1", "y0")
	x := r.client(0)
	for _, cmd := range []controller.Command{
		{Kind: controller.KindDeploy, Message: fabricOf(t, "lab1", "h0", "h1", "leaf0")},
		{Kind: controller.KindPhase, Phase: controller.PhaseUp}, {Kind: controller.KindBegin, Run: controllertest.Run},
	} {
		cmd.Lab = controllertest.Lab
		if _, err := x.Do(t.Context(), cmd); err != nil {
			t.Fatal(err)
		}
	}
	h, stop, fabric := controllertest.New(), make(chan struct{}), fabricOf(t, "lab2", "x0", "x1", "y0")
	var all sync.WaitGroup
	rounds := 0
	all.Go(func() { rounds = lives(t.Context(), t, r.client(0), fabric, stop) })
	for who := range 2 {
		c := r.client(who + 1)
		all.Go(func() { h.Work(t.Context(), t, who, c, prng.New(uint64(who)), stop) })
	}
	killed, stopped := 0, 0
	for k := range kills {
		<-time.After(time.Duration(rand.IntN(500)) * time.Millisecond)
		leader := r.leader(x, "")
		p := r.cmds[leader].Process
		t.Logf("%s: %d: %s leads", time.Now().UTC().Format("15:04:05.000"), k, leader)
		if k%3 == 2 {
			stopped++
			if err := p.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			r.leader(x, leader)
			if err := p.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			continue
		}
		killed++
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = r.cmds[leader].Wait()
		if k%2 == 0 { // the others go on without it; else it comes back while they elect
			r.leader(x, leader)
		}
		r.start(leader)
	}
	close(stop)
	all.Wait()
	h.Read(t.Context(), 9, x)
	h.Check(t, "go test ./command -run ControllerKilled")
	r.agree(x)
	t.Logf("%d killed, %d stopped; %d deployments and runs", killed, stopped, rounds)
	if rounds == 0 {
		t.Error("no deployment has come to its end")
	}
}

// agree compares the nodes with the state, and looks whether a deposed leader has acted.
func (r *replicas) agree(x *client.Client) {
	t := r.t
	t.Helper()
	var want []string
	err := x.Await(t.Context(), "the last effect", func(s *controller.State) bool {
		want = nil
		for _, f := range s.Lab(controllertest.Lab).Faults {
			want = append(want, f.ID)
		}
		return !s.Lab(controllertest.Lab).Pending() && !s.Lab("lab2").Pending()
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	for name, w := range r.nodes { // independent of each other
		w.mu.Lock()
		have := slices.Sorted(slices.Values(w.have))
		if !strings.HasPrefix(name, "x") && name != "y0" && !slices.Equal(have, want) {
			t.Errorf("%s has faults %v, want %v", name, have, want)
		}
		for id, n := range w.applied { // independent of each other
			if n > 1 {
				t.Errorf("%s: fault %s was applied %d times", name, id, n)
			}
		}
		if !slices.IsSorted(w.epochs) {
			t.Errorf("%s: a deposed leader has acted: %v", name, w.epochs)
		}
		w.mu.Unlock()
	}
}
