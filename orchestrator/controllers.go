//go:build linux

package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/controller"
	controllers "github.com/mcastlab/mcastlab/internal/controller/client"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// controllerWait is how long the controllers of a lab may be without a majority before a
// command gives up.
const controllerWait = 60 * time.Second

// ControlPlane is a lab's control plane as the command line reaches it; without controllers it is nil,
// and the lab's state is kept in its folder alone.
type ControlPlane struct {
	*controllers.Client
	lab   string
	nodes []*Agent // as nodes that have faults
}

// openPlane prepares the connections to the lab's controllers, which may be gone.
func (d controllerSetup) openPlane() error {
	names := d.Lab.Replicas()
	if len(names) == 0 || d.Plane != nil {
		return nil
	}
	p := &ControlPlane{lab: d.Lab.Name}
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

func (p *ControlPlane) close() error {
	errs := []error{p.Client.Close()}
	for _, n := range p.nodes {
		errs = append(errs, n.conn.Close())
	}
	return errors.Join(errs...)
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
	if err := controllerSetupOf(d).openPlane(); err != nil || d.Plane == nil {
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
	if d.Plane == nil {
		return controller.Result{}, nil
	}
	c.Lab = d.Lab.Name
	return d.Plane.Do(ctx, c)
}

// Phase records how far the deployment has come. It returns the leader's epoch.
func (d *Deployed) Phase(ctx context.Context, p string) (epoch uint64, err error) {
	r, err := d.Command(ctx, controller.Command{Kind: controller.KindPhase, Phase: p})
	return r.Epoch, err
}

// configureAll makes nodes and controllers what the lab file says they are, and the lab one
// that is up.
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
	if d.Plane == nil {
		return nil
	}
	lab, err := labspec.Encode(d.Lab)
	if err != nil {
		return err
	}
	return d.Plane.each(ctx, "configuration", func(ctx context.Context, _ int, n *Agent) error {
		if !slices.Contains(names, n.Name) {
			return nil
		}
		_, err := n.Configure(ctx, &nodeapi.ConfigureRequest{Node: n.Name, Lab: lab, Rate: agentCallsOf(d.Deployed).rateAt(n.Name, r)})
		return err
	})
}

// unreachable reports whether a call failed because no process takes it, or because it was cancelled.
func unreachable(err error) bool {
	c := status.Code(err)
	return c == codes.Unavailable || c == codes.DeadlineExceeded
}

// replicaWait bounds a call to one controller about its own state.
const replicaWait = 5 * time.Second

// each calls every controller by itself and joins their errors. Controllers that are gone are
// skipped.
func (p *ControlPlane) each(ctx context.Context, what string, f func(ctx context.Context, i int, n *Agent) error) error {
	errs := make([]error, len(p.nodes))
	var all sync.WaitGroup
	for i, n := range p.nodes {
		all.Go(func() {
			ctx, stop := context.WithTimeout(ctx, replicaWait)
			defer stop()
			if err := f(ctx, i, n); err != nil && !unreachable(err) {
				errs[i] = fmt.Errorf("%s of %s: %w", what, n.Name, err)
			}
		})
	}
	all.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// split separates faults of the fabric from those of the control plane.
func split(all []*nodeapi.Fault) (fabric, plane []*nodeapi.Fault) {
	for _, f := range all {
		if faults.Kind(f.Kind).OfControl() {
			plane = append(plane, f)
		} else {
			fabric = append(fabric, f)
		}
	}
	return fabric, plane
}

// AddControl applies faults of the control plane. Each controller is told by itself, since that
// works without a majority. One that is gone cannot be told.
func (p *ControlPlane) AddControl(ctx context.Context, all []*nodeapi.Fault) error {
	if len(all) == 0 {
		return nil
	}
	return p.each(ctx, "apply faults", func(ctx context.Context, _ int, n *Agent) error {
		_, err := n.AddFaults(ctx, &nodeapi.FaultList{Faults: all})
		return err
	})
}

// faultsAtOnce is how many faults one command enters: each may name every port of the lab.
const faultsAtOnce = 64

// addFaults enters faults into the lab's timeline and waits until nodes have them.
func (p *ControlPlane) addFaults(ctx context.Context, all []*nodeapi.Fault) error {
	if len(all) == 0 {
		return nil
	}
	var add []controller.Fault
	for _, f := range all {
		add = append(add, controller.Fault{ID: f.Id, Kind: f.Kind, Text: f.Text, Message: f.Message, Origin: f.Origin})
	}
	for part := range slices.Chunk(add, faultsAtOnce) {
		if _, err := p.Do(ctx, controller.Command{Kind: controller.KindFaults, Lab: p.lab, Faults: part}); err != nil {
			return err
		}
	}
	var failed []string
	err := p.Await(ctx, "the nodes to apply the faults", func(s *controller.State) bool {
		failed = nil
		l := s.Lab(p.lab)
		for _, f := range add {
			if l == nil {
				return true
			}
			if x := l.Fault(f.ID); x != nil && x.Stage == controller.StageAdding {
				return false
			} else if x != nil && x.Error != "" {
				failed = append(failed, x.Error)
			}
		}
		return true
	})
	if err == nil && len(failed) > 0 {
		err = fmt.Errorf("apply faults: %s", strings.Join(slices.Compact(failed), "; "))
	}
	return err
}

// resetFaults removes faults, those of the control plane first: they may be what prevents the
// removal of the others.
func (p *ControlPlane) resetFaults(ctx context.Context, prefix string) error {
	if err := p.ResetControl(ctx, prefix); err != nil {
		return err
	}
	if _, err := p.Do(ctx, controller.Command{Kind: controller.KindReset, Lab: p.lab, Prefix: prefix}); err != nil {
		return err
	}
	return p.Await(ctx, "the nodes to remove the faults", func(s *controller.State) bool {
		l := s.Lab(p.lab)
		return l == nil || !slices.ContainsFunc(l.Faults, func(f controller.Fault) bool { return strings.HasPrefix(f.ID, prefix) })
	})
}

// ResetControl removes faults of the control plane.
func (p *ControlPlane) ResetControl(ctx context.Context, prefix string) error {
	return p.each(ctx, "reset faults", func(ctx context.Context, _ int, n *Agent) error {
		_, err := n.ResetFaults(ctx, &nodeapi.ResetRequest{Prefix: prefix})
		return err
	})
}

// faults returns what is applied to controllers.
func (p *ControlPlane) faults(ctx context.Context) (lists []*nodeapi.FaultList, err error) {
	lists = make([]*nodeapi.FaultList, len(p.nodes))
	return lists, p.each(ctx, "list faults", func(ctx context.Context, i int, n *Agent) (err error) {
		lists[i], err = n.ListFaults(ctx, &nodeapi.InspectRequest{})
		return err
	})
}

// setRate tells controllers of a change of the clock, which they need only for their own faults.
// One that is gone has none, so errors do not matter.
func (p *ControlPlane) setRate(ctx context.Context, at func(controller string) *nodeapi.Rate) {
	_ = p.each(ctx, "set the clock", func(ctx context.Context, _ int, n *Agent) error {
		_, err := n.SetRate(ctx, at(n.Name))
		return err
	})
}

// Multicast leases an address for a plain multicast group and waits until switches know it.
func (p *ControlPlane) Multicast(ctx context.Context, run, holder string, hosts []uint32) (lower uint32, err error) {
	r, err := p.Do(ctx, controller.Command{Kind: controller.KindLease, Lab: p.lab, Run: run, Holder: holder, Hosts: hosts})
	if err != nil {
		return 0, err
	}
	failed := ""
	err = p.Await(ctx, "the switches to install the group", func(s *controller.State) bool {
		l := s.Lab(p.lab)
		if l == nil || l.Group(r.Lower) == nil {
			failed = "the lab has no such group any more"
			return true
		}
		g := l.Group(r.Lower)
		failed = g.Error
		return g.Stage == controller.StageOn
	})
	if err == nil && failed != "" {
		err = errors.New(failed)
	}
	return r.Lower, err
}

// EndMulticast ends a plain multicast group. It does not wait until switches have been told.
func (p *ControlPlane) EndMulticast(ctx context.Context, run string, lower uint32) error {
	_, err := p.Do(ctx, controller.Command{Kind: controller.KindFree, Lab: p.lab, Run: run, Lower: lower})
	return err
}

// Controllers returns the status of each of the lab's controllers.
func (d *Deployed) Controllers(ctx context.Context) []controllers.Status {
	if d.Plane == nil {
		return []controllers.Status{}
	}
	return d.Plane.Status(ctx)
}

// next returns the lower half of the McstID that is leased next unless another lease precedes it.
func (p *ControlPlane) next() (uint32, error) {
	s, err := p.Read(context.Background())
	if err != nil {
		return 0, err
	}
	if l := s.Lab(p.lab); l != nil {
		return l.Next, nil
	}
	return 0, fmt.Errorf("the controllers know no lab %s", p.lab)
}
