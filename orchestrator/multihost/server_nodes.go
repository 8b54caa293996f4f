// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc"

	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// serverNodes are the nodes of a lab on several servers.
type serverNodes struct {
	d         *orchestrator.Deployed
	servers   engine.Spread
	placement *engine.Placement
	clocks    serverClocks
}

// Blame names the server of a node in what failed there: it may be the server that has gone.
func (s *serverNodes) Blame(node int, err error) error {
	if err == nil {
		return err
	}
	m := &s.placement.Servers[s.placement.At[node]]
	if strings.Contains(err.Error(), m.String()) { // who called the server has named it
		return err
	}
	return fmt.Errorf("server %s: %w", m, err)
}

// eachServer calls f for all servers of the lab at once.
func (s *serverNodes) eachServer(f func(i int, m *engine.Server) error) error {
	errs := make([]error, len(s.placement.Servers))
	var all sync.WaitGroup
	for i := range s.placement.Servers {
		all.Go(func() { errs[i] = f(i, &s.placement.Servers[i]) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// askShare calls the service of the process of a server's share.
func (s *serverNodes) askShare(ctx context.Context, m *engine.Server, f func(shareapi.ShareClient) error) error {
	c, err := s.servers.Dial(ctx, s.d.Lab.Name, m)
	if err != nil {
		return err
	}
	if err := shareapi.Ask(ctx, c, f); err != nil {
		return fmt.Errorf("server %s: %w", m, err)
	}
	return nil
}

// callShare opens a stream at the process of a server's share.
func (s *serverNodes) callShare(ctx context.Context, m *engine.Server, q *shareapi.Open) (net.Conn, error) {
	c, err := s.servers.Dial(ctx, s.d.Lab.Name, m)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if err := shareapi.Begin(c, q); err != nil {
		_ = c.Close() // nothing is under way
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("server %s: %w", m, err)
	}
	return c, nil
}

// Where returns the name of a node or controller with that of its server.
func (s *serverNodes) Where(node string) string {
	at, ok := s.serverOf(node)
	if !ok {
		return node
	}
	return fmt.Sprintf("%s on server %s", node, &s.placement.Servers[at])
}

// ServerOf returns the server of a node or controller.
func (s *serverNodes) ServerOf(node string) (server *engine.Server, ok bool) {
	at, ok := s.serverOf(node)
	if !ok {
		return nil, false
	}
	return &s.placement.Servers[at], true
}

// Call opens a stream at the server of a node.
func (s *serverNodes) Call(ctx context.Context, node string, q *shareapi.Open) (net.Conn, error) {
	server, ok := s.ServerOf(node)
	if !ok {
		return nil, fmt.Errorf("no server of lab %s has it", s.d.Lab.Name)
	}
	return s.callShare(ctx, server, q)
}

// Local reports that nodes are on several servers.
func (s *serverNodes) Local() bool { return false }

// Await does nothing: the servers have waited for their nodes.
func (s *serverNodes) Await(context.Context) error { return nil }

// serverOf returns the number of the server of a node or controller.
func (s *serverNodes) serverOf(node string) (server int, ok bool) {
	if i, found := s.d.Graph.Find(node); found {
		return s.placement.At[i], true
	}
	return controllerAt(s.d, node, s.placement.Controllers)
}

// Dial prepares the connection to the agent of a node, wherever it is.
func (s *serverNodes) Dial(node int) (*orchestrator.Agent, error) {
	name := s.d.Graph.Nodes[node].Name
	m := &s.placement.Servers[s.placement.At[node]]
	return orchestrator.DialAgent(name, "passthrough:///"+name, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return s.callShare(ctx, m, &shareapi.Open{Stream: shareapi.Stream_STREAM_AGENT, Node: name})
	}))
}

// DialMetrics returns what connects to the metrics of a node, wherever it is.
func (s *serverNodes) DialMetrics(node int) orchestrator.Dialer {
	name := s.d.Graph.Nodes[node].Name
	return func(ctx context.Context) (net.Conn, error) {
		return s.callShare(ctx, &s.placement.Servers[s.placement.At[node]], &shareapi.Open{Stream: shareapi.Stream_STREAM_METRICS, Node: name})
	}
}

// EachReached calls f for every node of the servers whose share answers, a few of each server at a time. So no node waits for
// a server that is not there.
func (s *serverNodes) EachReached(ctx context.Context, reached func(m *engine.Server, err error) error, f func(node int) error) error {
	return s.eachServer(func(i int, m *engine.Server) error {
		c, err := s.servers.Dial(ctx, s.d.Lab.Name, m)
		if err == nil {
			err = c.Close()
		}
		if err := reached(m, err); err != nil {
			return err
		}
		var nodes []int
		for node, at := range s.placement.At {
			if at == i {
				nodes = append(nodes, node)
			}
		}
		return orchestrator.FewAtOnce(nodes, f)
	})
}

// CPUTime returns the CPU time that the lab has taken so far, in seconds, by server.
func (s *serverNodes) CPUTime(ctx context.Context) ([]float64, error) {
	all := make([]float64, len(s.placement.Servers))
	err := s.eachServer(func(i int, m *engine.Server) error {
		return s.askShare(ctx, m, func(k shareapi.ShareClient) error {
			a, err := k.Busy(ctx, &shareapi.BusyRequest{})
			all[i] = a.GetSeconds()
			return err
		})
	})
	return all, err
}

// CPUTimeMost returns the CPU time that the lab has taken between two looks. Of several servers the busiest one counts, as if the others
// were as busy for their cores: it is the one that keeps up last.
func (s *serverNodes) CPUTimeMost(from, to []float64) (most float64) {
	for i := range min(len(from), len(to)) {
		share := float64(s.Cores()) / float64(max(1, s.placement.Servers[i].Cores))
		most = max(most, (to[i]-from[i])*share)
	}
	return most
}

// Cores returns how many processor cores the lab has, on all its servers.
func (s *serverNodes) Cores() (n int) {
	for i := range s.placement.Servers {
		n += max(1, s.placement.Servers[i].Cores)
	}
	return n
}
