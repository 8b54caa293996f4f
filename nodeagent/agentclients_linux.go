// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/controller"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
)

// agentClients are the leading controller's clients of the agents of all nodes. It implements
// replica.Effects. Only one goroutine calls its methods.
type agentClients struct {
	nodes string // folder that holds the folders of all nodes' sockets
	conns map[string]*grpc.ClientConn

	message []byte // that lab and graph were read from
	lab     *lab.Lab
	graph   *topo.Graph

	adopted map[string]adoption // by node
}

// adoption is the leader and configuration for which a node was last given its faults.
type adoption struct{ epoch, generation uint64 }

func newAgentClients(nodes string) *agentClients {
	return &agentClients{nodes: nodes, conns: map[string]*grpc.ClientConn{}, adopted: map[string]adoption{}}
}

// read reads a lab's message, unless it was the last one read.
func (h *agentClients) read(l *controller.Lab) error {
	if h.lab != nil && bytes.Equal(h.message, l.Message) {
		return nil
	}
	x, err := labspec.Decode(l.Message)
	if err != nil {
		return err
	}
	g, err := labspec.Graph(x)
	if err != nil {
		return fmt.Errorf("build topology: %w", err)
	}
	h.lab, h.graph, h.message = x, g, l.Message
	return nil
}

// node returns the agent of a node.
func (h *agentClients) node(name string) (nodeapi.NodeClient, error) {
	c := h.conns[name]
	if c == nil {
		var err error
		c, err = grpc.NewClient("unix:"+filepath.Join(h.nodes, name, nodeapi.AgentSocket), append(nodeapi.Plain(),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 500 * time.Millisecond}, MinConnectTimeout: time.Second,
			}), grpc.WithDefaultServiceConfig(nodeapi.Again), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageMax), grpc.MaxCallSendMsgSize(messageMax)))...)
		if err != nil {
			return nil, fmt.Errorf("reach node %s: %w", name, err)
		}
		h.conns[name] = c
	}
	return nodeapi.NewNodeClient(c), nil
}

// atOnce is the number of nodes that are called at a time.
const atOnce = 8

// each calls f for nodes, a few at a time, and returns the errors.
func (h *agentClients) each(ctx context.Context, epoch uint64, nodes []string, f func(ctx context.Context, node string, c nodeapi.NodeClient) error) error {
	ctx = nodeapi.WithEpoch(ctx, epoch)
	errs := make([]error, len(nodes))
	gate := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, name := range nodes {
		c, err := h.node(name)
		if err != nil {
			errs[i] = err
			continue
		}
		all.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			if err := f(ctx, name, c); err != nil {
				errs[i] = fmt.Errorf("node %s: %w", name, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// fabric returns the names of all nodes of a lab.
func (h *agentClients) fabric(l *controller.Lab) (names []string, err error) {
	if err := h.read(l); err != nil {
		return nil, err
	}
	for i := range h.graph.Nodes {
		names = append(names, h.graph.Nodes[i].Name)
	}
	return names, nil
}

// Adopt implements replica.Effects.
func (h *agentClients) Adopt(ctx context.Context, epoch uint64, l *controller.Lab) error {
	names, err := h.fabric(l)
	if err != nil {
		return err
	}
	mine := adoption{epoch, l.Generation}
	var mu sync.Mutex
	names = slices.DeleteFunc(names, func(n string) bool { return h.adopted[n] == mine })
	err = h.each(ctx, epoch, names, func(ctx context.Context, node string, c nodeapi.NodeClient) error {
		if err := adopt(ctx, c, l); err != nil {
			return err
		}
		mu.Lock()
		h.adopted[node] = mine
		mu.Unlock()
		return nil
	})
	for i := range l.Groups {
		if g := &l.Groups[i]; g.Stage == controller.StageOn {
			err = errors.Join(err, h.SetGroup(ctx, epoch, l, g, true))
		}
	}
	return err
}

// adopt gives one node the faults it should have, and takes from it those it should not.
func adopt(ctx context.Context, c nodeapi.NodeClient, l *controller.Lab) error {
	have, err := c.ListFaults(ctx, &nodeapi.InspectRequest{})
	if err != nil {
		return err
	}
	var extra []string
	for _, f := range have.Faults {
		if l.Fault(f.Id) == nil {
			extra = append(extra, f.Id)
		}
	}
	if len(extra) > 0 {
		if _, err := c.ResetFaults(ctx, &nodeapi.ResetRequest{Ids: extra}); err != nil {
			return err
		}
	}
	missing := &nodeapi.FaultList{}
	for _, f := range l.Faults {
		if f.Stage == controller.StageOn && !slices.ContainsFunc(have.Faults, func(o *nodeapi.Fault) bool { return o.Id == f.ID }) {
			missing.Faults = append(missing.Faults, messageOf(f))
		}
	}
	if len(missing.Faults) > 0 {
		_, err = c.AddFaults(ctx, missing)
	}
	return err
}

func messageOf(f controller.Fault) *nodeapi.Fault {
	return &nodeapi.Fault{Id: f.ID, Kind: f.Kind, Text: f.Text, Message: f.Message, Origin: f.Origin}
}

// AddFaults implements replica.Effects.
func (h *agentClients) AddFaults(ctx context.Context, epoch uint64, l *controller.Lab, add []controller.Fault) error {
	names, err := h.fabric(l)
	if err != nil {
		return err
	}
	list := &nodeapi.FaultList{}
	for _, f := range add {
		list.Faults = append(list.Faults, messageOf(f))
	}
	return h.each(ctx, epoch, names, func(ctx context.Context, _ string, c nodeapi.NodeClient) error {
		_, err := c.AddFaults(ctx, list)
		return err
	})
}

// RemoveFaults implements replica.Effects.
func (h *agentClients) RemoveFaults(ctx context.Context, epoch uint64, l *controller.Lab, ids []string) error {
	names, err := h.fabric(l)
	if err != nil {
		return err
	}
	return h.each(ctx, epoch, names, func(ctx context.Context, _ string, c nodeapi.NodeClient) error {
		_, err := c.ResetFaults(ctx, &nodeapi.ResetRequest{Ids: ids})
		return err
	})
}

// SetGroup implements replica.Effects.
func (h *agentClients) SetGroup(ctx context.Context, epoch uint64, l *controller.Lab, g *controller.Group, on bool) error {
	if err := h.read(l); err != nil {
		return err
	}
	hosts, err := h.graph.HostsAt(g.Hosts)
	if err != nil {
		return err
	}
	spec := labspec.Fabric(h.lab, h.graph)
	group := wire.MulticastNet | g.Lower
	entries, err := spec.Multicast(group, hosts, nil)
	if err != nil {
		return err
	}
	at, names := map[string]*nodeapi.MulticastEntry{}, []string{}
	for _, e := range entries {
		m := &nodeapi.MulticastEntry{Group: group}
		if on {
			for _, p := range e.Ports {
				m.Ports = append(m.Ports, uint32(p))
			}
			for _, p := range e.From {
				m.From = append(m.From, uint32(p))
			}
		}
		name := h.graph.Nodes[e.Switch].Name
		at[name], names = m, append(names, name)
	}
	return h.each(ctx, epoch, names, func(ctx context.Context, node string, c nodeapi.NodeClient) error {
		_, err := c.SetMulticast(ctx, at[node])
		return err
	})
}
