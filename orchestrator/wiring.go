// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/drivers/netdev"
	"github.com/mcastlab/mcastlab/internal/failpoint"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// wire makes links, and hands each affected node the sockets on the ends of all its links. Those of managed
// that are hosts are linked to the management network, if the lab has one.
func (d wiring) wire(ctx context.Context, links []int, affected, managed map[int]bool, outside map[string]*netdev.Outside) (err error) {
	spaces, err := d.spaces(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll(spaces)) }()
	for i, s := range spaces {
		if s == nil && d.Partition.HasNode(i) {
			return agentCallsOf(d.Deployed).died(ctx, d.Graph.Nodes[i].Name)
		}
	}
	if err := d.Store.intend("wire", d.Lab.Name); err != nil {
		return err
	}
	for _, i := range links {
		k := &d.Graph.Links[i]
		a, b := d.end(spaces, k.A), d.end(spaces, k.B)
		if here := d.Partition.HasNode(k.A.Node); here != d.Partition.HasNode(k.B.Node) {
			if !here {
				a = b
			}
			if err := failpoint.At("unlink", func() error { return netdev.Part(a) }); err != nil {
				return err
			}
			if err := failpoint.At("link", func() error { return d.Partition.LinkRemote(i, a) }); err != nil {
				return err
			}
			continue
		}
		if err := failpoint.At("unlink", func() error { return errors.Join(netdev.Part(a), netdev.Part(b)) }); err != nil {
			return err
		}
		if err := failpoint.At("link", func() error { return netdev.Join(a, b) }); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if err := managementNetworkOf(d.Deployed).manage(spaces, managed); err != nil {
		return err
	}
	return d.Each(func(i int) error {
		if !affected[i] {
			return nil
		}
		return failpoint.At("hand over", func() error { return d.handOver(ctx, i, spaces, outside[d.Graph.Nodes[i].Name]) })
	})
}

// handOver gives a node the sockets on the ends of its links.
func (d wiring) handOver(ctx context.Context, node int, spaces []*netdev.Namespace, o *netdev.Outside) error {
	var ends []netdev.End
	for p := range d.Graph.Nodes[node].Links {
		ends = append(ends, d.end(spaces, topo.End{Node: node, Port: p}))
	}
	files, err := spaces[node].Sockets(ends, d.trains())
	if err != nil {
		return err
	}
	files, err = withOutside(files, o)
	if err == nil {
		err = agentCallsOf(d.Deployed).listens(ctx, node)
	}
	if err == nil {
		err = nodeapi.SendFiles(filepath.Join(d.Store.NodePath(d.Graph.Nodes[node].Name), nodeapi.HandoverSocket), files)
	}
	for _, f := range files {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// spaces opens the network namespaces of all nodes. The entry of a node that does not run is nil.
func (d wiring) spaces(ctx context.Context) ([]*netdev.Namespace, error) {
	found, err := d.Options.Engine.Find(ctx, d.Lab.Name)
	if err != nil {
		return nil, err
	}
	pids := map[string]int{}
	for _, n := range found {
		pids[n.Name] = n.PID
	}
	spaces := make([]*netdev.Namespace, len(d.Graph.Nodes))
	for i, n := range d.Graph.Nodes {
		if pids[n.Name] == 0 {
			continue
		}
		if spaces[i], err = netdev.Open(pids[n.Name]); err != nil {
			spaces[i] = nil
			continue // it has ended meanwhile
		}
		if err := prioritize(pids[n.Name]); err != nil && spaces[i].Same(pids[n.Name]) {
			return nil, errors.Join(err, closeAll(spaces))
		}
		if err := spaces[i].Prepare(); err != nil {
			return nil, errors.Join(fmt.Errorf("node %s: %w", n.Name, err), closeAll(spaces))
		}
	}
	return spaces, nil
}

func closeAll(spaces []*netdev.Namespace) (err error) {
	for _, n := range spaces {
		if n != nil {
			err = errors.Join(err, n.Close())
		}
	}
	return err
}

// end names one end of a link. Its MAC is that of the plan for hosts; a switch's port
// has one of its own.
func (d wiring) end(spaces []*netdev.Namespace, e topo.End) netdev.End {
	n := &d.Graph.Nodes[e.Node]
	mac := net.HardwareAddr{0x02, 0, byte(n.IP >> 24), byte(n.IP >> 16), byte(n.IP >> 8), byte(n.IP)}
	if n.Kind == topo.Switch {
		mac[1] = byte(e.Port + 1)
	}
	return netdev.End{NS: spaces[e.Node], Port: e.Port, Alias: d.Lab.Name + " " + d.Graph.PortName(e), MAC: mac}
}

// trains reports whether frames cross links in trains.
func (d *Deployed) trains() bool { return d.Lab.Runtime.IO == "trains" }
