// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lockstep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/orchestrator"
)

// While a run in virtual time lasts, its process takes what other commands do by hand, and does it between
// rounds: at an instant that no node has passed, which goes into the run's folder. A run that is given that
// record is the same run.

// manualFaults serves other commands for as long as a run lasts.
type manualFaults struct {
	nodeapi.UnimplementedRunServer
	server *grpc.Server
	socket string
	asked  chan manualRequest
	over   chan struct{}
	served sync.WaitGroup
}

// manualRequest is something to do between rounds.
type manualRequest struct {
	do   func() error
	done chan<- error
}

// serveManual begins to serve.
func (r *lockstepRun) serveManual() (*manualFaults, error) {
	server := grpc.NewServer(grpc.MaxSendMsgSize(orchestrator.MessageMax))
	h := &manualFaults{socket: r.d.Store.RunSocket(), asked: make(chan manualRequest), over: make(chan struct{}), server: server}
	if err := os.Remove(h.socket); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a run that was killed
		return nil, fmt.Errorf("take orders from other commands: %w", err)
	}
	l, err := net.Listen("unix", h.socket)
	if err == nil {
		err = os.Chmod(h.socket, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("take orders from other commands: %w", err)
	}
	nodeapi.RegisterRunServer(h.server, &runServer{manualFaults: h, r: r})
	h.served.Go(func() { _ = h.server.Serve(l) }) // until close
	return h, nil
}

// close refuses what has not been done, and removes the socket.
func (h *manualFaults) close() error {
	close(h.over)
	late := time.AfterFunc(orchestrator.RestoreWait, h.server.Stop)
	h.server.GracefulStop() // what has been said arrives
	late.Stop()
	h.served.Wait()
	if err := os.Remove(h.socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("end the service of a run: %w", err)
	}
	return nil
}

// Edge implements lockstep.Streams.
func (r *lockstepRun) Edge() error {
	r.stalls.away = nil // all have come to the end of a round
	if r.plane.err != nil {
		return r.plane.err
	}
	if len(r.caps.users) > 0 {
		r.serveUsers()
	}
	for {
		select {
		case a := <-r.manual.asked:
			a.done <- a.do()
			if r.torn != nil {
				return r.torn
			}
		default:
			return nil
		}
	}
}

// act has the timelines of all nodes, and that of the coordinator, do something at its instant.
func (r *lockstepRun) act(a *faults.Act) error {
	if err := a.Apply(r.timeline, r.d.Graph, r.d.Lab.Replicas(), nil); err != nil {
		return err
	}
	m := &nodeapi.Act{At: int64(a.At)}
	if a.Reset != nil {
		m.What = &nodeapi.Act_Remove{Remove: *a.Reset}
	} else {
		m.What = &nodeapi.Act_Add{Add: &nodeapi.Fault{Id: a.ID, Text: a.Text, Message: a.Fault}}
	}
	for i := range r.nodes {
		if err := r.send(i, &nodeapi.Order{What: &nodeapi.Order_Act{Act: m}}); err != nil {
			r.torn = err
			return err
		}
		r.coord.Ordered(i, a.At)
	}
	if err := r.NoteAct(a); err != nil {
		r.torn = err
		return err
	}
	return nil
}

// runServer implements nodeapi.RunServer.
type runServer struct {
	*manualFaults
	r *lockstepRun
}

// between does something between rounds.
func (h *runServer) between(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	select {
	case h.asked <- manualRequest{do, done}:
		return <-done
	case <-h.over:
		return status.Error(codes.Unavailable, "the run has ended")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Do implements nodeapi.RunServer.
func (h *runServer) Do(ctx context.Context, m *nodeapi.Act) (*nodeapi.ActReply, error) {
	a := faults.Act{}
	switch x := m.What.(type) {
	case *nodeapi.Act_Add:
		a.ID, a.Text, a.Fault = x.Add.Id, x.Add.Text, x.Add.Message
	case *nodeapi.Act_Remove:
		a.Reset = &x.Remove
	default:
		return nil, status.Errorf(codes.InvalidArgument, "%T is not known to this version", m.What)
	}
	err := h.between(ctx, func() error {
		a.At = h.r.coord.Edge()
		return h.r.act(&a)
	})
	return &nodeapi.ActReply{At: int64(a.At)}, err
}

// Look implements nodeapi.RunServer.
func (h *runServer) Look(ctx context.Context, _ *nodeapi.InspectRequest) (*nodeapi.LookReply, error) {
	reply := &nodeapi.LookReply{}
	err := h.between(ctx, func() error {
		r := h.r
		if err := r.tell(&nodeapi.Order{What: &nodeapi.Order_Look{Look: true}}); err != nil {
			return err
		}
		all, err := r.counted()
		if err != nil {
			return err
		}
		for i := range all {
			b, err := json.Marshal(&all[i])
			if err != nil {
				return err
			}
			reply.States = append(reply.States, b)
		}
		reply.Lab, reply.Faults = int64(r.coord.Now()), r.faultLists()
		return nil
	})
	return reply, err
}
