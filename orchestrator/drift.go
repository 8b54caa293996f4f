// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/netdev"
	"github.com/mcastlab/mcastlab/internal/controller"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// Drift lists the missing parts of a running lab.
type Drift struct {
	Nodes []int // whose processes have ended, or whose repair was not finished
	Links []int // whose interfaces are gone or down, those of such nodes among them

	Replicas []string // controllers whose processes have ended

	Unmanaged []int // hosts whose nodes are there, and not on the management network
}

func (x *Drift) none() bool { return len(x.Nodes)+len(x.Links)+len(x.Replicas)+len(x.Unmanaged) == 0 }

// affected returns the nodes that need new sockets: they start from scratch.
func (d deployment) affected(x Drift) map[int]bool {
	all := map[int]bool{}
	for _, n := range x.Nodes {
		all[n] = true
	}
	for _, k := range x.Links {
		all[d.Graph.Links[k].A.Node], all[d.Graph.Links[k].B.Node] = true, true
	}
	return all
}

// isUp reports whether a lab with exactly this definition is up. Parts of it may be gone:
// Drift looks for those.
func (d deployment) isUp(ctx context.Context) (bool, error) {
	st, ok, err := d.Store.Get()
	if err != nil || !ok || st.Phase != phaseUp {
		return false, err
	}
	if same, err := externalHostsOf(d.Deployed).sameAttachments(&st); err != nil || !same {
		return false, err
	}
	if st.Engine != d.Options.Engine.Name() {
		return false, fmt.Errorf("lab %s is up under %s: destroy it first, or name another", d.Lab.Name, st.Engine)
	}
	old, err := d.Store.deployed(&st)
	if err != nil {
		return false, err
	}
	if !reflect.DeepEqual(old, d.Lab) {
		return false, fmt.Errorf("lab %s is up with another lab file: destroy it first, or give this one another name", d.Lab.Name)
	}
	err = d.reach()
	return err == nil, err
}

// Drift looks for parts that are gone. A node whose repair was interrupted counts as gone even
// if it runs: it may have no sockets, or sockets on interfaces that no longer exist.
func (l *localNodes) Drift(ctx context.Context) (x Drift, err error) {
	st, _, err := l.d.Store.Get()
	if err != nil {
		return x, err
	}
	spaces, err := wiringOf(l.d).spaces(ctx)
	if err != nil {
		return x, err
	}
	defer func() { err = errors.Join(err, closeAll(spaces)) }()
	hub := l.d.Managed(&st) && netdev.HoldsNamespace(l.d.Store.hubPath())
	for i, s := range spaces {
		n := &l.d.Graph.Nodes[i]
		up := make([]bool, len(n.Links))
		if s == nil || slices.Contains(st.Mending, n.Name) {
			x.Nodes = append(x.Nodes, i)
		} else if up, err = s.Ports(len(n.Links)); err != nil {
			return x, fmt.Errorf("node %s: %w", n.Name, err)
		}
		if s != nil && l.d.Managed(&st) && OnManagementNetwork(l.d, i) {
			on, err := s.Attached(ManagementNet(i))
			if err != nil {
				return x, fmt.Errorf("node %s: %w", n.Name, err)
			}
			// The kernel takes the links to a bridge away some time after its namespace has gone.
			if !on || !hub {
				x.Unmanaged = append(x.Unmanaged, i)
			}
		}
		for p, ok := range up {
			if !ok {
				x.Links = append(x.Links, n.Links[p])
			}
		}
	}
	slices.Sort(x.Links)
	x.Links = slices.Compact(x.Links)
	x.Replicas, err = controllerSetupOf(l.d).missingReplicas(ctx)
	return x, err
}

