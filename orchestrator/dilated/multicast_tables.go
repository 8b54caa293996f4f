// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/orchestrator"
)

// multicastTables are the plain multicast groups that a job has in the switches.
type multicastTables struct {
	d        *orchestrator.Deployed
	run      string
	mu       sync.Mutex
	switches map[uint32][]int // by group: nodes that have an entry
}

// begin puts a group of the hosts with the given addresses into the switches of its tree.
func (t *multicastTables) begin(ctx context.Context, group uint32, ips []uint32) error {
	hosts, err := t.d.Graph.HostsAt(ips)
	if err != nil {
		return err
	}
	spec := labspec.Fabric(t.d.Lab, t.d.Graph)
	entries, err := spec.Multicast(group, hosts, nil)
	if err != nil {
		return err
	}
	for _, e := range entries {
		m := &nodeapi.MulticastEntry{Group: group}
		for _, p := range e.Ports {
			m.Ports = append(m.Ports, uint32(p))
		}
		for _, p := range e.From {
			m.From = append(m.From, uint32(p))
		}
		t.mu.Lock()
		t.switches[group] = append(t.switches[group], e.Switch)
		t.mu.Unlock()
		if _, err := t.d.Nodes[e.Switch].SetMulticast(ctx, m); err != nil {
			return fmt.Errorf("tell %s of a multicast group: %w", t.d.Graph.Nodes[e.Switch].Name, err)
		}
	}
	return nil
}

// end takes a group out of the switches.
func (t *multicastTables) end(ctx context.Context, group uint32) error {
	if p := t.d.Plane; p.HasControllers() {
		return p.EndMulticast(ctx, t.run, group&^wire.MulticastNet)
	}
	t.mu.Lock()
	all := t.switches[group]
	delete(t.switches, group)
	t.mu.Unlock()
	var errs []error
	for _, sw := range all {
		if _, err := t.d.Nodes[sw].SetMulticast(ctx, &nodeapi.MulticastEntry{Group: group}); err != nil {
			errs = append(errs, fmt.Errorf("have %s forget a multicast group: %w", t.d.Graph.Nodes[sw].Name, err))
		}
	}
	return errors.Join(errs...)
}

// clearWait bounds how long a job that has ended may take to remove its groups.
const clearWait = 5 * time.Second

// clear removes the groups of a job that failed or was interrupted. Their addresses are not used
// again, so an entry in a switch that cannot be reached does no harm.
func (t *multicastTables) clear(ctx context.Context) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), clearWait)
	defer stop()
	t.mu.Lock()
	var left []uint32
	for group := range t.switches { // independent of each other
		left = append(left, group)
	}
	t.mu.Unlock()
	for _, group := range left {
		_ = t.end(ctx, group)
	}
}
