// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/mcastlab/mcastlab/drivers/netdev"
	"github.com/mcastlab/mcastlab/internal/controller"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// Testbed makes a lab and finds it again: on this server, or on several.
type Testbed interface {
	// Reach returns the access to the nodes of a running lab.
	Reach() (NodeAccess, error)
	// StillAttached reports whether the interfaces of external hosts are those that the lab was deployed with; indexes has the
	// kernel's numbers of them.
	StillAttached(attach map[string]string, indexes map[string]int) bool
	// WritePlan writes what a deployment would make; left are nodes that an unfinished one has left.
	WritePlan(ctx context.Context, w io.Writer, left []engine.Running) error

	// The steps of a deployment, in their order. Prepare looks for all that the lab needs before anything is made, and removes
	// what an unfinished deployment has left.
	Prepare(ctx context.Context) error
	// Record writes into the lab's folder what Reach reads there, and returns the kernel's numbers of the interfaces of external hosts.
	Record() (indexes map[string]int, err error)
	// Make starts nodes and controllers, makes the links, and hands nodes their sockets. It returns what it has made, for the log.
	Make(ctx context.Context, message []byte) (made string, err error)
}

// testbedEngine is an engine that brings the testbed of its servers.
type testbedEngine interface {
	engine.Engine
	Testbed(d *Deployed) Testbed
}

// testbedOf returns the testbed of a lab's engine.
func testbedOf(d *Deployed) Testbed {
	if e, ok := d.Options.Engine.(testbedEngine); ok {
		return e.Testbed(d)
	}
	return &thisServer{d: d}
}

// thisServer is the testbed of a lab on this server alone.
type thisServer struct {
	d       *Deployed
	outside map[string]*netdev.Outside // interfaces of external hosts
}

// Reach returns what reaches the nodes, which are here.
func (t *thisServer) Reach() (NodeAccess, error) { return LocalAccess(t.d), nil }

// StillAttached compares the numbers of the interfaces: one that has gone and come back has another.
func (t *thisServer) StillAttached(attach map[string]string, indexes map[string]int) bool {
	for _, host := range slices.Sorted(maps.Keys(attach)) {
		if netdev.Index(attach[host]) != indexes[host] {
			t.d.Log("interface %s of %s is not the one that was attached: the lab is brought up again", attach[host], host)
			return false
		}
	}
	return true
}

// WritePlan writes a line for each node and link.
func (t *thisServer) WritePlan(_ context.Context, w io.Writer, left []engine.Running) error {
	if _, err := externalHostsOf(t.d).openOutside(); err != nil {
		return err
	}
	var lines []string
	for _, n := range left {
		lines = append(lines, "- node "+n.Name+" (left over)")
	}
	for _, n := range t.d.Lab.Replicas() {
		lines = append(lines, "+ node "+n)
	}
	for _, n := range t.d.Graph.Nodes {
		lines = append(lines, "+ node "+n.Name)
	}
	for k := range t.d.Graph.Links {
		lines = append(lines, "+ link "+t.d.Graph.LinkName(k))
	}
	return writeLines(w, lines)
}

// Prepare warns of too little memory, and looks at the interfaces of external hosts.
func (t *thisServer) Prepare(ctx context.Context) (err error) {
	t.warnMemory()
	if t.outside, err = externalHostsOf(t.d).openOutside(); err != nil {
		return err
	}
	return t.d.Options.Engine.Remove(ctx, t.d.Lab.Name)
}

// Record writes nothing: the nodes are where the lab's folder is.
func (t *thisServer) Record() (indexes map[string]int, err error) { return indexesOf(t.outside), nil }

// Make starts controllers and nodes, and makes all links.
func (t *thisServer) Make(ctx context.Context, message []byte) (made string, err error) {
	begin := time.Now()
	var nodes []engine.Node
	for _, n := range t.d.Graph.Nodes {
		node, err := deploymentOf(t.d).node(n.Name)
		if err != nil {
			return "", err
		}
		nodes = append(nodes, node)
	}
	if err := controllerSetupOf(t.d).bringUpPlane(ctx, message); err != nil {
		return "", err
	}
	if err := t.d.Options.Engine.Start(ctx, t.d.Lab.Name, nodes, t.d.Store.intend); err != nil {
		return "", err
	}
	started := time.Now()
	links := make([]int, len(t.d.Graph.Links))
	for i := range links {
		links[i] = i
	}
	if _, err := t.d.Phase(ctx, controller.PhaseWiring); err != nil {
		return "", err
	}
	own := wiringOf(t.d).own()
	if err := wiringOf(t.d).wire(ctx, links, own, own, t.outside); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d nodes started in %v, %d links made in %v", len(nodes), started.Sub(begin).Round(time.Millisecond),
		len(links), time.Since(started).Round(time.Millisecond)), nil
}
