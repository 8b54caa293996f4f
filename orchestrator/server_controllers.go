//go:build linux

package orchestrator

import (
	"context"
	"net"

	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// controllerHere reports whether a name is that of a controller on this machine.
func (d *Deployed) controllerHere(name string) bool {
	at, ok := d.controllerAt(name, d.share.Controllers)
	return ok && at == d.share.Own
}

// controllerAt returns the machine of a controller.
func (d *Deployed) controllerAt(name string, at []int) (machine int, ok bool) {
	for i, n := range d.Lab.Replicas() {
		if n == name && i < len(at) {
			return at[i], true
		}
	}
	return 0, false
}

// replicasHere makes the folders of the controllers that are to be started on this machine.
func (d *Deployed) replicasHere() (nodes []engine.Node, err error) {
	for _, name := range d.Lab.Replicas() {
		if !d.controllerHere(name) {
			continue
		}
		n, err := d.replicaNode(name)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// controllerMachine returns the machine of a controller of a lab on several.
func (d *Deployed) controllerMachine(name string) *engine.Machine {
	at, _ := d.controllerAt(name, d.spread.Controllers)
	return &d.spread.Machines[at]
}

// dialController connects to a controller of a lab on several machines.
func (d *Deployed) dialController(ctx context.Context, name string) (net.Conn, error) {
	return d.CallShare(ctx, d.controllerMachine(name), shareapi.Request{Do: shareapi.Agent, Node: name})
}
