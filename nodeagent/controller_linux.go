// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/controller/replica"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/failpoint"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
)

// ControllerOptions describe the process of a controller.
type ControllerOptions struct {
	Name     string
	Replicas int    // controllers the lab has
	Dir      string // folder of its sockets
	Data     string // folder of the state that survives its death
	Nodes    string // folder that holds the folders of all nodes' sockets
	Version  string
}

// ServeController runs a controller until ctx ends or its disk fails. It returns the disk's error.
func ServeController(ctx context.Context, o ControllerOptions) (err error) {
	failpoint.Node("dies-at-start")
	if err := giveUpPrivileges(); err != nil {
		return err
	}
	if err := nameProcess(); err != nil {
		return err
	}
	var all []string
	for i := range o.Replicas {
		all = append(all, "controller"+strconv.Itoa(i))
	}
	network, err := replica.Listen(o.Name, os.Stderr, func(id, name string) string {
		if id == o.Name {
			return filepath.Join(o.Dir, name)
		}
		return filepath.Join(o.Nodes, id, name)
	})
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	r, err := replica.New(replica.Config{
		ID: o.Name, Replicas: all, Network: network, Data: o.Data, Effects: newAgentClients(o.Nodes), Log: os.Stderr, Fail: fail,
	})
	if err != nil {
		return errors.Join(err, network.Close())
	}
	defer func() { err = errors.Join(err, r.Close(), network.Close()) }()
	calls, err := listen(o.Dir, nodeapi.AgentSocket)
	if err != nil {
		return err
	}
	s := grpc.NewServer(grpc.MaxRecvMsgSize(messageMax), grpc.MaxSendMsgSize(messageMax), grpc.MaxConcurrentStreams(64))
	nodeapi.RegisterControllerServer(s, r)
	nodeapi.RegisterNodeServer(s, &controllerNode{o: o, replica: r, network: network})
	go func() {
		<-ctx.Done()
		s.Stop()
	}()
	if err := s.Serve(calls); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve: %w", err)
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return fmt.Errorf("controller %s: %w", o.Name, cause)
	}
	return nil
}

// controllerNode holds the parts that a controller shares with other nodes: a clock, and faults applied
// to it.
type controllerNode struct {
	nodeapi.UnimplementedNodeServer
	o       ControllerOptions
	replica *replica.Replica
	network *replica.Network
	down    atomic.Bool // a fault has the controller down
	act     sync.Mutex  // held while the replica crashes or comes back

	mu      sync.Mutex
	lab     *lab.Lab
	rate    live.Rate
	clock   live.Clock
	mono    *live.Monotonic
	faults  *faults.Timeline
	calls   []due
	changed chan struct{} // closed when the clock or the calls have changed
	stop    context.CancelFunc
}

// due is a call that a timeline has asked for.
type due struct {
	at vtime.Time
	f  func(now vtime.Time)
}

// Configure implements nodeapi.NodeServer. Faults of an earlier configuration are over.
func (n *controllerNode) Configure(_ context.Context, q *nodeapi.ConfigureRequest) (*nodeapi.ConfigureReply, error) {
	bad := func(err error) (*nodeapi.ConfigureReply, error) {
		return nil, status.Errorf(codes.InvalidArgument, "configure %s: %v", n.o.Name, err)
	}
	l, err := labspec.Decode(q.Lab)
	if err != nil {
		return bad(err)
	}
	g, err := labspec.Graph(l)
	if err != nil {
		return bad(err)
	}
	if q.Rate == nil || !(q.Rate.Dilation >= 1) {
		return bad(errors.New("the dilation of the clock has to be at least 1"))
	}
	mono, err := live.NewMonotonic()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.faults != nil {
		n.faults.Remove(n.now(), "")
		n.stop()
	}
	ctx, stop := context.WithCancel(context.Background())
	n.lab, n.mono, n.clock, n.rate, n.calls, n.changed, n.stop = l, mono, live.Clock{}, rateOf(q.Rate), nil, make(chan struct{}), stop
	n.clock.Set(n.rate)
	t := controlTarget{n: n}
	n.faults = faults.NewTimeline(faults.Config{
		Graph: g, Seed: l.Seed, Owns: func(int) bool { return false }, Controller: n.o.Name,
	}, faults.Target{Clock: t, Control: t})
	go n.run(ctx)
	return &nodeapi.ConfigureReply{Pid: uint32(os.Getpid()), Version: n.o.Version}, nil
}

