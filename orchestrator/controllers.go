// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/internal/controller"
	controllers "github.com/mcastlab/mcastlab/internal/controller/client"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// controllerWait is the longest time without a majority of the lab's controllers before a command
// fails.
const controllerWait = 60 * time.Second

// openPlane prepares the connections to the lab's controllers, which may be gone.
func (d controllerSetup) openPlane() error {
	names := d.Lab.Replicas()
	if len(names) == 0 || d.Plane.HasControllers() {
		return nil
	}
	p := &controllerPlane{lab: d.Lab.Name}
	var all []controllers.Replica
	var dial []grpc.DialOption
	for _, n := range names {
		r, by := d.Access.Controller(n)
		dial = append(nodeapi.Plain(), by...)
		all = append(all, r)
		conn, err := grpc.NewClient(r.Target, append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			return fmt.Errorf("reach controller %s: %w", n, err)
		}
		p.nodes = append(p.nodes, &Agent{n, conn, nodeapi.NewNodeClient(conn)})
	}
	var err error
	if p.Client, err = controllers.New(all, controllerWait, dial...); err != nil {
		return err
	}
	d.Plane = p
	return nil
}

// replicaNode makes the folders of a controller that is to be started.
func (d controllerSetup) replicaNode(name string) (n engine.Node, err error) {
	n.Name, n.Nodes, n.Replicas = name, filepath.Dir(d.Store.NodePath(name)), len(d.Lab.Replicas())
	if n.Dir, err = d.Store.NodeDir(name); err == nil {
		n.Data, err = d.Store.dataDir(name)
	}
	return n, err
}

// startReplicas starts controllers and waits until they take calls. Whether they have a
// majority shows with the first command.
func (d controllerSetup) startReplicas(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	var nodes []engine.Node
	for _, name := range names {
		n, err := d.replicaNode(name)
		if err != nil {
			return err
		}
		nodes = append(nodes, n)
	}
	if err := d.Options.Engine.Start(ctx, d.Lab.Name, nodes, d.Store.intend); err != nil {
		return err
	}
	for _, name := range names {
		if err := agentCallsOf(d.Deployed).listensAt(ctx, name); err != nil {
			return err
		}
	}
	return d.openPlane()
}

// bringUpPlane starts the controllers of a lab that is brought up, and tells them of it. Every
// later step is recorded by them first.
func (d controllerSetup) bringUpPlane(ctx context.Context, message []byte) error {
	all := d.Lab.Replicas()
	if len(all) == 0 {
		return nil
	}
	if err := d.Store.forget(all); err != nil { // logs of a deployment that was given up
		return err
	}
	if err := d.startReplicas(ctx, all); err != nil {
		return err
	}
	return TellControllers(ctx, d.Deployed, message)
}

// TellControllers tells controllers that have been started of their lab.
func TellControllers(ctx context.Context, d *Deployed, message []byte) error {
	if err := controllerSetupOf(d).openPlane(); err != nil || !d.Plane.HasControllers() {
		return err
	}
	if _, err := d.Command(ctx, controller.Command{Kind: controller.KindDeploy, Message: message, Engine: d.Options.Engine.Name(), Lowers: LeasesMax}); err != nil {
		return err
	}
	_, err := d.Phase(ctx, controller.PhaseStarting)
	return err
}

// repairReplicas starts controllers again that have died: they come back with what is on their
// disks.
func (d controllerSetup) repairReplicas(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return d.openPlane()
	}
	for _, n := range names {
		d.Log("node %s is gone: it is started again", n)
	}
	if err := d.Options.Engine.Remove(ctx, d.Lab.Name, names...); err != nil {
		return err
	}
	return d.startReplicas(ctx, names)
}

// missingReplicas returns the lab's controllers whose processes have ended.
func (d controllerSetup) missingReplicas(ctx context.Context) (names []string, err error) {
	all := d.Lab.Replicas()
	if len(all) == 0 {
		return nil, nil
	}
	found, err := d.Options.Engine.Find(ctx, d.Lab.Name)
	for _, name := range all {
		if !slices.ContainsFunc(found, func(r engine.Running) bool { return r.Name == name && r.PID != 0 }) {
			names = append(names, name)
		}
	}
	return names, err
}

// Command has a command take effect, if the lab has controllers.
func (d *Deployed) Command(ctx context.Context, c controller.Command) (controller.Result, error) {
	return d.Plane.Do(ctx, c)
}

// Phase records how far the deployment has come. It returns the leader's epoch.
func (d *Deployed) Phase(ctx context.Context, p string) (epoch uint64, err error) {
	r, err := d.Command(ctx, controller.Command{Kind: controller.KindPhase, Phase: p})
	return r.Epoch, err
}

// configureAll configures nodes and controllers from the lab file, after which the lab runs.
func (d agentCalls) configureAll(ctx context.Context, nodes map[int]bool, replicas []string, rate *counters.Rate) error {
	r, err := d.RestClock(rate)
	if err == nil {
		err = d.Access.AskClocks(ctx)
	}
	if err != nil {
		return err
	}
	if err := controllerSetupOf(d.Deployed).configureReplicas(ctx, replicas, r); err != nil {
		return err
	}
	epoch, err := d.Phase(ctx, controller.PhaseConfiguring)
	if err != nil {
		return err
	}
	if err := d.configure(ctx, nodes, r, epoch); err != nil {
		return err
	}
	_, err = d.Phase(ctx, controller.PhaseUp)
	return err
}

// configureReplicas gives controllers the lab's clock. One that has died meanwhile gets it when it
// is started again.
func (d controllerSetup) configureReplicas(ctx context.Context, names []string, r live.Rate) error {
	lab, err := labspec.Encode(d.Lab)
	if err != nil {
		return err
	}
	return d.Plane.configure(ctx, names, lab, func(controller string) *nodeapi.Rate { return agentCallsOf(d.Deployed).rateAt(controller, r) })
}

// Controllers returns the status of each of the lab's controllers.
func (d *Deployed) Controllers(ctx context.Context) []controllers.Status {
	return d.Plane.Status(ctx)
}
