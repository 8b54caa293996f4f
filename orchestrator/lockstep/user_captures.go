// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lockstep

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// userCapture is a capture that a user begins while a run in virtual time is under way.
type userCapture struct {
	frameQueue
	end    topo.End
	frames chan *nodeapi.CapturedFrame
	gone   <-chan struct{} // the user has gone
	told   chan struct{}   // closed when the user has all frames
}

// userFramesMax is the number of frames that the user may lag before lab time waits.
const userFramesMax = 1 << 12

// tell hands on the frames that arrived before an instant. It waits for a user who does not read: no lab time
// passes meanwhile, and no frame is lost.
func (c *userCapture) tell(before vtime.Time, over <-chan struct{}) {
	for _, f := range c.take(before) {
		select {
		case c.frames <- &nodeapi.CapturedFrame{Now: int64(f.now), At: int64(f.at), Frame: f.bytes}:
		case <-c.gone:
			return
		case <-over:
			return
		}
	}
}

// capture has the nodes at both ends of a link begin, or end, to tell of the frames at a port.
func (r *lockstepRun) capture(number uint32, at topo.End, end bool) error {
	m := &nodeapi.CaptureOrder{Capture: number, Port: &nodeapi.PortRef{Node: uint32(at.Node), Port: uint32(at.Port)}, End: end}
	for _, node := range []int{at.Node, r.d.Graph.Peer(at.Node, at.Port).Node} {
		if err := r.send(node, &nodeapi.Order{What: &nodeapi.Order_Capture{Capture: m}}); err != nil {
			r.torn = err
			return err
		}
		r.coord.Ordered(node, vtime.Never)
	}
	r.torn = r.coord.Settle()
	return r.torn
}

// serveUsers hands on what late captures have seen.
func (r *lockstepRun) serveUsers() {
	before := r.coord.Horizon()
	for _, c := range r.caps.users {
		if c != nil {
			c.tell(before, r.ctx.Done())
		}
	}
}

// endUsers ends all late captures with the run. A user who does not read is not waited for long.
func (r *lockstepRun) endUsers() {
	ctx, cancel := context.WithTimeout(r.ctx, userWait)
	defer cancel()
	for _, c := range r.caps.users {
		if c == nil {
			continue
		}
		c.tell(vtime.Never, ctx.Done())
		close(c.frames)
		select {
		case <-c.told:
		case <-c.gone:
		case <-ctx.Done():
		}
	}
}

// userWait limits the wait of an ended run for the user of a capture to take the remaining frames.
const userWait = 5 * time.Second

// Capture implements nodeapi.RunServer.
func (h *runServer) Capture(p *nodeapi.PortRef, s grpc.ServerStreamingServer[nodeapi.CapturedFrame]) error {
	r, at := h.r, topo.End{Node: int(p.Node), Port: int(p.Port)}
	if at.Node >= len(r.d.Graph.Nodes) || at.Port >= len(r.d.Graph.Nodes[at.Node].Links) {
		return status.Errorf(codes.InvalidArgument, "port %d of node %d is not in the lab", at.Port, at.Node)
	}
	c := &userCapture{end: at, frames: make(chan *nodeapi.CapturedFrame, userFramesMax), gone: s.Context().Done(), told: make(chan struct{})}
	defer close(c.told)
	number := 0
	err := h.between(s.Context(), func() error {
		number = len(r.caps.users)
		r.caps.users = append(r.caps.users, c)
		return r.capture(uint32(len(r.caps.ends)+number), at, false)
	})
	if err != nil {
		return err // the user, or the run, was gone before it began; or the run ends by this
	}
	err = s.Send(&nodeapi.CapturedFrame{})
	for err == nil {
		select {
		case f, more := <-c.frames:
			if !more {
				return nil
			}
			err = s.Send(f)
		case <-c.gone:
			err = s.Context().Err()
		}
	}
	return errors.Join(err, h.between(context.WithoutCancel(s.Context()), func() error {
		r.caps.users[number] = nil
		return r.capture(uint32(len(r.caps.ends)+number), at, true)
	}))
}
