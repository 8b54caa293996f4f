// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/failpoint"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// Agent is the connection to a node's agent.
type Agent struct {
	Name string
	conn *grpc.ClientConn
	nodeapi.NodeClient
}

// MessageMax bounds one message in either direction.
const MessageMax = 16 << 20

// connect reaches the agents of all nodes, which must be there.
func (d agentCalls) connect(ctx context.Context) error {
	if err := d.Access.Await(ctx); err != nil {
		return err
	}
	return d.open()
}

// open prepares the connections to the agents of all nodes, which may be gone.
func (d agentCalls) open() error {
	if err := controllerSetupOf(d.Deployed).openPlane(); err != nil {
		return err
	}
	return d.Each(func(i int) (err error) {
		d.Nodes[i], err = d.Access.Dial(i)
		return err
	})
}

func (d *Deployed) agentSocket(node string) string {
	return filepath.Join(d.Store.NodePath(node), nodeapi.AgentSocket)
}

// startWait bounds how long a node may take to open its sockets. Whether it runs at all is
// looked at meanwhile.
const (
	startWait = time.Minute
	lookEvery = 250 * time.Millisecond
)

// runs reports whether a node's process exists.
func (d agentCalls) runs(ctx context.Context, node string) (bool, error) {
	found, err := d.Options.Engine.Find(ctx, d.Lab.Name)
	for _, n := range found {
		if n.Name == node && n.PID > 0 {
			return true, nil
		}
	}
	return false, err
}

// listens waits until a node's agent takes calls: then it has all its sockets open.
func (d agentCalls) listens(ctx context.Context, node int) error {
	return d.listensAt(ctx, d.Graph.Nodes[node].Name)
}

// listensAt is listens of a node by its name.
func (d agentCalls) listensAt(ctx context.Context, node string) error {
	path := filepath.Join(d.Store.NodePath(node), nodeapi.AgentSocket)
	look := time.Now().Add(lookEvery)
	for until := time.Now().Add(startWait); ; {
		if c, err := net.Dial("unix", path); err == nil {
			return c.Close()
		}
		if time.Now().After(look) {
			there, err := d.runs(ctx, node)
			if err != nil {
				return err
			}
			if !there {
				return d.died(ctx, node)
			}
			if time.Now().After(until) {
				return fmt.Errorf("node %s runs, but takes no calls after %v: is the server overloaded?", node, startWait)
			}
			look = time.Now().Add(lookEvery)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// died returns an error with the last line in the log of a node that does not answer.
func (d agentCalls) died(ctx context.Context, node string) error {
	log, err := d.Options.Engine.Logs(ctx, d.Lab.Name, node)
	if err != nil || len(log) == 0 {
		return fmt.Errorf("node %s did not start and left no log", node)
	}
	return fmt.Errorf("node %s did not start: %s", node, lastLine(log))
}

// callWait bounds a call of an agent, which answers at once; what takes longer is a stream.
// On an overloaded server a node may not run for a while.
const callWait = time.Minute

// dial prepares the connection to an agent. Each call ends within wait.
func dial(name, socket string, wait time.Duration) (*Agent, error) {
	return dialAt(name, "unix:"+socket, wait)
}

// dialAt is dial for a target of gRPC's.
func dialAt(name, target string, wait time.Duration, more ...grpc.DialOption) (*Agent, error) {
	// The socket's folder is what protects it: only root and the node's user get in. On the way to other servers it is TLS.
	conn, err := grpc.NewClient(target, append(append(more, nodeapi.Plain()...),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(within(wait)),
		grpc.WithDefaultServiceConfig(nodeapi.Again), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MessageMax), grpc.MaxCallSendMsgSize(MessageMax)))...)
	if err != nil {
		return nil, fmt.Errorf("reach node %s: %w", name, err)
	}
	return &Agent{name, conn, nodeapi.NewNodeClient(conn)}, nil
}

// DialAgent prepares the connection to the agent of a node on another server. Each call ends within callWait.
func DialAgent(name, target string, more ...grpc.DialOption) (*Agent, error) {
	return dialAt(name, target, callWait, more...)
}

// within ends calls that take longer than wait: a node that is stopped, or hangs, would be
// waited for without end, and nobody would know what for. Each call is an effect that tests
// may make go wrong.
func within(wait time.Duration) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, o ...grpc.CallOption) error {
		outer := ctx
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		err := failpoint.At(method, func() error { return call(ctx, method, req, reply, conn, o...) })
		if status.Code(err) == codes.DeadlineExceeded && outer.Err() == nil {
			return status.Errorf(codes.DeadlineExceeded, "it has not answered for %v: check whether its process is stopped", wait)
		}
		return err
	}
}

