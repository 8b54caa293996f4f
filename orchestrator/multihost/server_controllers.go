// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"context"
	"net"

	controllers "github.com/mcastlab/mcastlab/internal/controller/client"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
	"google.golang.org/grpc"
)

// controllerAt returns the number of the server of a controller; at has those of all.
func controllerAt(d *orchestrator.Deployed, name string, at []int) (server int, ok bool) {
	for i, n := range d.Lab.Replicas() {
		if n == name && i < len(at) {
			return at[i], true
		}
	}
	return 0, false
}

// serverOfController returns the server of a controller.
func (s *serverNodes) serverOfController(name string) *engine.Server {
	at, _ := controllerAt(s.d, name, s.placement.Controllers)
	return &s.placement.Servers[at]
}

// Controller returns how a controller is reached.
func (s *serverNodes) Controller(name string) (controllers.Replica, []grpc.DialOption) {
	by := grpc.WithContextDialer(func(ctx context.Context, name string) (net.Conn, error) {
		return s.callShare(ctx, s.serverOfController(name), &shareapi.Open{Stream: shareapi.Stream_STREAM_AGENT, Node: name})
	})
	return controllers.Replica{ID: name, Target: "passthrough:///" + name, Address: s.serverOfController(name).String()}, []grpc.DialOption{by}
}
