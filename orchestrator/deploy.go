// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package orchestrator brings a lab up on this host, runs its workloads there and takes
// it down again: one process or container for each node, wired with veth pairs,
// configured over unix sockets.
package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/internal/checksum"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
	"github.com/mcastlab/mcastlab/rank"
)

// Options are the choices of a deployment that are not the lab's.
type Options struct {
	Engine  engine.Engine
	Version string
	// Programs are the user's own programs in this binary, which the nodes run too.
	Programs []rank.Program
	// Attach names the interfaces of this host behind which external hosts are.
	Attach map[string]string
	// Management gives the lab a management network, whatever its file says.
	Management bool
	// Log, if set, receives a line for each step.
	Log func(format string, args ...any)
	// Tell, if set, receives what the operator has to know, even where Log is not set.
	Tell func(format string, args ...any)
}

// Deployed is a running lab.
type Deployed struct {
	Lab   *lab.Lab
	Graph *topo.Graph
	// Access reaches the nodes, wherever they are.
	Access NodeAccess

	Options Options
	Store   *Store
	Nodes   []*Agent      // by node of the graph
	Lost    []atomic.Bool // by node: it has died, and the run continues without it
	Plane   ControlPlane  // what decides for the lab

	// Partition selects the nodes and links that this process makes: all, or those of one server's share.
	Partition Partition

	testbed Testbed // that makes the lab
}

// Deploy starts a lab; in one that already runs it restores the missing parts. It first removes the
// leftovers of an unfinished deployment. If Deploy fails, or ctx ends, it removes what it made.
func Deploy(ctx context.Context, l *lab.Lab, o Options) (d *Deployed, did Outcome, err error) {
	if d, err = NewDeployed(l, o); err != nil {
		return nil, Unchanged, err
	}
	if err := d.Store.open(o.Log); err != nil {
		return nil, Unchanged, err
	}
	did, err = deploymentOf(d).ensure(ctx)
	if err == nil && did == Repaired { // a node that is back has nothing of the run that was on it
		err = leftoverSearchOf(d).tidyBefore(ctx)
	}
	return d, did, errors.Join(err, d.Store.close())
}

// Run runs a lab's workloads under an engine. It deploys the lab before and removes it after. A lab
// that already runs keeps running, and nothing of the run stays on it. The lab is locked
// throughout, so no other command runs meanwhile.
func Run(ctx context.Context, l *lab.Lab, o Options, ro RunOptions) (report *runner.Report, err error) {
	if err := l.CheckPrograms(ro.Programs, cmp.Or(ro.Dilation, float64(l.Runtime.Dilation))); err != nil {
		return nil, err
	}
	d, err := NewDeployed(l, o)
	if err != nil {
		return nil, err
	}
	if err := d.Store.open(o.Log); err != nil {
		return nil, err
	}
	did, err := deploymentOf(d).ensure(ctx)
	if err == nil {
		report, err = deploymentOf(d).runOnce(ctx, ro, did != Made)
		err = errors.Join(err, d.Close())
		if did == Made {
			err = errors.Join(err, deploymentOf(d).takeDown(context.WithoutCancel(ctx)))
		}
	}
	return report, errors.Join(err, d.Store.close())
}

// runOnce runs the lab's workloads. One that stays up is clean before and after.
func (d deployment) runOnce(ctx context.Context, o RunOptions, stays bool) (*runner.Report, error) {
	if stays {
		if err := leftoverSearchOf(d.Deployed).tidyBefore(ctx); err != nil {
			if ctx.Err() != nil { // what was found is still there
				leftoverSearchOf(d.Deployed).tidyAfter(ctx)
			}
			return nil, err
		}
		defer leftoverSearchOf(d.Deployed).tidyAfter(ctx)
	}
	return d.runWorkloads(ctx, o)
}

// NewDeployed returns the plan of a lab: it makes nothing and calls no node. Access and Partition are those of a lab on this server
// alone.
func NewDeployed(l *lab.Lab, o Options) (*Deployed, error) {
	if err := l.CheckLive(); err != nil {
		return nil, err
	}
	g, err := labspec.Graph(l)
	if err != nil {
		return nil, fmt.Errorf("build topology: %w", err)
	}
	s, err := StoreOf(l.Name)
	if err != nil {
		return nil, err
	}
	d := &Deployed{Lab: l, Graph: g, Options: o, Store: s, Nodes: make([]*Agent, len(g.Nodes)), Lost: make([]atomic.Bool, len(g.Nodes))}
	d.Access, d.Partition, d.Plane = LocalAccess(d), wholeLab{d}, NoControllers(d)
	d.testbed = testbedOf(d)
	if d.WantsManagement() {
		return d, managementNetworkOf(d).checkManagement()
	}
	return d, nil
}

// ensure brings the lab up if it is not. The lock is held.
func (d deployment) ensure(ctx context.Context) (did Outcome, err error) {
	if _, err := d.Options.Engine.Find(ctx, d.Lab.Name); err != nil { // is it there at all?
		if _, ok, serr := d.Store.Get(); !ok && serr == nil {
			err = errors.Join(err, d.Store.Remove())
		}
		return Unchanged, err
	}
	up, err := d.isUp(ctx)
	if err != nil {
		return Unchanged, err
	}
	if up {
		if err := managementNetworkOf(d.Deployed).keepManaged(); err != nil {
			return Unchanged, err
		}
		x, err := d.Access.Drift(ctx)
		if err == nil && x.none() {
			return Unchanged, agentCallsOf(d.Deployed).connect(ctx)
		}
		if err != nil {
			return Unchanged, err
		}
		return Repaired, d.Access.Repair(ctx, x)
	}
	if err := d.bringUp(ctx); err != nil {
		// The caller's context may be what ended it.
		return Unchanged, errors.Join(err, d.takeDown(context.WithoutCancel(ctx)))
	}
	return Made, nil
}

