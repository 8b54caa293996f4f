// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/drivers/netdev"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// Partition selects the nodes and links of a lab that this process makes: all, or those of one server's share.
type Partition interface {
	// HasNode reports whether a node is on this server, by its number in the graph.
	HasNode(node int) bool
	// HasController reports whether a controller is on this server.
	HasController(name string) bool
	// LinkRemote links the end here of a link to its other end, on another server.
	LinkRemote(link int, end netdev.End) error
	// OpenHub returns the bridge of the management network, which it makes if need be. The caller calls done after its use.
	OpenHub() (hub *netdev.Namespace, done func(), err error)
}

// wholeLab is the partition of a lab on this server alone.
type wholeLab struct{ d *Deployed }

// HasNode reports true.
func (w wholeLab) HasNode(int) bool { return true }

// HasController reports true.
func (w wholeLab) HasController(string) bool { return true }

// LinkRemote refuses: no end is elsewhere.
func (w wholeLab) LinkRemote(link int, _ netdev.End) error {
	return fmt.Errorf("link %s of lab %s has both ends on this server", w.d.Graph.LinkName(link), w.d.Lab.Name)
}

// own returns the nodes of the partition, by their numbers in the graph.
func (d wiring) own() map[int]bool {
	own := map[int]bool{}
	for i := range d.Graph.Nodes {
		if d.Partition.HasNode(i) {
			own[i] = true
		}
	}
	return own
}

// StartPartition starts the nodes and controllers of the partition, waits until the controllers take calls, and makes the
// links that have an end at these nodes.
func StartPartition(ctx context.Context, d *Deployed) error {
	var nodes []engine.Node
	var replicas []string
	for _, name := range d.Lab.Replicas() {
		if !d.Partition.HasController(name) {
			continue
		}
		n, err := controllerSetupOf(d).replicaNode(name)
		if err != nil {
			return err
		}
		replicas, nodes = append(replicas, name), append(nodes, n)
	}
	own := wiringOf(d).own()
	for i, n := range d.Graph.Nodes {
		if !own[i] {
			continue
		}
		node, err := deploymentOf(d).node(n.Name)
		if err != nil {
			return err
		}
		nodes = append(nodes, node)
	}
	if err := d.Options.Engine.Start(ctx, d.Lab.Name, nodes, d.Store.intend); err != nil {
		return err
	}
	for _, name := range replicas {
		if err := agentCallsOf(d).listensAt(ctx, name); err != nil {
			return err
		}
	}
	var links []int
	for i, k := range d.Graph.Links {
		if own[k.A.Node] || own[k.B.Node] {
			links = append(links, i)
		}
	}
	return wiringOf(d).wire(ctx, links, nil, own, nil)
}

// HandOverSockets waits for the agent of each node of the partition, and hands it the sockets of its links; outside has the
// interfaces of external hosts.
func HandOverSockets(ctx context.Context, d *Deployed, outside map[string]*netdev.Outside) error {
	return wiringOf(d).wire(ctx, nil, wiringOf(d).own(), nil, outside)
}

// HandOverMemory hands a node the files of the memory that it shares in a run in virtual time.
func HandOverMemory(d *Deployed, node int, files []*os.File) error {
	return nodeapi.SendFiles(filepath.Join(d.Store.NodePath(d.Graph.Nodes[node].Name), nodeapi.MemorySocket), files)
}

// RemoteEnd is a socket on the end here of a link to another server.
type RemoteEnd struct {
	Link int
	File *os.File
	MAC  net.HardwareAddr
}

// OpenRemoteEnds opens a socket on each end here of a link to another server. The caller closes those that it returns, also with an error.
func OpenRemoteEnds(ctx context.Context, d *Deployed) (all []RemoteEnd, err error) {
	spaces, err := wiringOf(d).spaces(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll(spaces)) }()
	for i, k := range d.Graph.Links {
		if d.Partition.HasNode(k.A.Node) == d.Partition.HasNode(k.B.Node) {
			continue
		}
		for _, e := range []topo.End{k.A, k.B} {
			if !d.Partition.HasNode(e.Node) {
				continue
			}
			if spaces[e.Node] == nil {
				return all, agentCallsOf(d).died(ctx, d.Graph.Nodes[e.Node].Name)
			}
			end := wiringOf(d).end(spaces, e)
			files, err := spaces[e.Node].Sockets([]netdev.End{end}, false)
			if err != nil {
				return all, err
			}
			all = append(all, RemoteEnd{Link: i, File: files[0], MAC: end.MAC})
		}
	}
	return all, nil
}