// Repair restores what is gone. Nodes that lose a neighbour start from scratch, too; the others
// are not affected.
func (l *localNodes) Repair(ctx context.Context, x Drift) error {
	if err := controllerSetupOf(l.d).repairReplicas(ctx, x.Replicas); err != nil {
		return err
	}
	if _, err := l.d.Phase(ctx, controller.PhaseRepairing); err != nil {
		return err
	}
	affected := deploymentOf(l.d).affected(x)
	if err := deploymentOf(l.d).mending(affected); err != nil {
		return err
	}
	outside := map[string]*netdev.Outside{}
	for n := range affected { // independent of each other
		name := l.d.Graph.Nodes[n].Name
		if l.d.Lab.ExternalHost(name) == nil {
			continue
		}
		o, err := netdev.OpenOutside(l.d.Options.Attach[name], l.d.Lab.NICs.MTU+wire.RoCEHeadersMax)
		if err != nil {
			return err
		}
		outside[name] = o
	}
	var gone []engine.Node
	for _, n := range x.Nodes {
		name := l.d.Graph.Nodes[n].Name
		l.d.Log("node %s is gone: it is started again", name)
		node, err := deploymentOf(l.d).node(name)
		if err != nil {
			return err
		}
		gone = append(gone, node)
	}
	if len(gone) > 0 {
		if err := l.d.Options.Engine.Remove(ctx, l.d.Lab.Name, names(gone)...); err != nil {
			return err
		}
		if err := l.d.Options.Engine.Start(ctx, l.d.Lab.Name, gone, l.d.Store.intend); err != nil {
			return err
		}
	}
	for _, k := range x.Links {
		l.d.Log("link %s is made again", l.d.Graph.LinkName(k))
	}
	managed := maps.Clone(affected)
	for _, i := range x.Unmanaged {
		l.d.Log("host %s is linked to the management network", l.d.Graph.Nodes[i].Name)
		managed[i] = true
	}
	if err := wiringOf(l.d).wire(ctx, x.Links, affected, managed, outside); err != nil {
		return err
	}
	if err := agentCallsOf(l.d).connect(ctx); err != nil {
		return err
	}
	rate, err := deploymentOf(l.d).clockOf(ctx, affected)
	if err != nil {
		return err
	}
	if err := agentCallsOf(l.d).configureAll(ctx, affected, x.Replicas, rate); err != nil {
		return err
	}
	return deploymentOf(l.d).mending(nil)
}

// mending records durably which nodes are being repaired.
func (d deployment) mending(nodes map[int]bool) error {
	st, _, err := d.Store.Get()
	if err != nil {
		return err
	}
	st.Mending = nil
	for i := range d.Graph.Nodes {
		if nodes[i] {
			st.Mending = append(st.Mending, d.Graph.Nodes[i].Name)
		}
	}
	return d.Store.put(st)
}

func names(nodes []engine.Node) (all []string) {
	for _, n := range nodes {
		all = append(all, n.Name)
	}
	return all
}

// clockOf returns the clock of a node that is not affected, or nil if all are.
func (d deployment) clockOf(ctx context.Context, affected map[int]bool) (*counters.Rate, error) {
	for i, c := range d.Nodes {
		if affected[i] {
			continue
		}
		r, err := c.Inspect(ctx, nil)
		if err != nil {
			return nil, fmt.Errorf("inspect node %s: %w", c.Name, err)
		}
		s, err := r.Decode()
		return s.Rate, err
	}
	return nil, nil
}

// Plan writes what a deployment would do, and does nothing.
func Plan(ctx context.Context, l *lab.Lab, o Options, w io.Writer) error {
	d, err := NewDeployed(l, o)
	if err != nil {
		return err
	}
	found, err := o.Engine.Find(ctx, l.Name)
	if err != nil {
		return err
	}
	up, err := deploymentOf(d).isUp(ctx)
	if err != nil {
		return err
	}
	if !up {
		return d.testbed.WritePlan(ctx, w, found)
	}
	x, err := d.Access.Drift(ctx)
	if err != nil {
		return err
	}
	var lines []string
	for _, n := range x.Nodes {
		lines = append(lines, "+ node "+d.Graph.Nodes[n].Name)
	}
	for _, k := range x.Links {
		lines = append(lines, "+ link "+d.Graph.LinkName(k))
	}
	for _, n := range x.Unmanaged {
		lines = append(lines, "+ management network "+d.Graph.Nodes[n].Name)
	}
	for _, n := range x.Replicas {
		lines = append(lines, "+ node "+n)
	}
	if len(lines) == 0 {
		lines = append(lines, fmt.Sprintf("%s is up: nothing to do", l.Name))
	}
	return writeLines(w, lines)
}

// writeLines writes lines, each with its end.
func writeLines(w io.Writer, lines []string) error {
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}