// now returns the lab time. The lock is held.
func (n *controllerNode) now() vtime.Time { return n.clock.Lab(n.mono.Now()) }

// news wakes the goroutine that makes the calls. The lock is held.
func (n *controllerNode) news() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// run makes the calls that the timeline asks for, when they are due.
func (n *controllerNode) run(ctx context.Context) {
	for {
		n.mu.Lock()
		for ctx.Err() == nil && n.call() {
		}
		wait, changed := time.Hour, n.changed
		for _, c := range n.calls {
			wait = min(wait, max(0, time.Duration(n.clock.Mono(c.at)-n.mono.Now())))
		}
		n.mu.Unlock()
		timer := time.NewTimer(wait + time.Microsecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// call makes the first call that is due. The lock is held.
func (n *controllerNode) call() bool {
	first, now := -1, n.now()
	for i, c := range n.calls {
		if c.at <= now && (first < 0 || c.at < n.calls[first].at) {
			first = i
		}
	}
	if first < 0 {
		return false
	}
	c := n.calls[first]
	n.calls = append(n.calls[:first], n.calls[first+1:]...)
	c.f(max(c.at, now))
	return true
}

// configured takes the lock if the node has a lab.
func (n *controllerNode) configured() error {
	n.mu.Lock()
	if n.faults == nil {
		n.mu.Unlock()
		return status.Error(codes.FailedPrecondition, "the node is not configured yet")
	}
	return nil
}

// SetRate implements nodeapi.NodeServer. A controller sends no frames that could be late.
func (n *controllerNode) SetRate(_ context.Context, r *nodeapi.Rate) (*nodeapi.LagReply, error) {
	if err := n.configured(); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	n.rate = rateOf(r)
	n.clock.Set(n.rate)
	n.news()
	lag := live.NewLag()
	return &nodeapi.LagReply{Sent: nodeapi.HistogramOf(lag.Sent), Acted: nodeapi.HistogramOf(lag.Acted)}, nil
}

// AddFaults implements nodeapi.NodeServer.
func (n *controllerNode) AddFaults(_ context.Context, q *nodeapi.FaultList) (*nodeapi.FaultList, error) {
	if err := n.configured(); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	g, err := labspec.Graph(n.lab)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	var specs []faults.Spec
	for _, f := range q.Faults {
		s, err := specOf(n.lab, g, f)
		if err == nil && !s.Kind.OfControl() {
			err = fmt.Errorf("%s does not apply to controllers", s.Kind)
		}
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "fault %s: %v", f.Id, err)
		}
		specs = append(specs, s)
	}
	for _, s := range specs {
		n.faults.Add(n.now(), s)
	}
	n.news()
	return &nodeapi.FaultList{}, nil
}

// ListFaults implements nodeapi.NodeServer.
func (n *controllerNode) ListFaults(context.Context, *nodeapi.InspectRequest) (*nodeapi.FaultList, error) {
	if err := n.configured(); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	return listed(n.faults.List(n.now())), nil
}

// ResetFaults implements nodeapi.NodeServer.
func (n *controllerNode) ResetFaults(_ context.Context, q *nodeapi.ResetRequest) (*nodeapi.FaultList, error) {
	if err := n.configured(); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	gone := &nodeapi.FaultList{}
	for _, id := range n.faults.RemoveIf(n.now(), goes(q)) {
		gone.Faults = append(gone.Faults, &nodeapi.Fault{Id: id})
	}
	return gone, nil
}

// Inspect implements nodeapi.NodeServer.
func (n *controllerNode) Inspect(context.Context, *nodeapi.InspectRequest) (*nodeapi.InspectReply, error) {
	if err := n.configured(); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	s := counters.Node{Node: n.o.Name, Kind: "controller", LabUS: n.now().Microseconds()}
	s.Rate = &counters.Rate{Mono: n.rate.Mono, Lab: int64(n.rate.Lab), Dilation: n.rate.Dilation}
	return inspected(s)
}
