// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"errors"
	"fmt"

	"github.com/mcastlab/mcastlab/internal/controller"
	controllers "github.com/mcastlab/mcastlab/internal/controller/client"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// ControlPlane decides for a running lab: its controllers, which record each decision before it takes effect, or, in a lab
// without them, the command alone.
type ControlPlane interface {
	// HasControllers reports whether controllers decide.
	HasControllers() bool
	// Do has a command take effect. Without controllers nothing is recorded.
	Do(ctx context.Context, c controller.Command) (controller.Result, error)
	// Status returns the status of each controller.
	Status(ctx context.Context) []controllers.Status

	// AddControl and ResetControl apply and remove faults of the control plane itself.
	AddControl(ctx context.Context, all []*nodeapi.Fault) error
	ResetControl(ctx context.Context, prefix string) error
	// Multicast leases an address for a plain multicast group and waits until switches know it, EndMulticast ends such a group; only
	// controllers do that.
	Multicast(ctx context.Context, run, holder string, hosts []uint32) (lower uint32, err error)
	EndMulticast(ctx context.Context, run string, lower uint32) error

	// addFaults applies faults of the fabric and of the control plane, resetFaults removes those whose ids begin with prefix, and
	// faults lists what is applied to controllers.
	addFaults(ctx context.Context, all []*nodeapi.Fault) error
	resetFaults(ctx context.Context, prefix string) error
	faults(ctx context.Context) ([]*nodeapi.FaultList, error)
	// nextLease returns the lower half of the McstID that is leased next, after so many, unless another lease precedes it.
	nextLease(leased uint32) (uint32, error)

	// configure gives the named controllers the lab and its clock, setRate gives all a change of the clock.
	configure(ctx context.Context, names []string, lab []byte, at func(controller string) *nodeapi.Rate) error
	setRate(ctx context.Context, at func(controller string) *nodeapi.Rate)
	close() error
}

// commandAlone is the control plane of a lab without controllers: its state is in its folder alone, and this command calls the nodes.
type commandAlone struct{ d *Deployed }

// NoControllers returns the control plane of a lab without controllers.
func NoControllers(d *Deployed) ControlPlane { return commandAlone{d} }

// HasControllers reports that there are none.
func (commandAlone) HasControllers() bool { return false }

// Do does nothing: there is nobody to record it.
func (commandAlone) Do(context.Context, controller.Command) (controller.Result, error) {
	return controller.Result{}, nil
}

// Status returns none.
func (commandAlone) Status(context.Context) []controllers.Status { return []controllers.Status{} }

// AddControl does nothing: there is nothing to apply faults to.
func (commandAlone) AddControl(context.Context, []*nodeapi.Fault) error { return nil }

// ResetControl does nothing.
func (commandAlone) ResetControl(context.Context, string) error { return nil }

// errNoControllers refuses what only controllers do.
var errNoControllers = errors.New("the lab has no controllers")

// Multicast refuses.
func (commandAlone) Multicast(context.Context, string, string, []uint32) (uint32, error) {
	return 0, errNoControllers
}

// EndMulticast refuses.
func (commandAlone) EndMulticast(context.Context, string, uint32) error { return errNoControllers }

func (c commandAlone) addFaults(ctx context.Context, all []*nodeapi.Fault) error {
	return c.d.Each(func(i int) error {
		if _, err := c.d.Nodes[i].AddFaults(ctx, &nodeapi.FaultList{Faults: all}); err != nil {
			return fmt.Errorf("apply faults at node %s: %w", c.d.Nodes[i].Name, err)
		}
		return nil
	})
}

func (c commandAlone) resetFaults(ctx context.Context, prefix string) error {
	return c.d.Each(func(i int) error {
		if _, err := c.d.Nodes[i].ResetFaults(ctx, &nodeapi.ResetRequest{Prefix: prefix}); err != nil {
			return fmt.Errorf("reset faults of node %s: %w", c.d.Nodes[i].Name, err)
		}
		return nil
	})
}

func (commandAlone) faults(context.Context) ([]*nodeapi.FaultList, error) { return nil, nil }

func (commandAlone) nextLease(leased uint32) (uint32, error) { return leased + 1, nil }

func (commandAlone) configure(context.Context, []string, []byte, func(string) *nodeapi.Rate) error {
	return nil
}

func (commandAlone) setRate(context.Context, func(string) *nodeapi.Rate) {}

func (commandAlone) close() error { return nil }
