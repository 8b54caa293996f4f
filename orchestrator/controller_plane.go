// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/controller"
	controllers "github.com/mcastlab/mcastlab/internal/controller/client"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// controllerPlane is the control plane of a lab with controllers, as a command reaches it.
type controllerPlane struct {
	*controllers.Client
	lab   string
	nodes []*Agent // as nodes that have faults
}

// HasControllers reports that there are.
func (p *controllerPlane) HasControllers() bool { return true }

// Do has a command about the lab take effect.
func (p *controllerPlane) Do(ctx context.Context, c controller.Command) (controller.Result, error) {
	c.Lab = p.lab
	return p.Client.Do(ctx, c)
}

func (p *controllerPlane) close() error {
	errs := []error{p.Client.Close()}
	for _, n := range p.nodes {
		errs = append(errs, n.conn.Close())
	}
	return errors.Join(errs...)
}

// configure gives controllers the lab and its clock. One that has died meanwhile gets them when it is started again.
func (p *controllerPlane) configure(ctx context.Context, names []string, lab []byte, at func(controller string) *nodeapi.Rate) error {
	return p.each(ctx, "configuration", func(ctx context.Context, _ int, n *Agent) error {
		if !slices.Contains(names, n.Name) {
			return nil
		}
		_, err := n.Configure(ctx, &nodeapi.ConfigureRequest{Node: n.Name, Lab: lab, Rate: at(n.Name)})
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
func (p *controllerPlane) each(ctx context.Context, what string, f func(ctx context.Context, i int, n *Agent) error) error {
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

// AddControl applies faults of the control plane. It calls each controller separately, since that
// works without a majority; a dead one gets no call.
func (p *controllerPlane) AddControl(ctx context.Context, all []*nodeapi.Fault) error {
	if len(all) == 0 {
		return nil
	}
	return p.each(ctx, "apply faults", func(ctx context.Context, _ int, n *Agent) error {
		_, err := n.AddFaults(ctx, &nodeapi.FaultList{Faults: all})
		return err
	})
}

// faultsAtOnce is the number of faults per command: each may name every port of the lab.
const faultsAtOnce = 64

// addFaults enters faults of the fabric into the lab's timeline, and applies those of the control plane.
func (p *controllerPlane) addFaults(ctx context.Context, all []*nodeapi.Fault) error {
	fabric, plane := split(all)
	return errors.Join(p.enterFaults(ctx, fabric), p.AddControl(ctx, plane))
}

// enterFaults enters faults into the lab's timeline and waits until nodes have them.
func (p *controllerPlane) enterFaults(ctx context.Context, all []*nodeapi.Fault) error {
	if len(all) == 0 {
		return nil
	}
	var add []controller.Fault
	for _, f := range all {
		add = append(add, controller.Fault{ID: f.Id, Kind: f.Kind, Text: f.Text, Message: f.Message, Origin: f.Origin})
	}
	for part := range slices.Chunk(add, faultsAtOnce) {
		if _, err := p.Do(ctx, controller.Command{Kind: controller.KindFaults, Faults: part}); err != nil {
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
func (p *controllerPlane) resetFaults(ctx context.Context, prefix string) error {
	if err := p.ResetControl(ctx, prefix); err != nil {
		return err
	}
	if _, err := p.Do(ctx, controller.Command{Kind: controller.KindReset, Prefix: prefix}); err != nil {
		return err
	}
	return p.Await(ctx, "the nodes to remove the faults", func(s *controller.State) bool {
		l := s.Lab(p.lab)
		return l == nil || !slices.ContainsFunc(l.Faults, func(f controller.Fault) bool { return strings.HasPrefix(f.ID, prefix) })
	})
}

// ResetControl removes faults of the control plane.
func (p *controllerPlane) ResetControl(ctx context.Context, prefix string) error {
	return p.each(ctx, "reset faults", func(ctx context.Context, _ int, n *Agent) error {
		_, err := n.ResetFaults(ctx, &nodeapi.ResetRequest{Prefix: prefix})
		return err
	})
}

// faults returns what is applied to controllers.
func (p *controllerPlane) faults(ctx context.Context) (lists []*nodeapi.FaultList, err error) {
	lists = make([]*nodeapi.FaultList, len(p.nodes))
	return lists, p.each(ctx, "list faults", func(ctx context.Context, i int, n *Agent) (err error) {
		lists[i], err = n.ListFaults(ctx, &nodeapi.InspectRequest{})
		return err
	})
}

// setRate tells controllers of a change of the clock, which they need only for their own faults.
// One that is gone has none, so errors do not matter.
func (p *controllerPlane) setRate(ctx context.Context, at func(controller string) *nodeapi.Rate) {
	_ = p.each(ctx, "set the clock", func(ctx context.Context, _ int, n *Agent) error {
		_, err := n.SetRate(ctx, at(n.Name))
		return err
	})
}

// Multicast leases an address for a plain multicast group and waits until switches know it.
func (p *controllerPlane) Multicast(ctx context.Context, run, holder string, hosts []uint32) (lower uint32, err error) {
	r, err := p.Do(ctx, controller.Command{Kind: controller.KindLease, Run: run, Holder: holder, Hosts: hosts})
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

// EndMulticast ends a plain multicast group. It does not wait until the switches know.
func (p *controllerPlane) EndMulticast(ctx context.Context, run string, lower uint32) error {
	_, err := p.Do(ctx, controller.Command{Kind: controller.KindFree, Run: run, Lower: lower})
	return err
}

// nextLease asks the controllers: they know of leases that have not ended.
func (p *controllerPlane) nextLease(uint32) (uint32, error) {
	s, err := p.Read(context.Background())
	if err != nil {
		return 0, err
	}
	if l := s.Lab(p.lab); l != nil {
		return l.Next, nil
	}
	return 0, fmt.Errorf("the controllers know no lab %s", p.lab)
}
