// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"google.golang.org/grpc"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/drivers/lockstep"
	"github.com/mcastlab/mcastlab/drivers/netdev"
	"github.com/mcastlab/mcastlab/drivers/sim"
	controllers "github.com/mcastlab/mcastlab/internal/controller/client"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/internal/trunk"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// NodeAccess reaches the nodes of a lab: those of one on this server, or those of one on several.
type NodeAccess interface {
	// Local reports whether all nodes are on this server.
	Local() bool
	// Where names a node, and its server if the lab has several.
	Where(node string) string
	// Blame names the server of a node in what failed there, if the lab has several.
	Blame(node int, err error) error
	// ServerOf returns the server of a node or controller of a lab on several.
	ServerOf(node string) (*engine.Server, bool)
	// Call calls the server of a node of a lab on several. The connection is what the answer leaves.
	Call(ctx context.Context, node string, q *shareapi.Open) (net.Conn, error)

	// Await waits until the agent of each node takes calls.
	Await(ctx context.Context) error
	// Dial prepares the connection to the agent of a node.
	Dial(node int) (*Agent, error)
	// DialMetrics returns what connects to the metrics of a node.
	DialMetrics(node int) Dialer
	// Controller returns how a controller is reached.
	Controller(name string) (controllers.Replica, []grpc.DialOption)
	// EachReached calls f for all nodes. In a lab on several servers it first calls reached for each of them, with the error of
	// one that does not answer, and leaves out the nodes of those for which reached returns an error.
	EachReached(ctx context.Context, reached func(m *engine.Server, err error) error, f func(node int) error) error
	// Tap opens a capture at a port.
	Tap(ctx context.Context, e topo.End) (FrameSource, error)
	// PortOf returns whether the interface of an external host has a carrier, and its number; 0: it is not there.
	PortOf(ctx context.Context, host string) (shareapi.Outside, error)

	// Drift looks for parts that are gone, and Repair restores them.
	Drift(ctx context.Context) (Drift, error)
	Repair(ctx context.Context, x Drift) error

	// Coordinator makes the coordinator of a run in virtual time, and HandOver hands the nodes its memory.
	Coordinator(ctx context.Context, cfg *sim.Config) (*lockstep.Coordinator, error)
	HandOver(c *lockstep.Coordinator) error
	// TagKey returns a key of frames' tags if others may reach the network between nodes, and nil otherwise.
	TagKey() []byte

	// CPUTime returns the CPU time that the lab has taken so far, in seconds, by server; CPUTimeMost what it has
	// taken between two looks, and Cores how many processor cores it has.
	CPUTime(ctx context.Context) ([]float64, error)
	CPUTimeMost(from, to []float64) float64
	Cores() int

	// AskClocks asks the servers for their clocks. Ahead returns by how much CLOCK_MONOTONIC of a node's server is ahead
	// of the one here, ClockUncertainty by how much lab time on two servers may differ, and Trip how long a
	// message to the farthest server and back takes, all in ns of wall time.
	AskClocks(ctx context.Context) error
	Ahead(node string) int64
	ClockUncertainty() int64
	Trip() int64

	// Trunks returns what links in user space between servers have carried.
	Trunks(ctx context.Context) []Trunk
}

// Trunk holds the counters of one server's end of links in user space, since the lab was deployed.
type Trunk struct {
	Server string `json:"machine"`
	To     string `json:"to"` // server at the other end
	Error  string `json:"error,omitempty"`
	trunk.Counters
}

// localNodes are the nodes of a lab on this server.
type localNodes struct{ d *Deployed }

// LocalAccess reaches the nodes of a lab on this server.
func LocalAccess(d *Deployed) NodeAccess { return &localNodes{d} }

// Local reports that all nodes are on this server.
func (l *localNodes) Local() bool { return true }

// Where returns the name of a node.
func (l *localNodes) Where(node string) string { return node }

// Blame returns the error: there is no other server.
func (l *localNodes) Blame(_ int, err error) error { return err }

// ServerOf returns none.
func (l *localNodes) ServerOf(string) (*engine.Server, bool) { return nil, false }

// Call refuses: there is no other server.
func (l *localNodes) Call(_ context.Context, node string, _ *shareapi.Open) (net.Conn, error) {
	return nil, fmt.Errorf("node %s of lab %s is on this server", node, l.d.Lab.Name)
}

// Await waits until the agent of each node takes calls.
func (l *localNodes) Await(ctx context.Context) error {
	return l.d.Each(func(i int) error { return agentCallsOf(l.d).listens(ctx, i) })
}

// Dial prepares the connection to the agent of a node.
func (l *localNodes) Dial(node int) (*Agent, error) {
	name := l.d.Graph.Nodes[node].Name
	return dial(name, l.d.agentSocket(name), callWait)
}

// DialMetrics returns what connects to the metrics of a node.
func (l *localNodes) DialMetrics(node int) Dialer {
	return dialerOf(filepath.Join(l.d.Store.NodePath(l.d.Graph.Nodes[node].Name), counters.MetricsSocket))
}

// Controller returns how a controller is reached.
func (l *localNodes) Controller(name string) (controllers.Replica, []grpc.DialOption) {
	return controllers.Replica{ID: name, Target: "unix:" + l.d.agentSocket(name)}, nil
}

// EachReached calls f for all nodes.
func (l *localNodes) EachReached(_ context.Context, _ func(m *engine.Server, err error) error, f func(node int) error) error {
	return l.d.Each(f)
}

// PortOf returns whether the interface of an external host has a carrier, and its number.
func (l *localNodes) PortOf(_ context.Context, host string) (shareapi.Outside, error) {
	name := l.d.Options.Attach[host]
	return shareapi.Outside{Carrier: netdev.Carrier(name), Index: netdev.Index(name)}, nil
}

// Coordinator makes the coordinator of a run in virtual time.
func (l *localNodes) Coordinator(_ context.Context, cfg *sim.Config) (*lockstep.Coordinator, error) {
	return lockstep.NewCoordinator(cfg)
}

// HandOver hands the nodes the memory of a run.
func (l *localNodes) HandOver(c *lockstep.Coordinator) error {
	return c.HandOver(func(node int, files []*os.File) error { return HandOverMemory(l.d, node, files) })
}

// TagKey returns none: nobody else reaches the links.
func (l *localNodes) TagKey() []byte { return nil }

// CPUTime returns the CPU time that the lab has taken so far, in seconds.
func (l *localNodes) CPUTime(ctx context.Context) ([]float64, error) {
	s, err := CPUTimeHere(ctx, l.d.Options.Engine, l.d.Lab.Name)
	return []float64{s}, err
}

// CPUTimeMost returns the CPU time that the lab has taken between two looks.
func (l *localNodes) CPUTimeMost(from, to []float64) (most float64) {
	for i := range min(len(from), len(to)) {
		most = max(most, to[i]-from[i])
	}
	return most
}

// Cores returns how many processor cores this server has.
func (l *localNodes) Cores() int { return runtime.NumCPU() }

// AskClocks does nothing: there is one clock.
func (l *localNodes) AskClocks(context.Context) error { return nil }

// Ahead returns 0.
func (l *localNodes) Ahead(string) int64 { return 0 }

// ClockUncertainty returns 0.
func (l *localNodes) ClockUncertainty() int64 { return 0 }

// Trip returns 0.
func (l *localNodes) Trip() int64 { return 0 }

// Trunks returns none.
func (l *localNodes) Trunks(context.Context) []Trunk { return nil }