// Outcome is the effect of a deployment.
type Outcome uint8

// Outcomes.
const (
	Unchanged Outcome = iota // the lab was up already
	Made                     // it was brought up
	Repaired                 // it was up, and what was gone of it has been brought back
)

// Attach connects to a running lab.
func Attach(name string, o Options) (*Deployed, error) {
	d, err := find(name, o)
	if err != nil {
		return nil, err
	}
	return d, agentCallsOf(d).open()
}

// find returns the running lab of a name, with no connection to its nodes.
func find(name string, o Options) (*Deployed, error) {
	s, err := StoreOf(name)
	if err != nil {
		return nil, err
	}
	st, ok, err := s.Get()
	if err != nil {
		return nil, err
	}
	if !ok || st.Phase != phaseUp {
		return nil, fmt.Errorf("lab %s is not up: mcastlab deploy it first", name)
	}
	l, err := s.deployed(&st)
	if err != nil {
		return nil, err
	}
	d, err := NewDeployed(l, o)
	if err != nil {
		return nil, err
	}
	return d, d.reach()
}

// reach sets Access to reach the nodes of a running lab.
func (d *Deployed) reach() error {
	a, err := d.testbed.Reach()
	if err == nil {
		d.Access = a
	}
	return err
}

// Log gives the log a line.
func (d *Deployed) Log(format string, args ...any) {
	if d.Options.Log != nil {
		d.Options.Log(format, args...)
	}
}

// Announce tells the operator what has to be known.
func (d *Deployed) Announce(format string, args ...any) {
	if d.Options.Tell != nil {
		d.Options.Tell(format, args...)
	}
}

// bringUp makes the whole lab, whatever exists of it already.
func (d deployment) bringUp(ctx context.Context) error {
	message, err := labspec.Encode(d.Lab)
	if err != nil {
		return err
	}
	if err := d.testbed.Prepare(ctx); err != nil {
		return err
	}
	if err := d.Store.intend("deploy", d.Lab.Name); err != nil {
		return err
	}
	if err := d.Store.Write(labFile, checksum.Comment(message)); err != nil {
		return err
	}
	st := state{
		Schema: stateSchema, Lab: d.Lab.Name, Engine: d.Options.Engine.Name(), Phase: phaseDeploying, Since: time.Now().UTC(), Version: d.Options.Version,
		Management: d.WantsManagement(), Attach: d.Options.Attach,
	}
	if st.Indexes, err = d.testbed.Record(); err != nil {
		return err
	}
	if err := d.Store.put(st); err != nil {
		return err
	}
	made, err := d.testbed.Make(ctx, message)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := agentCallsOf(d.Deployed).connect(ctx); err != nil {
		return err
	}
	all := map[int]bool{}
	for i := range d.Graph.Nodes {
		all[i] = true
	}
	if err := agentCallsOf(d.Deployed).configureAll(ctx, all, d.Lab.Replicas(), nil); err != nil {
		return err
	}
	d.Log("%s, agents configured in %v", made, time.Since(begin).Round(time.Millisecond))
	st.Phase = phaseUp
	return d.Store.put(st)
}

// node makes the folders of a node that is to be started.
func (d deployment) node(name string) (n engine.Node, err error) {
	n.Name = name
	if n.Dir, err = d.Store.NodeDir(name); err == nil && slices.Contains(labspec.Keeps(d.Lab, d.Graph), name) {
		n.Data, err = d.Store.dataDir(name)
	}
	return n, err
}

// Each calls f for every node that is not lost, a few at a time, and returns what failed.
func (d *Deployed) Each(f func(node int) error) error {
	var nodes []int
	for i := range d.Graph.Nodes {
		if !d.Lost[i].Load() {
			nodes = append(nodes, i)
		}
	}
	return FewAtOnce(nodes, func(node int) error { return d.Access.Blame(node, f(node)) })
}

// FewAtOnce calls f for nodes, a few at a time, and returns what failed.
func FewAtOnce(nodes []int, f func(node int) error) error {
	errs := make([]error, len(nodes))
	gate := make(chan struct{}, 8)
	var all sync.WaitGroup
	for i, node := range nodes {
		all.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			errs[i] = f(node)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Close closes the connections; the lab stays up.
func (d *Deployed) Close() error {
	var errs []error
	for i, c := range d.Nodes {
		if c != nil {
			errs = append(errs, c.conn.Close())
			d.Nodes[i] = nil
		}
	}
	errs = append(errs, d.Plane.close())
	d.Plane = NoControllers(d)
	return errors.Join(errs...)
}

// takeDown removes everything of the lab. The lock is held.
func (d deployment) takeDown(ctx context.Context) error {
	return errors.Join(d.Close(), remove(ctx, d.Store, []engine.Engine{d.Options.Engine}))
}
