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

// drift lists the parts of a lab that is up which are gone.
type drift struct {
	nodes []int // whose processes have ended, or whose repair was not finished
	links []int // whose interfaces are gone or down, those of such nodes among them

	replicas []string // controllers whose processes have ended

	unmanaged []int // hosts whose nodes are there, and not on the management network
}

func (x *drift) none() bool { return len(x.nodes)+len(x.links)+len(x.replicas)+len(x.unmanaged) == 0 }

// affected returns the nodes that need new sockets: they start from scratch.
func (d deployment) affected(x drift) map[int]bool {
	all := map[int]bool{}
	for _, n := range x.nodes {
		all[n] = true
	}
	for _, k := range x.links {
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
	return true, d.loadSpread()
}

// Drift looks for parts that are gone. A node whose repair was interrupted counts as gone even
// if it runs: it may have no sockets, or sockets on interfaces that no longer exist.
func (l *localNodes) Drift(ctx context.Context) (x drift, err error) {
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
			x.nodes = append(x.nodes, i)
		} else if up, err = s.Ports(len(n.Links)); err != nil {
			return x, fmt.Errorf("node %s: %w", n.Name, err)
		}
		if s != nil && l.d.Managed(&st) && managementNetworkOf(l.d).manages(i) {
			on, err := s.Attached(ManagementNet(i))
			if err != nil {
				return x, fmt.Errorf("node %s: %w", n.Name, err)
			}
			// The kernel takes the links to a bridge away some time after its namespace has gone.
			if !on || !hub {
				x.unmanaged = append(x.unmanaged, i)
			}
		}
		for p, ok := range up {
			if !ok {
				x.links = append(x.links, n.Links[p])
			}
		}
	}
	slices.Sort(x.links)
	x.links = slices.Compact(x.links)
	x.replicas, err = controllerSetupOf(l.d).missingReplicas(ctx)
	return x, err
}

// Repair restores what is gone. Nodes that lose a neighbour start from scratch, too; the others
// are not affected.
func (l *localNodes) Repair(ctx context.Context, x drift) error {
	if err := controllerSetupOf(l.d).repairReplicas(ctx, x.replicas); err != nil {
		return err
	}
	if _, err := l.d.phase(ctx, controller.PhaseRepairing); err != nil {
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
	for _, n := range x.nodes {
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
	for _, k := range x.links {
		l.d.Log("link %s is made again", l.d.Graph.LinkName(k))
	}
	managed := maps.Clone(affected)
	for _, i := range x.unmanaged {
		l.d.Log("host %s is linked to the management network", l.d.Graph.Nodes[i].Name)
		managed[i] = true
	}
	if err := wiringOf(l.d).wire(ctx, x.links, affected, managed, outside); err != nil {
		return err
	}
	if err := agentCallsOf(l.d).connect(ctx); err != nil {
		return err
	}
	rate, err := deploymentOf(l.d).clockOf(ctx, affected)
	if err != nil {
		return err
	}
	if err := agentCallsOf(l.d).configureAll(ctx, affected, x.replicas, rate); err != nil {
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
	if e, ok := o.Engine.(engine.Spread); ok && !up {
		return spreadDeploymentOf(d).writePlacement(ctx, e, w)
	}
	var lines []string
	if up {
		x, err := d.Access.Drift(ctx)
		if err != nil {
			return err
		}
		for _, n := range x.nodes {
			lines = append(lines, "+ node "+d.Graph.Nodes[n].Name)
		}
		for _, k := range x.links {
			lines = append(lines, "+ link "+d.Graph.LinkName(k))
		}
		for _, n := range x.unmanaged {
			lines = append(lines, "+ management network "+d.Graph.Nodes[n].Name)
		}
		for _, n := range x.replicas {
			lines = append(lines, "+ node "+n)
		}
		if len(lines) == 0 {
			lines = append(lines, fmt.Sprintf("%s is up: nothing to do", l.Name))
		}
	} else {
		if _, err := externalHostsOf(d).openOutside(); err != nil {
			return err
		}
		for _, n := range found {
			lines = append(lines, "- node "+n.Name+" (left over)")
		}
		for _, n := range l.Replicas() {
			lines = append(lines, "+ node "+n)
		}
		for _, n := range d.Graph.Nodes {
			lines = append(lines, "+ node "+n.Name)
		}
		for k := range d.Graph.Links {
			lines = append(lines, "+ link "+d.Graph.LinkName(k))
		}
	}
	_, err = io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}