// restDilation is the dilation of a running lab while no run sets another.
const restDilation = 1000

// RestClock returns the clock that nodes have; with a nil rate it is a new one that starts now.
func (d *Deployed) RestClock(rate *counters.Rate) (live.Rate, error) {
	m, err := live.NewMonotonic()
	if err != nil {
		return live.Rate{}, err
	}
	r := live.Rate{Mono: m.Now(), Dilation: float64(d.Lab.Runtime.Dilation)}
	switch {
	case r.Dilation != 0:
	case len(d.Lab.Externals()) > 0:
		r.Dilation = 1 // external devices live in wall time
	default:
		r.Dilation = restDilation
	}
	if rate != nil {
		r = live.Rate{Mono: rate.Mono, Lab: vtime.Time(rate.Lab), Dilation: rate.Dilation}
	}
	return r, nil
}

// configure makes nodes what the lab file says they are, with the clock that the others have.
// From then on the nodes refuse leaders of earlier epochs.
func (d agentCalls) configure(ctx context.Context, nodes map[int]bool, r live.Rate, epoch uint64) error {
	lab, err := labspec.Encode(d.Lab)
	if err != nil {
		return err
	}
	return d.Each(func(i int) error {
		if !nodes[i] {
			return nil
		}
		c := d.Nodes[i]
		if _, err := c.Configure(ctx, &nodeapi.ConfigureRequest{Node: c.Name, Lab: lab, Rate: d.rateAt(c.Name, r), Epoch: epoch}); err != nil {
			return fmt.Errorf("configure node %s: %w", c.Name, err)
		}
		return nil
	})
}

// States returns the state that each node reports, in node order.
func (d *Deployed) States(ctx context.Context) ([]counters.Node, error) {
	if _, states, ok, err := d.lookAtRun(ctx); ok {
		return states, err
	}
	all := make([]counters.Node, len(d.Nodes))
	err := d.Each(func(i int) error {
		r, err := d.Nodes[i].Inspect(ctx, &nodeapi.InspectRequest{})
		if err != nil {
			return fmt.Errorf("inspect node %s: %w", d.Nodes[i].Name, err)
		}
		all[i], err = r.Decode()
		return err
	})
	return all, err
}

// Look returns the state that each node reports; a node that does not answer is marked as gone.
func (d *Deployed) Look(ctx context.Context) []counters.Node {
	if _, states, ok, err := d.lookAtRun(ctx); ok && err == nil {
		return states
	}
	all := make([]counters.Node, len(d.Nodes))
	_ = d.Each(func(i int) error { // a node that fails is marked in the result
		all[i] = counters.Node{Node: d.Nodes[i].Name, Kind: "gone"}
		if r, err := d.Nodes[i].Inspect(ctx, &nodeapi.InspectRequest{}); err == nil {
			if s, err := r.Decode(); err == nil {
				all[i] = s
			}
		}
		return nil
	})
	return all
}

// Logs returns the log of a node.
func (d *Deployed) Logs(ctx context.Context, node string) ([]byte, error) {
	if _, ok := d.Graph.Find(node); !ok && !slices.Contains(d.Lab.Replicas(), node) {
		return nil, fmt.Errorf("lab %s has no node %s", d.Lab.Name, node)
	}
	return d.Options.Engine.Logs(ctx, d.Lab.Name, node)
}

// SaveLogs writes the nodes' logs to logs/NODE.log of a run's folder. A node with an empty log
// gets no file.
func (d *Deployed) SaveLogs(ctx context.Context, folder *runner.Folder) error {
	return d.Each(func(i int) error {
		name := d.Graph.Nodes[i].Name
		log, err := d.Options.Engine.Logs(ctx, d.Lab.Name, name)
		if err != nil || len(log) == 0 {
			return err
		}
		if err := errors.Join(folder.MkdirAll("logs"), folder.WriteFile(filepath.Join("logs", name+".log"), log)); err != nil {
			return fmt.Errorf("save log of node %s: %w", name, err)
		}
		return nil
	})
}

// lastLine returns the last line of a log.
func lastLine(log []byte) string {
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	return string(lines[len(lines)-1])
}

// RestoreWait is the time limit for nodes to restore their configurations.
const RestoreWait = 10 * time.Second
